// One rank of the GPU check: real NCCL collectives on a GPU, every result compared bit for bit with what the host
// computes. scripts/gpu-check starts the ranks; `nccl-check --help` lists the options.
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "tests/gpu/lossy_replica.h"
#include "tests/gpu/nccl_check_bounds.h"
#include "tests/gpu/nccl_check_rank.h"

namespace {

using namespace clustar::nccl_check;

constexpr int kSkip = 77;
constexpr const char* kUsage =
    "usage: nccl-check --rank R --size N --idfile PATH [--min BYTES] [--max BYTES] [--iterations N] [--split 0|1]\n"
    "                  [--graph REPLAYS] [--train STEPS] [--deadline SECONDS] [--json FILE]\n"
    "One rank of all-reduce, reduce-scatter and all-gather over NCCL, checked bit for bit, on GPU 0.\n"
    "Rank 0 writes NCCL's unique id to --idfile, the others read it there. Sizes go from --min (8) to --max "
    "(67108864)\n"
    "by factors of 8; each is checked once, then timed --iterations times (0: 10 up to 64 KiB, otherwise 4).\n"
    "--split 1: on communicators made by ncclCommSplit too, with and without splitShare; ranks of even and odd number\n"
    "  part where there are 3 or more.\n"
    "--graph N: instead, all-reduce and reduce-scatter captured into one CUDA graph, which is replayed N times, with\n"
    "  other inputs each time.\n"
    "--train N: instead, N training steps, each an all-reduce of --max bytes of float32; what every step leaves, and "
    "what\n"
    "  clustarApi_v1 of the plugin in NCCL_NET_PLUGIN says that it lost, go to --json, where ranks can be compared.\n"
    "Exit status: 0 all correct, 1 failed, 2 wrong usage, 77 no GPU here.\n";

struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

Options parse(int argc, char** argv) {
  Options options;
  const std::map<std::string, std::function<void(const std::string&)>> known = {
      {"--rank", [&](const std::string& text) { options.rank = std::stoi(text); }},
      {"--size", [&](const std::string& text) { options.size = std::stoi(text); }},
      {"--idfile", [&](const std::string& text) { options.id_file = text; }},
      {"--min", [&](const std::string& text) { options.min_bytes = std::stoull(text); }},
      {"--max", [&](const std::string& text) { options.max_bytes = std::stoull(text); }},
      {"--iterations", [&](const std::string& text) { options.iterations = std::stoi(text); }},
      {"--split", [&](const std::string& text) { options.split = std::stoi(text) != 0; }},
      {"--graph", [&](const std::string& text) { options.graph = std::stoi(text); }},
      {"--train", [&](const std::string& text) { options.train = std::stoi(text); }},
      {"--deadline", [&](const std::string& text) { options.deadline_s = std::stoi(text); }},
      {"--json", [&](const std::string& text) { options.json = text; }},
  };
  for (int i = 1; i < argc; i += 2) {
    const auto option = known.find(argv[i]);
    if (option == known.end()) throw UsageError(std::string("unknown option '") + argv[i] + "'");
    if (i + 1 == argc) throw UsageError(std::string(argv[i]) + " needs a value");
    try {
      option->second(argv[i + 1]);
    } catch (const std::logic_error&) {
      throw UsageError(std::string(argv[i]) + ": '" + argv[i + 1] + "' is not a number");
    }
  }
  if (options.size < 1 || options.rank < 0 || options.rank >= options.size) {
    throw UsageError("--rank and --size are needed, 0 <= rank < size");
  }
  if (options.id_file.empty()) throw UsageError("--idfile is needed: a path that all ranks see");
  if (options.min_bytes < 1 || options.max_bytes < options.min_bytes || options.max_bytes > (1ull << 34)) {
    throw UsageError("--min must be at least 1, --max at least --min and at most 16 GiB");
  }
  for (const int count : {options.iterations, options.graph, options.train}) {
    if (count < 0 || count > 1000) throw UsageError("--iterations, --graph and --train must be 0 to 1000");
  }
  if (options.split + (options.graph > 0) + (options.train > 0) > 1) {
    throw UsageError("--split, --graph and --train exclude each other; give one of them");
  }
  if (options.train > 0 && options.size > kMostRanks) {
    throw UsageError("--train takes a --size of at most " + std::to_string(kMostRanks));
  }
  if (options.deadline_s < 1) throw UsageError("--deadline must be at least 1 second");
  return options;
}

int run(const Options& options) {
  int devices = 0;
  if (const auto result = cudaGetDeviceCount(&devices); result != cudaSuccess || devices == 0) {
    std::printf("SKIP: no CUDA device here: %s\n", cudaGetErrorString(result));
    return kSkip;
  }
  start_deadline(options.deadline_s);
  int nccl_version = 0, driver_version = 0;
  ncclGetVersion(&nccl_version);
  check(cudaDriverGetVersion(&driver_version), "cudaDriverGetVersion");
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");

  Rank rank(options);
  const nlohmann::json results = rank.run();
  rank.close();

  const nlohmann::json document = {{"rank", options.rank},         {"size", options.size},
                                   {"nccl_version", nccl_version}, {"cuda_driver_version", driver_version},
                                   {"gpu", properties.name},       {"results", results}};
  if (!options.json.empty()) {
    std::ofstream out(options.json);
    out << document.dump(1) << "\n";
    if (!out.flush()) throw std::runtime_error("cannot write --json '" + options.json + "'");
  }
  const auto wrong = std::count_if(results.begin(), results.end(), [](const auto& r) { return !r.at("correct"); });
  std::printf("rank %d: %zu collectives, %td wrong\n", options.rank, results.size(), wrong);
  return wrong == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && (std::strcmp(argv[1], "--help") == 0 || std::strcmp(argv[1], "-h") == 0)) {
    std::fputs(kUsage, stdout);
    return 0;
  }
  try {
    return run(parse(argc, argv));
  } catch (const UsageError& error) {
    std::fprintf(stderr, "nccl-check: %s\n%s", error.what(), kUsage);
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "nccl-check: while %s: %s\n", what_it_did().c_str(), error.what());
    std::fflush(nullptr);
    _exit(1);  // NCCL's threads may still wait for what failed
  }
}
