// The text of results.h.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "bench/ab/jobs/results.h"

namespace clustar::bench::ab::jobs {
namespace {

using nlohmann::json;

std::string spread_text(const json& spread, int digits) {
  if (spread.is_null()) return "-";
  return fmt::format("{:.{}f} ({:.{}f} to {:.{}f})", spread["median"].get<double>(), digits,
                     spread["min"].get<double>(), digits, spread["max"].get<double>(), digits);
}

std::string ratio_text(const json& ratio) {
  if (ratio.is_null()) return "-";
  return fmt::format("{:.3f} ({:.3f} to {:.3f})", ratio["ratio"].get<double>(), ratio["low"].get<double>(),
                     ratio["high"].get<double>());
}

std::string line(const std::string& what, const std::string& alone, const std::string& a, const std::string& b,
                 const std::string& ratio = {}) {
  return fmt::format("  {:<24}{:>26}{:>26}{:>26}  {}\n", what, alone, a, b, ratio);
}

int digits_for(const json& spread) { return spread.is_null() || spread["median"].get<double>() >= 100 ? 0 : 2; }

std::string settings_text(const json& settings) {
  std::string text;
  for (const auto& [name, value] : settings.items()) text += fmt::format(" {}={}", name, value.get<std::string>());
  return text;
}

std::string job_lines(const json& outcome, std::size_t index) {
  const json& job = outcome["jobs"][index];
  const json& figures = outcome["figures"];
  const json& a = figures["arms"][0]["jobs"][index];
  const json& b = figures["arms"][1]["jobs"][index];
  const json& alone = figures["alone"][index];
  std::string hosts;
  for (const json& host : job["hosts"]) hosts += fmt::format("{}{}", hosts.empty() ? "" : " ", host.get<int>());
  std::string text =
      fmt::format("{}: {}; hosts {}{};{}\n", job["job"].get<std::string>(), job["what"].get<std::string>(), hosts,
                  job["start_s"] > 0 ? fmt::format("; starts after {} s", job["start_s"].get<double>()) : "",
                  settings_text(job["settings"]));
  const bool is_queue = a.contains("completion_s");
  if (!is_queue) {
    const int digits = digits_for(alone["per_second"].is_null() ? a["per_second"] : alone["per_second"]);
    text += line(job["unit"].get<std::string>() + "/s", spread_text(alone["per_second"], digits),
                 spread_text(a["per_second"], digits), spread_text(b["per_second"], digits),
                 ratio_text(figures["b_over_a"]["jobs"][index]));
  }
  text +=
      line("mean step, s", spread_text(alone["step_s"], 4), spread_text(a["step_s"], 4), spread_text(b["step_s"], 4));
  text += line("speed relative to alone", "1", spread_text(a["relative"], 3), spread_text(b["relative"], 3));
  text += line("start to end, s", "", spread_text(a["done_s"], 1), spread_text(b["done_s"], 1));
  if (!is_queue) return text;
  const auto queue = [&](const char* what, const char* key, const std::string& ratio) {
    text += line(what, spread_text(alone[key], 2), spread_text(a[key], 2), spread_text(b[key], 2), ratio);
  };
  queue("mean completion, s", "completion_s", ratio_text(figures["b_over_a"]["completion"][index]));
  queue("waited for GPUs, s", "waited_s", "");
  queue("last job done after, s", "makespan_s", "");
  return text;
}

// By which a run's line goes: so much a second, or where steps overlap how long one takes.
std::string speed_text(const JobSpec& job, const std::optional<Speed>& speed, const std::string& unit) {
  if (job.is_queue()) return fmt::format("{:.4f}{}", speed ? speed->step_s : 0, unit);
  const double per_second = speed ? speed->per_second.value_or(0) : 0;
  return fmt::format("{:.{}f}{}", per_second, job.trains() ? 0 : 2, unit);
}

}  // namespace

std::string run_line(const JobsPlan& plan, const Run& run, int done, int total) {
  std::string text = fmt::format("[{}/{}] round {}/{}  {:<20} {:>6.1f} s  ", done, total, run.round + 1, plan.rounds,
                                 name_of(plan, run.slot), run.wall_s);
  if (!run.failure.empty()) return text + "FAILED: " + run.failure;
  const auto window = run.slot.alone ? std::nullopt : common_window(run.jobs);
  for (std::size_t i = 0; i < run.jobs.size(); ++i) {
    const auto speed = speed_of(run.jobs[i], window);
    const auto in_all = speed_of(run.jobs[i], std::nullopt);
    const JobSpec& job = plan.jobs[run.slot.alone.value_or(i)];
    const std::string unit = job.is_queue() ? " s a step" : fmt::format(" {}/s", job.unit());
    text += fmt::format("{}{} {}", i == 0 ? "" : ", ", job.name, speed_text(job, speed, unit));
    // Which of them the table takes depends on the round's other arm, too.
    if (window) text += fmt::format(" together ({} in all)", speed_text(job, in_all, ""));
  }
  return text;
}

std::string table(const json& outcome) {
  const json& figures = outcome["figures"];
  const json& arms = figures["arms"];
  std::string text = fmt::format("\n{} jobs on {}; {} round{} in {:.0f} s\n", outcome["jobs"].size(),
                                 outcome["place"]["text"].get<std::string>(), outcome["options"]["rounds"].get<int>(),
                                 outcome["options"]["rounds"] == 1 ? "" : "s", outcome["seconds"].get<double>());
  for (std::size_t arm = 0; arm < 2; ++arm) {
    const json& one = outcome["arms"][arm];
    text += fmt::format("  {}  {}; rounds that ended well: {}\n", arm == 0 ? 'A' : 'B', one["name"].get<std::string>(),
                        arms[arm]["rounds"].get<int>());
  }
  text += "\n" + line("median (range)", "alone", "A", "B", "B/A (95 % interval)");
  for (std::size_t i = 0; i < outcome["jobs"].size(); ++i) text += job_lines(outcome, i);
  const json& ratios = figures["b_over_a"];
  text += "all jobs\n";
  if (!ratios["sum_per_second"].is_null()) {
    text += line("sum of " + outcome["jobs"][0]["unit"].get<std::string>() + "/s", "", "", "",
                 ratio_text(ratios["sum_per_second"]));
  }
  const auto both = [&](const char* what, const char* key, const std::string& ratio) {
    text += line(what, "", spread_text(arms[0][key], 3), spread_text(arms[1][key], 3), ratio);
  };
  both("sum of relative speeds", "sum_relative", ratio_text(ratios["sum_relative"]));
  both("least relative speed", "least_relative", ratio_text(ratios["least_relative"]));
  both("Jain's fairness of them", "jain", "");
  text += line("dropped at the switch", "", fmt::format("{:.0f}", arms[0]["dropped"].get<double>()),
               fmt::format("{:.0f}", arms[1]["dropped"].get<double>()));
  text += "\n  Steps count while all jobs are in theirs; alone is under A, in the same rounds.\n";
  for (const json& warning : outcome["warnings"]) text += "  warning: " + warning.get<std::string>() + "\n";
  return text;
}

}  // namespace clustar::bench::ab::jobs
