#include "bench/ab/jobs/results.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "bench/ab/jobs/queue.h"
#include "bench/ab/results.h"
#include "bench/ab/verdict.h"
#include "bench/coflow/render.h"

namespace clustar::bench::ab::jobs {
namespace {

using nlohmann::json;

// What one round has.
struct Round {
  std::array<const Run*, 2> arms{};
  std::vector<const Run*> alone{};
};
struct Measured {
  std::array<std::optional<Together>, 2> arms{};
  std::array<const Run*, 2> runs{};
};

json ratio_json(const std::vector<double>& a, const std::vector<double>& b) {
  const auto ratio = ratio_of(a, b);
  if (!ratio) return nullptr;
  return {{"ratio", ratio->ratio}, {"low", ratio->low}, {"high", ratio->high}};
}

// Runs that ended well, by round.
std::map<int, Round> rounds_of(const JobsPlan& plan, const JobsOutcomes& outcomes) {
  std::map<int, Round> rounds;
  for (const Run& run : outcomes.runs) {
    if (!run.failure.empty()) continue;
    Round& round = rounds[run.round];
    round.alone.resize(plan.jobs.size());
    (run.slot.alone ? round.alone[*run.slot.alone] : round.arms[run.slot.arm]) = &run;
  }
  return rounds;
}

// Either both arms by what they did in common or both by whole runs: else they were not to be compared.
bool in_common(const Round& round) {
  return std::ranges::all_of(round.arms,
                             [](const Run* run) { return run == nullptr || common_window(run->jobs).has_value(); });
}

std::vector<Measured> measured_of(const std::map<int, Round>& rounds) {
  std::vector<Measured> all;
  for (const auto& [number, round] : rounds) {
    std::vector<std::optional<JobRun>> alone;
    for (const Run* run : round.alone) alone.push_back(run == nullptr ? std::nullopt : std::optional(run->jobs[0]));
    Measured measured;
    for (std::size_t arm = 0; arm < 2; ++arm) {
      if (round.arms[arm] == nullptr) continue;
      measured.runs[arm] = round.arms[arm];
      measured.arms[arm] = together(round.arms[arm]->jobs, alone, in_common(round));
    }
    all.push_back(std::move(measured));
  }
  return all;
}

using Value = std::function<std::optional<double>(const Together&)>;

std::vector<double> values_of(const std::vector<Measured>& rounds, std::size_t arm, const Value& value) {
  std::vector<double> values;
  for (const Measured& round : rounds) {
    if (!round.arms[arm]) continue;
    if (const auto one = value(*round.arms[arm])) values.push_back(*one);
  }
  return values;
}

// Of the rounds that both arms have.
json b_over_a(const std::vector<Measured>& rounds, const Value& value) {
  std::vector<double> a, b;
  for (const Measured& round : rounds) {
    if (!round.arms[0] || !round.arms[1]) continue;
    const auto of_a = value(*round.arms[0]), of_b = value(*round.arms[1]);
    if (!of_a || !of_b || !(*of_a > 0) || !(*of_b > 0)) continue;
    a.push_back(*of_a);
    b.push_back(*of_b);
  }
  return ratio_json(a, b);
}

Value relative(std::size_t job) {
  return
      [=](const Together& round) { return round.relative.empty() ? std::nullopt : std::optional(round.relative[job]); };
}
Value per_second(std::size_t job) {
  return [=](const Together& round) { return round.per_second[job]; };
}
Value over_jobs(double (*of)(const Together&)) {
  return [=](const Together& round) { return round.relative.empty() ? std::nullopt : std::optional(of(round)); };
}
double sum_relative(const Together& round) { return round.sum_relative(); }
double least_relative(const Together& round) { return round.least_relative(); }
double jain_of(const Together& round) { return jain(round.relative); }
std::optional<double> sum_per_second(const Together& round) {
  double sum = 0;
  for (const auto& value : round.per_second) {
    if (!value) return std::nullopt;
    sum += *value;
  }
  return sum;
}

// Of a queue: its figure in each run.
std::vector<double> queue_values(const std::vector<const Run*>& runs, std::size_t job, const char* key) {
  std::vector<double> values;
  for (const Run* run : runs) {
    if (run == nullptr) continue;
    if (const auto one = queue_figure(run->details[run->slot.alone ? 0 : job], key)) values.push_back(*one);
  }
  return values;
}

void add_queue(const JobsPlan& plan, std::size_t job, const std::vector<const Run*>& runs, json& row) {
  if (!plan.jobs[job].is_queue()) return;
  row["completion_s"] = spread_json(queue_values(runs, job, "mean_completion_s"));
  row["waited_s"] = spread_json(queue_values(runs, job, "mean_waited_s"));
  row["makespan_s"] = spread_json(queue_values(runs, job, "makespan_s"));
}

// Of the rounds that both arms have; null of a job that is no queue.
json completion_ratio(const std::vector<Measured>& rounds, std::size_t job) {
  std::vector<double> a, b;
  for (const Measured& round : rounds) {
    if (round.runs[0] == nullptr || round.runs[1] == nullptr) continue;
    const auto of_a = queue_figure(round.runs[0]->details[job], "mean_completion_s");
    const auto of_b = queue_figure(round.runs[1]->details[job], "mean_completion_s");
    if (!of_a || !of_b || !(*of_a > 0)) continue;
    a.push_back(*of_a);
    b.push_back(*of_b);
  }
  return ratio_json(a, b);
}

json arm_figures(const JobsPlan& plan, const std::vector<Measured>& rounds, std::size_t arm) {
  int whole = 0, common = 0;
  double dropped = 0;
  for (const Measured& round : rounds) {
    if (!round.arms[arm]) continue;
    ++whole;
    common += round.arms[arm]->in_common ? 1 : 0;
    dropped += static_cast<double>(round.runs[arm]->network.drops);
  }
  json jobs = json::array();
  for (std::size_t job = 0; job < plan.jobs.size(); ++job) {
    std::vector<double> done_s;
    for (const Measured& round : rounds) {
      if (!round.arms[arm]) continue;
      const JobRun& run = round.runs[arm]->jobs[job];
      done_s.push_back(run.ended_s - run.began_s);
    }
    std::vector<const Run*> runs;
    for (const Measured& round : rounds) runs.push_back(round.arms[arm] ? round.runs[arm] : nullptr);
    const auto step_s = [=](const Together& round) { return std::optional(round.step_s[job]); };
    jobs.push_back({{"job", plan.jobs[job].name},
                    {"per_second", spread_json(values_of(rounds, arm, per_second(job)))},
                    {"step_s", spread_json(values_of(rounds, arm, step_s))},
                    {"relative", spread_json(values_of(rounds, arm, relative(job)))},
                    {"done_s", spread_json(done_s)}});
    add_queue(plan, job, runs, jobs.back());
  }
  return {{"arm", arm == 0 ? "A" : "B"},
          {"rounds", whole},
          {"common_rounds", common},
          {"dropped", dropped},
          {"sum_relative", spread_json(values_of(rounds, arm, over_jobs(sum_relative)))},
          {"least_relative", spread_json(values_of(rounds, arm, over_jobs(least_relative)))},
          {"jain", spread_json(values_of(rounds, arm, over_jobs(jain_of)))},
          {"jobs", std::move(jobs)}};
}

json alone_figures(const JobsPlan& plan, const std::map<int, Round>& rounds) {
  json all = json::array();
  for (std::size_t job = 0; job < plan.jobs.size(); ++job) {
    std::vector<double> per_s, step_s;
    std::vector<const Run*> runs;
    for (const auto& [number, round] : rounds) {
      const Run* run = round.alone[job];
      runs.push_back(run);
      const auto speed = run == nullptr ? std::nullopt : speed_of(run->jobs[0], std::nullopt);
      if (!speed) continue;
      if (speed->per_second) per_s.push_back(*speed->per_second);
      step_s.push_back(speed->step_s);
    }
    all.push_back({{"job", plan.jobs[job].name}, {"per_second", spread_json(per_s)}, {"step_s", spread_json(step_s)}});
    add_queue(plan, job, runs, all.back());
  }
  return all;
}

json figures_of(const JobsPlan& plan, const std::map<int, Round>& rounds) {
  const auto measured = measured_of(rounds);
  json ratios = json::array(), completions = json::array();
  for (std::size_t job = 0; job < plan.jobs.size(); ++job) {
    ratios.push_back(b_over_a(measured, per_second(job)));
    completions.push_back(completion_ratio(measured, job));
  }
  const bool alike = std::all_of(plan.jobs.begin(), plan.jobs.end(),
                                 [&](const JobSpec& job) { return job.trains() == plan.jobs[0].trains(); });
  return {{"arms", {arm_figures(plan, measured, 0), arm_figures(plan, measured, 1)}},
          {"alone", alone_figures(plan, rounds)},
          {"b_over_a",
           {{"sum_relative", b_over_a(measured, over_jobs(sum_relative))},
            {"least_relative", b_over_a(measured, over_jobs(least_relative))},
            {"sum_per_second", alike ? b_over_a(measured, sum_per_second) : json(nullptr)},
            {"jobs", std::move(ratios)},
            {"completion", std::move(completions)}}}};
}

json job_json(const JobsPlan& plan, const JobSpec& job) {
  json one{{"job", job.name},        {"kind", job.trains() ? "train" : "trace"},
           {"unit", job.unit()},     {"hosts", job.hosts},
           {"start_s", job.start_s}, {"settings", job.settings}};
  if (const auto* training = std::get_if<Training>(&job.work)) {
    one["model"] = training->model;
    one["batch"] = batch_of(plan, *training);
    one["epochs"] = epochs_of(plan, *training);
    one["all_reduce"] = training->all_reduce;
    one["what"] = fmt::format("{}, batch {}, {}", training->model, batch_of(plan, *training), training->all_reduce);
  } else {
    const auto& traffic = std::get<Traffic>(job.work);
    const std::string file = traffic.path.substr(traffic.path.rfind('/') + 1);
    one["model"] = nullptr;
    one["trace"] = file;
    one["source"] = traffic.source;
    one["gbps"] = traffic.gbps;
    one["what"] = file + (traffic.id ? ", job " + *traffic.id : std::string());
    if (traffic.queue) {
      const double smaller = traffic.gbps * 1e9 / static_cast<double>(std::max<std::uint64_t>(plan.fabric.rate_bps, 1));
      one["queue"] = {{"jobs", traffic.queue->jobs},
                      {"gpus_per_host", traffic.queue->gpus_per_host},
                      {"scale", traffic.queue->scale},
                      {"sizes_divided_by", smaller}};
      one["what"] = fmt::format("{}, a queue of {} jobs, {} GPUs a host; {}", file, traffic.queue->jobs,
                                traffic.queue->gpus_per_host, coflow::scales_text(traffic.queue->scale, smaller));
    }
  }
  return one;
}

// `by_window`: its round is measured so. Of a run that failed or was of one job alone it says nothing.
json run_json(const JobsPlan& plan, const Run& run, bool by_window) {
  json jobs = json::array();
  const bool well = run.failure.empty();
  const auto window = well && !run.slot.alone && by_window ? common_window(run.jobs) : std::nullopt;
  for (std::size_t i = 0; i < run.jobs.size(); ++i) {
    const JobRun& job = run.jobs[i];
    const auto speed = well ? speed_of(job, window) : std::nullopt;
    jobs.push_back({{"job", job.name},
                    {"began_s", job.began_s},
                    {"ended_s", job.ended_s},
                    {"steps", job.step_s.size()},
                    {"counted_steps", speed ? json(speed->steps) : json(nullptr)},
                    {"step_s", speed ? json(speed->step_s) : json(nullptr)},
                    {"per_second", speed && speed->per_second ? json(*speed->per_second) : json(nullptr)},
                    {"failed", job.failure.empty() ? json(nullptr) : json(job.failure)},
                    {"train", run.details[i]}});
  }
  return {{"round", run.round + 1},
          {"what", name_of(plan, run.slot)},
          {"arm", run.slot.arm == 0 ? "A" : "B"},
          {"alone", run.slot.alone.has_value()},
          {"failed", well ? json(nullptr) : json(run.failure)},
          {"wall_s", run.wall_s},
          {"window_s", window ? json{window->from_s, window->to_s} : json(nullptr)},
          {"packets", run.network.packets},
          {"bytes", run.network.bytes},
          {"dropped", run.network.drops},
          {"jobs", std::move(jobs)}};
}

json warnings_of(const JobsPlan& plan, const JobsOutcomes& outcomes, const json& figures) {
  json warnings = json::array();
  for (const Run& run : outcomes.runs) {
    if (!run.failure.empty()) {
      warnings.push_back(fmt::format("round {}, {} failed: {}", run.round + 1, name_of(plan, run.slot), run.failure));
    }
  }
  for (const std::string& name : outcomes.left_out)
    warnings.push_back(name + " failed twice and was left out of the rest");
  if (!outcomes.ended_by.empty()) warnings.push_back("ended early: " + outcomes.ended_by);
  for (const json& arm : figures["arms"]) {
    const int apart = arm["rounds"].get<int>() - arm["common_rounds"].get<int>();
    if (apart == 0) continue;
    warnings.push_back(fmt::format(
        "{} of {} rounds of {}: under an arm jobs had fewer than {} steps together, so whole runs are compared; "
        "let them last longer, or start together",
        apart, arm["rounds"].get<int>(), arm["arm"].get<std::string>(), kLeastSteps));
  }
  const unsigned cores = std::thread::hardware_concurrency();
  if (cores > 0 && plan.processes > cores) {
    warnings.push_back(fmt::format(
        "{} processes share {} cores: jobs take each other's time there, too; keep --rate so low that the line "
        "is the limit",
        plan.processes, cores));
  }
  if (plan.rounds < kRoundsForVerdict) {
    warnings.push_back(fmt::format("{} of at least {} rounds: ranges say little", plan.rounds, kRoundsForVerdict));
  }
  return warnings;
}

}  // namespace

json to_json(const JobsPlan& plan, const JobsOutcomes& outcomes) {
  json jobs = json::array(), runs = json::array(), arms = json::array();
  for (const JobSpec& job : plan.jobs) jobs.push_back(job_json(plan, job));
  const auto rounds = rounds_of(plan, outcomes);
  int failed = 0;
  for (const Run& run : outcomes.runs) {
    const auto round = rounds.find(run.round);
    runs.push_back(run_json(plan, run, round != rounds.end() && in_common(round->second)));
    failed += run.failure.empty() ? 0 : 1;
  }
  for (const Arm& arm : plan.arms) {
    arms.push_back({{"name", arm.name}, {"settings", arm.settings}, {"plugin", arm.plugin}});
  }
  json figures = figures_of(plan, rounds);
  json warnings = warnings_of(plan, outcomes, figures);
  return {
      {"options",
       {{"file", plan.file}, {"rounds", plan.rounds}, {"limit_s", plan.limit_s}, {"seed", plan.training.train.seed}}},
      {"place", {{"text", fabric::describe(plan.fabric)}, {"hosts", plan.fabric.hosts}}},
      {"arms", std::move(arms)},
      {"jobs", std::move(jobs)},
      {"runs", std::move(runs)},
      {"figures", std::move(figures)},
      {"warnings", std::move(warnings)},
      {"failed_runs", failed},
      {"left_out", outcomes.left_out},
      {"ended_by", outcomes.ended_by.empty() ? json(nullptr) : json(outcomes.ended_by)},
      {"seconds", outcomes.seconds}};
}

json rows(const json& outcome) {
  json all = json::array();
  const json& figures = outcome.at("figures");
  const auto median = [](const json& spread) { return spread.is_null() ? json(nullptr) : spread.at("median"); };
  for (std::size_t i = 0; i < outcome.at("jobs").size(); ++i) {
    const json& job = outcome["jobs"].at(i);
    const json& a = figures.at("arms").at(0).at("jobs").at(i);
    const json& b = figures.at("arms").at(1).at("jobs").at(i);
    const json& ratio = figures.at("b_over_a").at("jobs").at(i);
    const auto part = [&](const char* key) { return ratio.is_null() ? json(nullptr) : ratio.at(key); };
    all.push_back({{"job", job.at("job")},
                   {"model", job.at("model")},
                   {"unit", job.at("unit")},
                   {"baseline", outcome.at("arms").at(0).at("name")},
                   {"candidate", outcome.at("arms").at(1).at("name")},
                   {"per_second_a", median(a.at("per_second"))},
                   {"per_second_b", median(b.at("per_second"))},
                   {"relative_a", median(a.at("relative"))},
                   {"relative_b", median(b.at("relative"))},
                   {"ratio", part("ratio")},
                   {"ratio_low", part("low")},
                   {"ratio_high", part("high")}});
  }
  return all;
}

}  // namespace clustar::bench::ab::jobs
