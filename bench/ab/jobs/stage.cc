#include "bench/ab/jobs/stage.h"

#include <fmt/format.h>
#include <string.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "bench/ab/interrupt.h"
#include "bench/trainer/launcher.h"
#include "bench/trainer/record.h"

namespace clustar::bench::ab::jobs {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::json;
constexpr std::chrono::milliseconds kLook{50};   // for what ends all jobs
constexpr std::chrono::milliseconds kTell{500};  // how far they are
constexpr std::chrono::seconds kOwnLimit{20};    // what plays a trace has the limit itself, and tells more

// What the threads of a run's jobs share with the one that watches them.
struct Watch {
  Clock::time_point zero = Clock::now();
  std::atomic<bool> end{false};
  std::mutex mutex;
  std::condition_variable changed;
  std::size_t over = 0;                      // jobs
  std::optional<std::size_t> first_to_fail;  // of the run's jobs

  double seconds() const { return std::chrono::duration<double>(Clock::now() - zero).count(); }
};

struct Actor {
  const JobSpec* job = nullptr;
  trainer::LaunchOptions launch{};
  double start_s = 0;
  JobRun run{};
  json results{};
  std::atomic<std::size_t> steps{0}, of{0};
  std::thread thread{};
};

void note_progress(Actor& actor, const trainer::Progress& progress, double now) {
  // Which says how good it is by then, and nothing of steps.
  if (progress.epoch_over) return;
  const std::size_t steps = progress.steps * static_cast<std::size_t>(std::max(progress.epoch - 1, 0)) + progress.step;
  actor.of = progress.steps * static_cast<std::size_t>(std::max(progress.epochs, 0));
  actor.steps = steps;
  auto& marks = actor.run.marks;
  if (steps > 0 && (marks.empty() || marks.back().steps < steps)) marks.push_back({now, steps});
}

// Until its start; false: all jobs are to end before.
bool wait_for_start(const Actor& actor, Watch& watch) {
  const auto start =
      watch.zero + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(actor.start_s));
  std::unique_lock lock(watch.mutex);
  watch.changed.wait_until(lock, start, [&] { return watch.end.load(); });
  return !watch.end;
}

std::string end_of(Actor& actor, const Result<void>& launched) {
  if (!launched) return launched.error().message;
  if (actor.results.is_null()) return "rank 0 ended without results";
  if (const json failed = actor.results.value("failure", json(nullptr)); !failed.is_null()) return failed;
  actor.run.step_s = actor.results.value("step_seconds", std::vector<double>{});
  if (actor.run.step_s.empty()) return "nothing was measured: no step";
  return {};
}

void act(Actor& actor, std::size_t index, Watch& watch) {
  if (wait_for_start(actor, watch)) {
    actor.run.began_s = watch.seconds();
    actor.run.failure = end_of(actor, trainer::launch(actor.launch));
  } else {
    actor.run.failure = "not started";
  }
  actor.run.ended_s = watch.seconds();
  const std::lock_guard lock(watch.mutex);
  ++watch.over;
  // What was ended on purpose is not the cause.
  if (!actor.run.failure.empty() && !watch.end) {
    watch.first_to_fail = index;
    watch.end = true;
  }
  watch.changed.notify_all();
}

std::string how_far(const std::vector<std::unique_ptr<Actor>>& actors) {
  std::string text;
  for (const auto& actor : actors) {
    text +=
        fmt::format("{}{} {}/{}", text.empty() ? "" : ", ", actor->job->name, actor->steps.load(), actor->of.load());
  }
  return text;
}

json details_of(const JobSpec& job, const json& results) {
  json details = json::object();
  if (!results.is_object()) return details;
  if (job.is_queue() && results.contains("queue")) details["queue"] = results["queue"];
  if (!job.trains()) return details;
  for (const char* key : {"accuracy", "loss", "images_per_second", "train_s", "compute_s", "exposed_comm_s",
                          "total_comm_s", "bytes_sent", "replicas_identical", "missing_bytes"}) {
    if (results.contains(key)) details[key] = results[key];
  }
  return details;
}

// While threads of jobs live, whatever happens.
class Threads {
 public:
  Threads(std::vector<std::unique_ptr<Actor>>& actors, Watch& watch) : actors_(actors), watch_(watch) {}
  ~Threads() {
    {
      const std::lock_guard lock(watch_.mutex);
      if (watch_.over < actors_.size()) watch_.end = true;
      watch_.changed.notify_all();
    }
    join();
  }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;
  void join() {
    for (const auto& actor : actors_) {
      if (actor->thread.joinable()) actor->thread.join();
    }
  }

 private:
  std::vector<std::unique_ptr<Actor>>& actors_;
  Watch& watch_;
};

