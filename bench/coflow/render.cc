#include "bench/coflow/render.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "bench/coflow/cdf.h"

namespace clustar::bench::coflow {
namespace {

const Summary* find(const Comparison& comparison, const std::string& policy) {
  const auto found = std::find_if(comparison.policies.begin(), comparison.policies.end(),
                                  [&](const Summary& one) { return one.policy == policy; });
  return found == comparison.policies.end() ? nullptr : &*found;
}

// Against the baseline that does without coflows and wastes nothing.
std::string gain(const Comparison& comparison, const Summary& one) {
  const Summary* fair = find(comparison, "maxmin");
  if (fair == nullptr || one.average_s <= 0) return "-";
  return fmt::format("{:.2f}x", fair->average_s / one.average_s);
}

std::string plain(double value) { return value >= 1e5 ? fmt::format("{:.0f}", value) : fmt::format("{:.6g}", value); }

}  // namespace

std::string scales_text(double times, double sizes) {
  return fmt::format("times between submissions and iterations 1/{} of the trace's, sizes 1/{}", plain(times),
                     plain(sizes));
}

nlohmann::json coflows_json(const std::vector<CoflowResult>& coflows) {
  nlohmann::json all = nlohmann::json::array();
  for (const CoflowResult& one : coflows) {
    nlohmann::json row{
        {"label", one.label},       {"arrival_s", std::chrono::duration<double>(one.arrival - TimePoint{}).count()},
        {"cct_s", nullptr},         {"slowdown", nullptr},
        {"bytes", one.bytes},       {"flows", one.flows},
        {"rejected", one.rejected}, {"late", one.late}};
    if (!one.rejected) row["cct_s"] = one.cct_s();
    if (!one.rejected && one.flows > 0) row["slowdown"] = one.cct_s() / one.isolated_s;
    all.push_back(std::move(row));
  }
  return all;
}

std::string text(const Comparison& comparison) {
  if (comparison.jobs) return jobs_text(comparison);
  std::string out = fmt::format("{}: {} ports of {:.3g} Gbit/s, rules {}", comparison.workload, comparison.ports,
                                comparison.port_gbps, comparison.rules);
  if (comparison.load.busiest > 0) {
    out += fmt::format(", load {:.2f} at the busiest port, {:.2f} on average", comparison.load.busiest,
                       comparison.load.mean);
  }
  if (comparison.load.busiest <= 0) out += ", all at once";
  out += fmt::format("\n\n{:<24}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>9}{:>9}\n", "completion time, s",
                     "average", "median", "p95", "p99", "max", "makespan", "slowdown", "maxmin/", "CPU s");
  for (const Summary& one : comparison.policies) {
    out += fmt::format("{:<24}{:>10.3f}{:>10.3f}{:>10.3f}{:>10.1f}{:>10.1f}{:>10.1f}{:>10.2f}{:>9}{:>9.2f}\n",
                       one.policy, one.average_s, one.median_s, one.p95_s, one.p99_s, one.max_s, one.makespan_s,
                       one.slowdown_mean, gain(comparison, one), one.cpu_s);
  }
  out += fmt::format("\n{:<24}", "average by kind, s");
  for (std::size_t bin = 0; bin < kBinNames.size(); ++bin) {
    const std::size_t count = comparison.policies.empty() ? 0 : comparison.policies.front().bin_coflows[bin];
    out += fmt::format("{:>16}", fmt::format("{} ({})", kBinNames[bin], count));
  }
  out += "\n";
  for (const Summary& one : comparison.policies) {
    out += fmt::format("{:<24}", one.policy);
    for (const double average : one.bin_average_s) out += fmt::format("{:>16.3f}", average);
    out += "\n";
  }
  // Deadlines matter to whom somebody asked to keep them.
  const bool rejects = std::any_of(comparison.policies.begin(), comparison.policies.end(),
                                   [](const Summary& one) { return one.rejected > 0; });
  for (const Summary& one : comparison.policies) {
    if (rejects) {
      out += fmt::format("{}: {} of {} coflows in time, {} rejected, since their deadlines cannot be kept\n",
                         one.policy, one.coflows - one.late, one.coflows, one.rejected);
    }
  }
  out +=
      "\nslowdown: mean over coflows of the completion time over what it takes alone. maxmin/: average completion time "
      "under max-min fair\nsharing over the policy's. S and L: longest flow below 5 MiB or not; N and W: up to 50 "
      "flows "
      "or more.\n";
  return out;
}

nlohmann::json to_json(const Comparison& comparison) {
  nlohmann::json results = nlohmann::json::array();
  for (const Summary& one : comparison.policies) {
    nlohmann::json bins;
    for (std::size_t bin = 0; bin < kBinNames.size(); ++bin) {
      bins[kBinNames[bin]] = {{"coflows", one.bin_coflows[bin]}, {"average_cct_s", one.bin_average_s[bin]}};
    }
    results.push_back({{"policy", one.policy},
                       {"rules", one.rules},
                       {"coflows", one.coflows},
                       {"rejected", one.rejected},
                       {"late", one.late},
                       {"average_cct_s", one.average_s},
                       {"weighted_average_cct_s", one.weighted_average_s},
                       {"median_cct_s", one.median_s},
                       {"p95_cct_s", one.p95_s},
                       {"p99_cct_s", one.p99_s},
                       {"max_cct_s", one.max_s},
                       {"makespan_s", one.makespan_s},
                       {"sum_cct_ms", one.sum_ms},
                       {"mean_slowdown", one.slowdown_mean},
                       {"p95_slowdown", one.slowdown_p95},
                       {"cdf_cct_s", cdf(one.ccts_s)},
                       {"cdf_slowdown", cdf(one.slowdowns)},
                       {"bins", bins},
                       {"refill_ms", one.refill_ms},
                       {"cpu_s", one.cpu_s},
                       {"allocations", one.allocations}});
    if (!one.each.empty()) results.back()["per_coflow"] = coflows_json(one.each);
    if (comparison.jobs) results.back()["jobs"] = jobs_json(one);
  }
  return results;
}

nlohmann::json workload_json(const Comparison& comparison) {
  nlohmann::json workload{{"name", comparison.workload},
                          {"ports", comparison.ports},
                          {"port_gbps", comparison.port_gbps},
                          {"load", {{"busiest", comparison.load.busiest}, {"mean", comparison.load.mean}}}};
  if (comparison.jobs) workload["gpus_per_port"] = comparison.gpus_per_port;
  return workload;
}

}  // namespace clustar::bench::coflow
