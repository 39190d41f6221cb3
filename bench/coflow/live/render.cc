// A performance as text and JSON.
#include "bench/coflow/render.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "bench/coflow/live/play.h"
#include "bench/fabric/spec.h"

namespace clustar::bench::coflow::live {
namespace {

using nlohmann::json;

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

// Of two arms, round by round, and of their simulations. A figure of 0 is none.
template <class Figure>
Gain gain_by(const Performance& performance, std::size_t arm, Figure figure) {
  const Played &first = performance.arms.front(), &one = performance.arms[arm];
  std::vector<double> ratios;
  for (std::size_t round = 0; round < one.rounds.size(); ++round) {
    const double before = figure(first.rounds[round]), now = figure(one.rounds[round]);
    if (before > 0 && now > 0) ratios.push_back(before / now);
  }
  Gain gain;
  if (!ratios.empty()) {
    gain.median = median(ratios);
    gain.least = *std::ranges::min_element(ratios);
    gain.most = *std::ranges::max_element(ratios);
  }
  if (first.simulated && one.simulated) {
    const double before = figure(*first.simulated), now = figure(*one.simulated);
    if (before > 0 && now > 0) gain.simulated = before / now;
  }
  return gain;
}

template <class Figure>
double median_of(const std::vector<Summary>& rounds, Figure figure) {
  std::vector<double> values;
  for (const Summary& one : rounds) values.push_back(figure(one));
  return median(values);
}

std::string gain_text(const Gain& gain) {
  if (gain.median <= 0) return "-";
  return fmt::format("{:.2f} [{:.2f}, {:.2f}]", gain.median, gain.least, gain.most);
}

std::string reached(const Gain& gain) {
  return gain.simulated > 0 && gain.median > 0 ? fmt::format("{:.2f}", gain.median / gain.simulated) : "-";
}

std::string simulated(double value) { return value > 0 ? fmt::format("{:.2f}", value) : "-"; }

std::string coflow_table(const Performance& performance) {
  const std::string first = performance.arms.front().arm.name + "/";
  std::string out = fmt::format("\n{:<17}{:>10}{:>10}{:>10}{:>10}{:>22}{:>12}{:>10}\n", "cct, s", "average", "median",
                                "p95", "makespan", first + " [all rounds]", "simulated", "reached");
  for (std::size_t i = 0; i < performance.arms.size(); ++i) {
    const Played& one = performance.arms[i];
    const auto of = [&](auto figure) { return median_of(one.rounds, figure); };
    const Gain gain = gain_of(performance, i);
    out +=
        fmt::format("{:<17}{:>10.3f}{:>10.3f}{:>10.3f}{:>10.2f}{:>22}{:>12}{:>10}\n", one.arm.name,
                    of([](const Summary& s) { return s.average_s; }), of([](const Summary& s) { return s.median_s; }),
                    of([](const Summary& s) { return s.p95_s; }), of([](const Summary& s) { return s.makespan_s; }),
                    gain_text(gain), simulated(gain.simulated), reached(gain));
    if (one.simulated) {
      out +=
          fmt::format("{:<17}{:>10.3f}{:>10.3f}{:>10.3f}{:>10.2f}  {}\n", "  simulated", one.simulated->average_s,
                      one.simulated->median_s, one.simulated->p95_s, one.simulated->makespan_s, one.simulated->policy);
    }
  }
  return out;
}

std::string job_table(const Performance& performance) {
  const std::string first = performance.arms.front().arm.name + "/";
  std::string out;
  const auto& jobs = performance.arms.front().rounds.front().jobs;
  for (std::size_t job = 0; job < jobs.size(); ++job) {
    out += fmt::format("\n{}: {} iterations of {:.3f} s alone\n{:<17}{:>12}{:>12}{:>22}{:>12}{:>10}\n", jobs[job].name,
                       jobs[job].iterations, jobs[job].alone_s, "  s", "all run", "mean", first + " [all rounds]",
                       "simulated", "reached");
    for (std::size_t i = 0; i < performance.arms.size(); ++i) {
      const Played& one = performance.arms[i];
      const Gain gain = job_gain_of(performance, i, job);
      out += fmt::format("  {:<15}{:>12.3f}{:>12.3f}{:>22}{:>12}{:>10}\n", one.arm.name,
                         median_of(one.rounds, [&](const Summary& s) { return s.jobs[job].contended_s; }),
                         median_of(one.rounds, [&](const Summary& s) { return s.jobs[job].mean_iteration_s; }),
                         gain_text(gain), simulated(gain.simulated), reached(gain));
    }
  }
  return out;
}

double mean_completion_s(const Summary& one) { return mean_over(one.jobs, &JobSummary::completion_s); }

// Of jobs that wait for GPUs: averages over them, and when each was done.
std::string queue_table(const Performance& performance) {
  const std::string first = performance.arms.front().arm.name + "/";
  std::string out = fmt::format("\n{:<17}{:>12}{:>10}{:>10}{:>10}{:>22}{:>12}{:>10}\n", "mean over jobs", "completion",
                                "waited", "/alone", "makespan", first + " [all rounds]", "simulated", "reached");
  const auto waited = [](const Summary& one) { return mean_over(one.jobs, &JobSummary::waited_s); };
  const auto slowdown = [](const Summary& one) { return mean_over(one.jobs, &JobSummary::slowdown); };
  for (std::size_t i = 0; i < performance.arms.size(); ++i) {
    const Played& one = performance.arms[i];
    const Gain gain = completion_gain_of(performance, i);
    out += fmt::format("{:<17}{:>12.3f}{:>10.3f}{:>10.3f}{:>10.2f}{:>22}{:>12}{:>10}\n", one.arm.name,
                       median_of(one.rounds, mean_completion_s), median_of(one.rounds, waited),
                       median_of(one.rounds, slowdown),
                       median_of(one.rounds, [](const Summary& s) { return s.makespan_s; }), gain_text(gain),
                       simulated(gain.simulated), reached(gain));
    if (!one.simulated) continue;
    out += fmt::format("{:<17}{:>12.3f}{:>10.3f}{:>10.3f}{:>10.2f}  {}\n", "  simulated",
                       mean_completion_s(*one.simulated), waited(*one.simulated), slowdown(*one.simulated),
                       one.simulated->makespan_s, one.simulated->policy);
  }
  out += fmt::format("\n{:<32}{:>10}{:>12}{:>12}", "completion, s", "submitted", "iterations", "of, alone");
  for (const Played& one : performance.arms) out += fmt::format("{:>14}", one.arm.name);
  const auto& jobs = performance.arms.front().rounds.front().jobs;
  for (std::size_t job = 0; job < jobs.size(); ++job) {
    out += fmt::format("\n{:<32}{:>10.2f}{:>12}{:>12.4f}", jobs[job].name, jobs[job].submitted_s, jobs[job].iterations,
                       jobs[job].alone_s);
    for (const Played& one : performance.arms) {
      out +=
          fmt::format("{:>14.2f}", median_of(one.rounds, [&](const Summary& s) { return s.jobs[job].completion_s(); }));
    }
  }
  return out + "\n";
}

json job_row(const JobSummary& job) {
  return {{"name", job.name},
          {"iterations", job.iterations},
          {"alone_s", job.alone_s},
          {"mean_iteration_s", job.mean_iteration_s},
          {"contended_iteration_s", job.contended_s},
          {"submitted_s", job.submitted_s},
          {"began_s", job.began_s},
          {"ended_s", job.ended_s}};
}

json round_row(const Summary& one) {
  json row{{"average_cct_s", one.average_s}, {"median_cct_s", one.median_s}, {"p95_cct_s", one.p95_s},
           {"p99_cct_s", one.p99_s},         {"makespan_s", one.makespan_s}, {"mean_slowdown", one.slowdown_mean},
           {"coflows", one.coflows},         {"policy", one.policy}};
  for (const JobSummary& job : one.jobs) row["jobs"].push_back(job_row(job));
  if (!one.jobs.empty()) row["mean_completion_s"] = mean_completion_s(one);
  if (!one.each.empty()) row["per_coflow"] = coflows_json(one.each);
  return row;
}

json gain_row(const Gain& gain) {
  json row{{"median", gain.median},
           {"least", gain.least},
           {"most", gain.most},
           {"simulated", nullptr},
           {"reached", nullptr}};
  if (gain.simulated <= 0) return row;
  row["simulated"] = gain.simulated;
  row["reached"] = gain.median / gain.simulated;
  return row;
}

}  // namespace

Gain gain_of(const Performance& performance, std::size_t arm) {
  return gain_by(performance, arm, [](const Summary& one) { return one.average_s; });
}

Gain job_gain_of(const Performance& performance, std::size_t arm, std::size_t job) {
  return gain_by(performance, arm, [job](const Summary& one) { return one.jobs[job].contended_s; });
}

Gain completion_gain_of(const Performance& performance, std::size_t arm) {
  return gain_by(performance, arm, mean_completion_s);
}

std::string text(const Performance& performance) {
  std::string out = fmt::format("{}: {} hosts at {} ({:.4g} Mbit/s of payload), sizes as at {:.4g} Gbit/s",
                                performance.workload, performance.hosts, fabric::rate_text(performance.rate_bps),
                                performance.line_mbps, performance.trace_gbps);
  if (performance.load.busiest > 0) {
    out += fmt::format(", load {:.2f} at the busiest port, {:.2f} on average", performance.load.busiest,
                       performance.load.mean);
  }
  if (performance.left_out > 0) out += fmt::format("; {} flows within a host left out", performance.left_out);
  out += "\n";
  if (performance.gpus_per_host > 0) {
    const double sizes = performance.trace_gbps * 1e9 / static_cast<double>(performance.rate_bps);
    out += fmt::format("{}; hosts of {} GPUs, jobs wait first come first served\n{}",
                       scales_text(performance.scale, sizes), performance.gpus_per_host, queue_table(performance));
  } else {
    out += performance.jobs ? job_table(performance) : coflow_table(performance);
  }
  out +=
      "\nreached: the gain over the simulated one. Spread: all rounds, each against the first arm of the same round.\n";
  if (!performance.incomplete.empty()) out += "INCOMPLETE: " + performance.incomplete + "\n";
  return out;
}

json to_json(const Performance& performance) {
  json rows = json::array();
  for (std::size_t i = 0; i < performance.arms.size(); ++i) {
    const Played& one = performance.arms[i];
    json row{{"arm", one.arm.name}, {"what", one.arm.what}, {"simulated", nullptr}, {"rounds", json::array()}};
    for (const Summary& round : one.rounds) row["rounds"].push_back(round_row(round));
    if (one.simulated) row["simulated"] = round_row(*one.simulated);
    row["gain"] = gain_row(gain_of(performance, i));
    if (performance.gpus_per_host > 0) row["completion_gain"] = gain_row(completion_gain_of(performance, i));
    if (performance.jobs) {
      for (std::size_t job = 0; job < one.rounds.front().jobs.size(); ++job) {
        row["job_gains"].push_back(gain_row(job_gain_of(performance, i, job)));
      }
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

json workload_json(const Performance& performance) {
  return {{"name", performance.workload},
          {"hosts", performance.hosts},
          {"rate_bps", performance.rate_bps},
          {"mtu", performance.mtu},
          {"payload_mbps", performance.line_mbps},
          {"trace_gbps", performance.trace_gbps},
          {"gpus_per_host", performance.gpus_per_host},
          {"scale", performance.scale},
          {"load", {{"busiest", performance.load.busiest}, {"mean", performance.load.mean}}},
          {"flows_left_out", performance.left_out},
          {"incomplete", performance.incomplete}};
}

}  // namespace clustar::bench::coflow::live
