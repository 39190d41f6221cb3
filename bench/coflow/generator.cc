#include "bench/coflow/generator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "bench/coflow/keys.h"
#include "transport/base/rng.h"

namespace clustar::bench::coflow {
namespace {

using clustar::coflow::CoflowSpec;
using clustar::coflow::PortId;

constexpr double kMb = 1048576;

struct Kind {
  double share;
  std::uint64_t least_flows, most_flows;
  double least_mb, most_mb;  // of a flow
};
constexpr Kind kKinds[] = {
    {0.52, 1, 50, 1, 5}, {0.16, 1, 50, 5, 1000}, {0.15, 51, 2500, 1, 5}, {0.17, 51, 2500, 5, 100}};

std::vector<PortId> draw(Rng& rng, std::size_t ports, std::size_t count) {
  std::vector<PortId> all(ports);
  std::iota(all.begin(), all.end(), PortId{0});
  for (std::size_t i = 0; i < count; ++i) std::swap(all[i], all[i + rng.below(ports - i)]);
  all.resize(count);
  return all;
}

double log_uniform(Rng& rng, double least, double most) { return least * std::pow(most / least, rng.uniform()); }

CoflowSpec make_coflow(Rng& rng, std::size_t ports) {
  double at = rng.uniform();
  const Kind* kind = std::begin(kKinds);
  while (kind + 1 != std::end(kKinds) && at >= kind->share) at -= (kind++)->share;
  // Few ports may not make as many flows as a wide one has.
  const auto most = std::min<double>(static_cast<double>(kind->most_flows), static_cast<double>(ports * ports));
  const auto least = std::min<double>(static_cast<double>(kind->least_flows), most);
  const double flows = log_uniform(rng, least, most + 0.999);
  const auto limit = static_cast<double>(ports);
  const auto senders = static_cast<std::size_t>(
      std::clamp(std::round(log_uniform(rng, std::max(1.0, flows / limit), std::min(flows, limit))), 1.0, limit));
  const auto receivers =
      static_cast<std::size_t>(std::clamp(std::round(flows / static_cast<double>(senders)), 1.0, limit));
  CoflowSpec spec;
  const auto from = draw(rng, ports, senders);
  for (const PortId dst : draw(rng, ports, receivers)) {
    const double bytes = kMb * log_uniform(rng, kind->least_mb, kind->most_mb);
    for (const PortId src : from) spec.flows.push_back({src, dst, bytes});
  }
  return spec;
}

}  // namespace

Result<GeneratorOptions> parse_generator(const std::string& text) {
  GeneratorOptions options;
  constexpr const char* kAllowed =
      "ports (2 to 4096), coflows (1 to 1000000), load (0.001 to 100; 0: all at once), seed (0 to 2^53), as "
      "ports=150,coflows=500,load=0.9,seed=1";
  const Key keys[] = {{"ports", 2, 4096, true, into(options.ports)},
                      {"coflows", 1, 1e6, true, into(options.coflows)},
                      {"load", 0, 100, false, into(options.load)},
                      {"seed", 0, 0x1p53, true, into(options.seed)}};
  if (const auto ok = read_keys(text, keys, kAllowed); !ok) return tl::unexpected(ok.error());
  const auto wrong = [&](const std::string& what) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("{}; allowed: {}", what, kAllowed));
  };
  if (options.load > 0 && options.load < 0.001) return wrong(fmt::format("'load={}' cannot be", options.load));
  constexpr double kMostFlows = 2e7, kMeanFlows = 250;  // of a coflow, as they are made
  if (static_cast<double>(options.coflows) * kMeanFlows > kMostFlows) {
    return wrong(fmt::format("coflows={} would be more than {:.0e} flows", options.coflows, kMostFlows));
  }
  return options;
}

Trace generate(const GeneratorOptions& options, double bytes_per_s) {
  Rng rng(options.seed);
  Trace trace;
  trace.name = fmt::format("generated: ports={},coflows={},load={},seed={}", options.ports, options.coflows,
                           options.load, options.seed);
  trace.ports = options.ports;
  std::vector<double> bytes(2 * options.ports, 0);
  for (std::size_t i = 0; i < options.coflows; ++i) {
    trace.coflows.push_back(make_coflow(rng, options.ports));
    trace.coflows.back().label = i + 1;
    for (const auto& flow : trace.coflows.back().flows) {
      bytes[flow.src] += flow.bytes;
      bytes[options.ports + flow.dst] += flow.bytes;
    }
  }
  if (options.load <= 0) return trace;
  const double span_s = *std::max_element(bytes.begin(), bytes.end()) / bytes_per_s / options.load;
  std::vector<double> arrivals(options.coflows);
  for (double& arrival : arrivals) arrival = rng.uniform();
  std::sort(arrivals.begin(), arrivals.end());
  // From the first to the last: the load is exact.
  const double first = arrivals.front(), most = std::max(arrivals.back() - first, 1e-12);
  for (std::size_t i = 0; i < options.coflows; ++i) {
    const double at_ns = (arrivals[i] - first) / most * span_s * 1e9;
    trace.coflows[i].arrival = TimePoint(Duration(static_cast<Duration::rep>(at_ns)));
  }
  return trace;
}

}  // namespace clustar::bench::coflow