void watch_over(const std::vector<std::unique_ptr<Actor>>& actors, Watch& watch,
                const std::function<void(const std::string&)>& on_tick) {
  Clock::time_point told{};
  std::unique_lock lock(watch.mutex);
  // Bounded: a job ends at its limit, and all of them soon after `end`.
  while (watch.over < actors.size()) {
    watch.changed.wait_for(lock, kLook);
    if (Interrupt::signal_number() != 0 && !watch.end.exchange(true)) watch.changed.notify_all();
    if (!on_tick || Clock::now() - told < kTell) continue;
    told = Clock::now();
    on_tick(how_far(actors));
  }
}

// The words that start a rank, or the one process that plays a trace.
trainer::LaunchOptions launch_of(const JobsPlan& plan, const JobSpec& job, const Arm& arm, int round,
                                 Testbed& testbed) {
  trainer::LaunchOptions launch;
  launch.environment = environment_of(plan, job, arm, inherited_settings());
  launch.limit = std::chrono::seconds(plan.limit_s);
  const std::string report = std::to_string(trainer::kReportFd);
  if (!job.trains()) {
    launch.limit += kOwnLimit;
    const std::vector<std::string> words{Testbed::program(), "ab",
                                         "--jobs",           plan.file,
                                         "--play",           job.name,
                                         "--fabric",         testbed.fabric()->spec().name,
                                         "--time-limit",     std::to_string(plan.limit_s),
                                         "--report-fd",      report,
                                         "--digest",         std::to_string(plan.digest)};
    launch.arguments = [words](int) { return words; };
    return launch;
  }
  launch.ranks = static_cast<int>(job.hosts.size());
  const std::string root = testbed.next_root(job.hosts[0]);
  const auto training = train_arguments(plan, job, arm, round);
  launch.arguments = [&testbed, &job, root, training, report](int rank) {
    std::vector<std::string> words = testbed.words_on(job.hosts[static_cast<std::size_t>(rank)]);
    words.insert(words.end(), {"train", "--rank", std::to_string(rank), "--size", std::to_string(job.hosts.size()),
                               "--root", root, "--report-fd", report});
    words.insert(words.end(), training.begin(), training.end());
    return words;
  };
  return launch;
}

}  // namespace

Result<Run> Stage::run(const Slot& slot, int round) {
  const auto before = testbed_.counters();
  if (!before) return tl::unexpected(before.error());
  Watch watch;
  std::vector<std::unique_ptr<Actor>> actors;
  for (std::size_t i = 0; i < plan_.jobs.size(); ++i) {
    if (slot.alone && *slot.alone != i) continue;
    const JobSpec& job = plan_.jobs[i];
    auto actor = std::make_unique<Actor>();
    actor->job = &job;
    actor->run.name = job.name;
    if (const auto* training = std::get_if<Training>(&job.work)) actor->run.per_step = batch_of(plan_, *training);
    if (job.is_queue()) actor->run.per_step.reset();
    actor->start_s = slot.alone ? 0 : job.start_s;
    actor->launch = launch_of(plan_, job, plan_.arms[slot.arm], round, testbed_);
    actor->launch.stop = [&watch] { return watch.end.load(); };
    actor->launch.on_record = [&watch, &actor = *actor](int rank, const json& record) {
      if (rank != 0) return;
      trainer::Progress progress;
      if (trainer::from_record(record, progress)) note_progress(actor, progress, watch.seconds());
      if (record.contains("results")) actor.results = record["results"];
    };
    actors.push_back(std::move(actor));
  }
  {
    Threads threads(actors, watch);
    for (std::size_t i = 0; i < actors.size(); ++i) {
      actors[i]->thread = std::thread([&actor = *actors[i], i, &watch] { act(actor, i, watch); });
    }
    watch_over(actors, watch, on_tick_);
    threads.join();
  }
  if (const int signal = Interrupt::signal_number(); signal != 0) {
    return fail(ErrorCode::kSystem, fmt::format("interrupted by signal {} ({})", signal, strsignal(signal)));
  }
  Run run{.slot = slot, .round = round};
  run.wall_s = watch.seconds();
  for (const auto& actor : actors) {
    run.details.push_back(details_of(*actor->job, actor->results));
    run.jobs.push_back(std::move(actor->run));
  }
  if (watch.first_to_fail) {
    const JobRun& cause = run.jobs[*watch.first_to_fail];
    run.failure = fmt::format("job '{}': {}{}", cause.name, cause.failure,
                              run.jobs.size() > 1 ? "; the other jobs were ended" : "");
  }
  const auto after = testbed_.counters();
  if (!after) return tl::unexpected(after.error());
  run.network = {after->packets - before->packets, after->bytes - before->bytes, after->drops - before->drops};
  return run;
}

}  // namespace clustar::bench::ab::jobs
