// A sweep as text and JSON.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "bench/coflow/page_parts.h"
#include "bench/coflow/sweep.h"

namespace clustar::bench::coflow {
namespace {

double mean_over_seeds(const Sweep& sweep, const std::string& policy, double load, double SweepRun::*figure) {
  double sum = 0, count = 0;
  for (const SweepRun& run : sweep.runs) {
    if (run.policy != policy || run.load != load) continue;
    sum += run.*figure;
    ++count;
  }
  return count > 0 ? sum / count : 0;
}

// A worst seed that is worse than fair sharing is marked.
std::string pair_text(const Ratio& ratio) {
  return fmt::format("{:>9.2f}{:>7.3f}{}", ratio.mean, ratio.least, ratio.least < kWorseBelow ? '!' : ' ');
}

std::string counts_text(const Sweep& sweep) {
  std::string out = fmt::format("\n{:<30}", fmt::format("worse, of {} runs (least)", sweep.loads.size() * sweep.seeds));
  for (const Figure& figure : kFigures) out += fmt::format("{:>16} ", figure.name);
  for (const std::string& policy : sweep.policies) {
    out += fmt::format("\n{:<30}", policy);
    for (const Figure& figure : kFigures) {
      const Ratio ratio = ratio_of(sweep, policy, figure);
      out += fmt::format("{:>16}{}", fmt::format("{} ({:.3f})", ratio.worse, ratio.least), ratio.worse > 0 ? '!' : ' ');
    }
  }
  return out + "\n";
}

}  // namespace

std::string text(const Sweep& sweep) {
  std::string out = fmt::format("generated: {} coflows, {} ports of {:.3g} Gbit/s, seeds 1 to {}, rules exact\n\n",
                                sweep.coflows, sweep.ports, sweep.port_gbps, sweep.seeds);
  out += fmt::format("{:<6}{:<24}", "load", "maxmin's over");
  for (const Figure& figure : kFigures) out += fmt::format("{:>9}{:>7} ", figure.name, "worst");
  out += fmt::format("{:>12}\n", "slowdown");
  for (const double load : sweep.loads) {
    for (const std::string& policy : sweep.policies) {
      out += fmt::format("{:<6}{:<24}", load, policy);
      for (const Figure& figure : kFigures) out += pair_text(ratio_of(sweep, policy, figure, load));
      out += fmt::format("{:>12.2f}\n", mean_over_seeds(sweep, policy, load, &SweepRun::slowdown));
    }
    out += fmt::format("{:<6}{:<24}{:>80.2f}\n", load, kBaseline,
                       mean_over_seeds(sweep, kBaseline, load, &SweepRun::slowdown));
  }
  return out + counts_text(sweep) +
         "\nmaxmin's over: the figure under max-min fair sharing over that under the policy, for the same trace; mean "
         "over\nseeds, and the worst seed. Below 1, marked !, the policy is worse. average, p95, p99: of completion "
         "times.\nslowdown: mean over coflows of the completion time over what it takes alone; in the last column "
         "itself.\n";
}

nlohmann::json to_json(const Sweep& sweep) {
  nlohmann::json results = nlohmann::json::array();
  for (const double load : sweep.loads) {
    for (const std::string& policy : sweep.policies) {
      nlohmann::json row{{"load", load}, {"policy", policy}};
      for (const Figure& figure : kFigures) {
        const Ratio ratio = ratio_of(sweep, policy, figure, load);
        row[std::string(figure.key) + "_ratio"] = {{"mean", ratio.mean},
                                                   {"least", ratio.least},
                                                   {"most", ratio.most},
                                                   {"runs", ratio.runs},
                                                   {"worse_runs", ratio.worse}};
      }
      row["average_cct_s"] = mean_over_seeds(sweep, policy, load, &SweepRun::average_s);
      row["mean_slowdown"] = mean_over_seeds(sweep, policy, load, &SweepRun::slowdown);
      row["maxmin_average_cct_s"] = mean_over_seeds(sweep, kBaseline, load, &SweepRun::average_s);
      row["maxmin_mean_slowdown"] = mean_over_seeds(sweep, kBaseline, load, &SweepRun::slowdown);
      results.push_back(std::move(row));
    }
  }
  return results;
}

nlohmann::json context_json(const Sweep& sweep) {
  nlohmann::json runs = nlohmann::json::array();
  for (const SweepRun& run : sweep.runs) {
    runs.push_back({{"load", run.load},
                    {"seed", run.seed},
                    {"policy", run.policy},
                    {"average_cct_s", run.average_s},
                    {"p95_cct_s", run.p95_s},
                    {"p99_cct_s", run.p99_s},
                    {"mean_slowdown", run.slowdown},
                    {"cpu_s", run.cpu_s},
                    {"refill_ms", run.refill_ms}});
  }
  return {{"workload",
           {{"ports", sweep.ports},
            {"coflows", sweep.coflows},
            {"port_gbps", sweep.port_gbps},
            {"seeds", sweep.seeds},
            {"loads", sweep.loads},
            {"policies", sweep.policies}}},
          {"runs", runs}};
}

}  // namespace clustar::bench::coflow
