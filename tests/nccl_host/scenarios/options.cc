#include "tests/nccl_host/scenarios/options.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "tests/nccl_host/ranks/arguments.h"

namespace nccl_host {
namespace {

constexpr std::array<std::string_view, 11> kNames{"split",    "communicators", "groups", "nonblocking",
                                                  "scalable", "many",          "kill",   "stop",
                                                  "abort",    "abort_stopped", "cut"};

constexpr const char* kUsage = R"(usage: nccl-host-scenarios SCENARIO [options]

  split           ncclCommSplit by colour and key, without colour, with shared resources; parent and children in use
  communicators   three in one process: in turn, at once, and from a thread each
  groups          several collectives, several sends to each peer, two communicators in a group
  nonblocking     ncclConfig_t.blocking = 0, polled by ncclCommGetAsyncError
  scalable        ncclCommInitRankScalable with two ids
  many            communicators made, used and destroyed one after the other (--times, 200); memory, descriptors and
                  threads stay as they were after the first tenth (at least 10, or half of them)
  kill            a rank is killed in the middle of traffic: every other gets an error and aborts within 5 s
  stop            a rank is stopped for --stop seconds and goes on: no error anywhere
  abort           a rank aborts in the middle of traffic: every other gets an error and aborts within 5 s
  abort_stopped   a rank is stopped; the others abort within 5 s; it gets an error when it goes on
  cut             --cut SHELL-COMMAND cuts the network of rank 1: every rank gets an error and aborts within 5 s

  -g, --ranks N      ranks, each a process of its own, 2 to 64 (2)
  -n, --times N      communicators of many, otherwise trials with new ranks, 1 to 1000 (many 200, otherwise 1)
  -b, --bytes N      of each all-reduce, with K or M, 1K to 64M (1M)
  -s, --stop S       1 to 600 seconds (20)
  -a, --any-error 0|1  a peer's end may be any error, not only ncclRemoteError (0)
  -e, --error S      an error comes within S seconds, 1 to 600 (cut 35, otherwise 5)
  -T, --timeout S    end all ranks of a trial after S seconds, 1 to 3600 (60)
  -L, --launch WORDS start each rank by these words, {rank} replaced, as `clustar fabric exec {rank} --`
  -c, --cut COMMAND  as `clustar fabric set h1 --dead on --direction both`
  -h, --help         this text

All results are compared, bit by bit.
example: scripts/nccl-host -- nccl-host-scenarios kill -g 3 -n 100
exit status: 0 all as it should be; 1 not; 2 wrong usage
)";

}  // namespace

ScenarioOptions ScenarioOrExit(int argc, char** argv) {
  ScenarioOptions options;
  options.program = kScenarios;
  const auto help = [](const std::string& text) { return text == "-h" || text == "--help"; };
  for (int i = 1; i < argc; ++i) {
    if (!help(argv[i])) continue;
    std::fputs(kUsage, stdout);
    std::exit(0);
  }
  options.scenario = argc > 1 ? argv[1] : "";
  if (std::find(kNames.begin(), kNames.end(), options.scenario) == kNames.end())
    WrongUsage(kScenarios, "the first argument must be a scenario, not '" + options.scenario + "'");
  for (int i = 2; i < argc; ++i) {
    const std::string option = argv[i];
    const auto is = [&](const char* brief, const char* full) { return option == brief || option == full; };
    if (i + 1 == argc) WrongUsage(kScenarios, "'" + option + "' is unknown or needs a value");
    const std::string text = argv[++i];
    const auto number = [&](size_t least, size_t most) { return NumberOrExit(kScenarios, option, text, least, most); };
    if (TakeRankOption(options, option, text)) continue;
    if (is("-n", "--times"))
      options.times = static_cast<int>(number(1, 1000));
    else if (is("-b", "--bytes"))
      options.bytes = number(1 << 10, 64 << 20);
    else if (is("-s", "--stop"))
      options.stop_for = static_cast<int>(number(1, 600));
    else if (is("-e", "--error"))
      options.error_within = static_cast<int>(number(1, 600));
    else if (is("-a", "--any-error"))
      options.any_error = number(0, 1) == 1;
    else if (is("-c", "--cut"))
      options.cut = text;
    else
      WrongUsage(kScenarios, "unknown option '" + option + "'");
  }
  if (options.ranks < 2) WrongUsage(kScenarios, "--ranks needs a number from 2 to 64");
  if (options.scenario == "cut" && options.cut.empty()) WrongUsage(kScenarios, "cut needs --cut COMMAND");
  if (options.times == 0) options.times = options.scenario == "many" ? 200 : 1;
  if (options.error_within == 0) options.error_within = options.scenario == "cut" ? 35 : 5;
  return options;
}

}  // namespace nccl_host
