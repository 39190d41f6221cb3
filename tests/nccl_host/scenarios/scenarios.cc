// Scenarios of NCCL's life on ranks that are processes: communicators made, used and ended in many ways, and deaths.

#include <cstdio>
#include <map>
#include <string>

#include "tests/nccl_host/ranks/ranks.h"
#include "tests/nccl_host/scenarios/death.h"
#include "tests/nccl_host/scenarios/options.h"
#include "tests/nccl_host/scenarios/orderly.h"

namespace nccl_host {
namespace {

using Part = void (*)(Context&);

Part Orderly(const std::string& name) {
  static const std::map<std::string, Part> parts{{"split", Split},   {"communicators", Communicators},
                                                 {"groups", Groups}, {"nonblocking", NonBlocking},
                                                 {"many", Many},     {"scalable", Scalable}};
  const auto found = parts.find(name);
  return found == parts.end() ? nullptr : found->second;
}

bool RunOrderly(const ScenarioOptions& options, char** argv, Part part) {
  for (int i = 0; i < (options.scenario == "many" ? 1 : options.times); ++i) {
    const SharedMemory memory(options, sizeof(Shared));
    auto& shared = *static_cast<Shared*>(memory.get());
    const auto run = [&](int rank) {
      Context context(options, shared, rank);
      part(context);
    };
    const bool well = Ranks(options, memory, argv, run).Await();
    std::printf("%s: %d ranks, %llu elements compared, %llu wrong%s\n", options.scenario.c_str(), options.ranks,
                static_cast<unsigned long long>(shared.compared.load()),
                static_cast<unsigned long long>(shared.wrong.load()), well ? "" : ", FAILED");
    if (!well || shared.wrong != 0 || shared.compared == 0) return false;
  }
  return true;
}

int Main(const ScenarioOptions& options, char** argv) {
  const Part part = Orderly(options.scenario);
  if (options.rank >= 0) {
    const SharedMemory memory(options, sizeof(Shared));
    Context context(options, *static_cast<Shared*>(memory.get()), options.rank);
    (part ? part : Endless)(context);
    return 0;
  }
  return (part ? RunOrderly(options, argv, part) : Trials(options, argv)) ? 0 : 1;
}

}  // namespace
}  // namespace nccl_host

int main(int argc, char** argv) { return nccl_host::Main(nccl_host::ScenarioOrExit(argc, argv), argv); }
