// clustar-micro: Google Benchmark over the parts that every message passes.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "bench/micro/plugin_bench.h"
#include "transport/base/own_folder.h"
#include "transport/base/version.h"

namespace {

constexpr std::string_view kUsage =
    R"(usage: clustar-micro [--plugin FILE] [Google Benchmark's options]

Times the parts that every message passes: wire codecs, matchers, send queue, the core of MLT, the calls of a net
plugin, and what the machine itself allows (memcpy, checksums, sums).

  --plugin FILE             the plugin whose calls are timed (default: libnccl-net-clustar.so of this build)
  --benchmark_filter=REGEX  only these, for example --benchmark_filter='plugin/.*'
  --benchmark_format=json   for machines; --benchmark_out=FILE writes it beside the table
  --benchmark_repetitions=N with mean, median and deviation
  --version                 version and commit
  --help                    this text

example: CLUSTAR_SOCKET_IFNAME=lo clustar-micro --benchmark_filter=send_queue
exit status: 0 all ran; 1 a call of the plugin failed, or the output file cannot be written; 2 wrong usage
)";

int wrong_usage(const std::string& what) {
  std::fprintf(stderr, "clustar-micro: %s; see clustar-micro --help\n", what.c_str());
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  std::string plugin = clustar::installed_library("libnccl-net-clustar.so");
  std::vector<char*> rest{argv[0]};
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--help" || argument == "-h") {
      std::fwrite(kUsage.data(), 1, kUsage.size(), stdout);
      return 0;
    }
    if (argument == "--version") {
      std::printf("clustar-micro %s\n", clustar::version_text().c_str());
      return 0;
    }
    if (argument == "--plugin") {
      if (++i == argc) return wrong_usage("--plugin needs a file");
      plugin = argv[i];
    } else if (argument.starts_with("--plugin=")) {
      plugin = argument.substr(argument.find('=') + 1);
    } else {
      rest.push_back(argv[i]);
    }
  }
  std::error_code error;
  if (!std::filesystem::is_regular_file(plugin, error)) return wrong_usage("there is no plugin file " + plugin);
  int count = static_cast<int>(rest.size());
  benchmark::Initialize(&count, rest.data());
  if (count > 1) return wrong_usage(std::string("unknown option '") + rest[1] + "'");
  bool failed = false;
  clustar::bench::micro::register_plugin_benchmarks(plugin, failed);
  clustar::bench::micro::register_poller_benchmarks(plugin, failed);
  clustar::bench::micro::register_connection_benchmarks(plugin, failed);
  const std::size_t ran = benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  if (ran == 0) return wrong_usage("no benchmark has a name like that; --benchmark_list_tests=true lists them");
  return failed ? 1 : 0;
}
