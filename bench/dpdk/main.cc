// clustar-dpdk-perf: MLT over a driver of DPDK against the driver alone.
#include <charconv>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <system_error>

#include "bench/dpdk/comparison.h"
#include "bench/report/report.h"
#include "transport/base/version.h"

namespace {

using clustar::bench::dpdk::Options;

constexpr std::string_view kUsage =
    R"(usage: clustar-dpdk-perf [--wire memif|veth|xdp] [--rounds N] [--seconds S] [--json FILE]

Packets per second and goodput of MLT over a driver of DPDK, beside a bare loop of bursts over the same driver: two pairs
of ports in this process, one thread, in turns. Without a NIC it says what MLT costs beside the driver, not how fast a
network is.

  --wire memif  shared memory (default)
  --wire veth   net_af_packet on virtual interfaces; needs the right to make a network namespace
  --wire xdp    net_af_xdp on virtual interfaces, two of them joined by a bridge
  --rounds N    5 to 1000; 11
  --seconds S   of each of the two in a round, 0.02 to 60; 0.5
  --json FILE   the results for programs; - is standard output
  --version     version and commit
  --help        this text

exit status: 0 measured; 1 it could not be measured; 2 wrong usage
)";

int wrong_usage(const std::string& what) {
  std::fprintf(stderr, "clustar-dpdk-perf: %s; see clustar-dpdk-perf --help\n", what.c_str());
  return 2;
}

template <class Number>
bool parse(std::string_view text, Number least, Number most, Number& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value >= least && value <= most;
}

int measure(const Options& options, const std::string& json) {
  if (const auto writable = clustar::bench::report::check_writable(json); !writable) {
    return wrong_usage("--json: " + writable.error().message);
  }
  const auto compared = clustar::bench::dpdk::compare(options);
  if (!compared) {
    std::fprintf(stderr, "clustar-dpdk-perf: %s\n", compared.error().message.c_str());
    return 1;
  }
  // JSON on standard output stays parseable.
  std::fputs(clustar::bench::dpdk::to_table(*compared).c_str(), json == "-" ? stderr : stdout);
  if (json.empty()) return 0;
  const auto envelope = clustar::bench::report::envelope("dpdk-perf", clustar::bench::dpdk::to_json(*compared));
  const auto written = clustar::bench::report::write_json(envelope, json);
  if (!written) std::fprintf(stderr, "clustar-dpdk-perf: %s\n", written.error().message.c_str());
  return written ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  std::string json;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--help" || name == "-h") return std::fputs(kUsage.data(), stdout) < 0;
    if (name == "--version") return std::printf("clustar-dpdk-perf %s\n", clustar::version_text().c_str()) < 0;
    if (i + 1 == argc) return wrong_usage("unknown option '" + name + "', or its value lacks");
    const std::string value = argv[++i];
    if (name == "--wire" && (value == "memif" || value == "veth" || value == "xdp")) {
      options.wire = value;
    } else if (name == "--json") {
      json = value;
    } else if (!(name == "--rounds" && parse(value, 5, 1000, options.rounds)) &&
               !(name == "--seconds" && parse(value, 0.02, 60.0, options.seconds))) {
      return wrong_usage("unknown option, or a value that is not allowed: " + name + " " + value);
    }
  }
  return measure(options, json);
}
