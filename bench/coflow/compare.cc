#include "bench/coflow/compare.h"

#include <fmt/format.h>

#include <algorithm>

#include "bench/coflow/coflowsim_trace.h"
#include "bench/coflow/compare_jobs.h"
#include "bench/coflow/traits.h"

namespace clustar::bench::coflow {
namespace {

using clustar::coflow::find_policy;
using clustar::coflow::Policy;
using clustar::coflow::PolicyDefaults;

constexpr double kBitsPerByte = 8;

Duration refill_for(const CompareOptions& options, double gbps) {
  constexpr double kNsAtOneGbps = 100e6;
  return options.refill.value_or(Duration(static_cast<Duration::rep>(kNsAtOneGbps / gbps)));
}

struct Setting {
  Rules rules;
  PolicyDefaults defaults;
  bool coflowsim = false;
};

Setting setting_of(const CompareOptions& options) {
  Setting setting;
  setting.coflowsim = options.rules != "exact";
  if (!setting.coflowsim) {
    setting.rules.port_rate = options.port_gbps * 1e9 / kBitsPerByte;
    setting.rules.refill = refill_for(options, options.port_gbps);
    return setting;
  }
  constexpr double kStockBits = 1e-3, kNoiseFreeBits = 1000;
  setting.rules = coflowsim_rules();
  setting.rules.refill = refill_for(options, 1);
  setting.rules.tick_by_tick = options.rules == "coflowsim-stock";
  setting.defaults.full_below = (setting.rules.tick_by_tick ? kStockBits : kNoiseFreeBits) / kBitsPerByte;
  return setting;
}

// Bytes of a second of 1,000 ms.
double bytes_per_s(const Rules& rules) {
  return rules.port_rate / std::chrono::duration<double>(rules.rate_unit).count();
}

bool gathers(const Policy& policy) { return traits_of(policy.spec).shares_ports; }

// What serves one flow at a time per port, or takes no notice of flows, has nothing to gather.
Duration refill_of(const Policy& policy, const Setting& setting) {
  if (!gathers(policy)) return Duration::zero();
  constexpr Duration kFairTicks =
      std::chrono::milliseconds(32);  // 0.01 % of the average from 8 ms, a quarter of the CPU
  if (policy.spec == "fair") return std::min(setting.rules.refill, kFairTicks);
  return setting.rules.refill;
}

Result<std::vector<Policy>> policies_of(const CompareOptions& options, const PolicyDefaults& defaults) {
  std::vector<std::string> specs;
  for (const std::string& asked : options.policies.empty() ? std::vector<std::string>{"match"} : options.policies) {
    if (asked != "all") {
      specs.push_back(asked);
      continue;
    }
    for (const auto& info : clustar::coflow::policies()) specs.emplace_back(info.name);
  }
  std::vector<Policy> policies;
  for (const std::string& spec : specs) {
    const auto found = find_policy(spec, defaults);
    if (!found) return fail(found.error().code, "--policy: " + found.error().message);
    policies.push_back(*found);
  }
  return policies;
}

// What the simulator cannot do, or would do without effect.
Result<void> check(const Trace& trace, const std::vector<Policy>& policies, const CompareOptions& options,
                   const Rules& rules) {
  if (options.refill && std::none_of(policies.begin(), policies.end(), gathers)) {
    return fail(
        ErrorCode::kInvalidArgument,
        "--refill-ms: no policy of these gathers the ends of flows; allowed: with one that shares ports, as maxmin, "
        "bssi and dclas");
  }
  const bool deadlines = std::any_of(trace.coflows.begin(), trace.coflows.end(),
                                     [](const auto& coflow) { return coflow.deadline.has_value(); });
  for (const Policy& policy : policies) {
    if (policy.needs_deadlines && !deadlines) {
      return fail(
          ErrorCode::kInvalidArgument,
          fmt::format("--policy {}: no coflow has a deadline; allowed: with --rules coflowsim, which gives them",
                      policy.spec));
    }
  }
  double bytes = 0;
  for (const auto& coflow : trace.coflows) {
    for (const auto& flow : coflow.flows) bytes += flow.bytes;
  }
  const double last_s =
      trace.coflows.empty() ? 0 : std::chrono::duration<double>(trace.coflows.back().arrival - TimePoint{}).count();
  const double longest_s = last_s + bytes / bytes_per_s(rules);
  const double most_s = rules.tick_by_tick ? 1e6 : 1e9;
  if (longest_s <= most_s) return {};
  return fail(ErrorCode::kInvalidArgument, fmt::format("{}: it may take {:.2g} s of simulated time; allowed: {:.0e}",
                                                       trace.name, longest_s, most_s));
}

}  // namespace

Result<Comparison> compare(const Source& source, const CompareOptions& options, const Say& say) {
  const Setting setting = setting_of(options);
  const auto policies = policies_of(options, setting.defaults);
  if (!policies) return tl::unexpected(policies.error());
  if (has_jobs(source)) {
    if (const auto ok = check({}, *policies, {}, setting.rules); !ok) return tl::unexpected(ok.error());
    return compare_jobs(source, options, *policies, say);
  }
  auto trace = trace_of(source, bytes_per_s(setting.rules), setting.coflowsim);
  if (!trace) return tl::unexpected(trace.error());
  if (setting.coflowsim) give_coflowsim_deadlines(*trace);
  if (const auto ok = check(*trace, *policies, options, setting.rules); !ok) return tl::unexpected(ok.error());
  Comparison comparison;
  comparison.workload = trace->name;
  comparison.ports = trace->ports;
  comparison.port_gbps = bytes_per_s(setting.rules) * kBitsPerByte / 1e9;
  comparison.load = load_of(*trace, bytes_per_s(setting.rules));
  comparison.rules = options.rules;
  for (const Policy& policy : *policies) {
    Rules rules = setting.rules;
    rules.refill = refill_of(policy, setting);
    TraceWorkload workload(*trace);
    const std::string which = fmt::format("[{}/{}] {}", comparison.policies.size() + 1, policies->size(), policy.spec);
    auto replayed = replay(workload, rules, policy, [&](std::size_t ended, std::size_t, TimePoint now) {
      say(fmt::format("{}: {} of {} coflows, {:.0f} s", which, ended, trace->coflows.size(),
                      std::chrono::duration<double>(now - TimePoint{}).count()),
          false);
    });
    if (!replayed) return fail(replayed.error().code, fmt::format("{}: {}", policy.spec, replayed.error().message));
    comparison.policies.push_back(summarize(policy.spec, options.rules, *replayed));
    if (options.per_coflow) comparison.policies.back().each = std::move(replayed->coflows);
    comparison.policies.back().refill_ms = std::chrono::duration<double, std::milli>(rules.refill).count();
    say(fmt::format("{}: {:.3f} s on average, {:.2f} s of CPU", which, comparison.policies.back().average_s,
                    comparison.policies.back().cpu_s),
        true);
  }
  return comparison;
}

}  // namespace clustar::bench::coflow
