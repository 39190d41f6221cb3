// The fake core over a plugin that writes down what is called, for comparison with NCCL's own calls
// (tests/nccl_host/calls). Usage: fake_nccl_calls LIBRARY
#include <chrono>
#include <cstdio>
#include <exception>

#include "tests/plugin/fake_nccl/library.h"
#include "tests/plugin/fake_nccl/loaded.h"

namespace clustar::tests::fake_nccl {
namespace {

using namespace nccl_abi;

int run(const char* path) {
  const Library library(path);
  JobOptions options;
  options.comm.id = 0xca11;
  options.comm.channels = 2;
  options.comm.buffer_bytes = 1 << 20;
  options.policy = &policies().front();
  Job job(library, options);
  for (int round = 0; round < 3; ++round) {
    for (const int function : {kAllReduce, kReduceScatter, kAllGather, kBroadcast, kReduce, kSend}) {
      Task task;
      task.function = function;
      task.datatype = datatype_named("ncclFloat32");
      task.count = 300'000;
      job.launch(0, task);
    }
    Task small;
    small.datatype = datatype_named("ncclFloat32");
    small.count = 2;
    small.protocol = kLL;
    job.launch(0, small);
  }
  if (job.run(std::chrono::seconds(40)) && job.tally().errors == 0) return 0;
  std::fprintf(stderr, "fake_nccl_calls: not done: %s\n", job.tally().first_error.c_str());
  return 1;
}

}  // namespace
}  // namespace clustar::tests::fake_nccl

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: fake_nccl_calls LIBRARY\n");
    return 2;
  }
  try {
    return clustar::tests::fake_nccl::run(argv[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fake_nccl_calls: %s\n", error.what());
    return 1;
  }
}
