#include "bench/lossy/experiment.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <thread>
#include <utility>

#include "bench/lossy/stage.h"
#include "bench/lossy/stalls.h"

namespace clustar::bench::lossy {
namespace {

using nlohmann::json;

constexpr int kOneWayRounds = 30;
constexpr std::size_t kOneWayBytes = 1024;  // one packet

struct Candidate {
  ArmOutcome outcome;
  std::unique_ptr<Stage> stage;  // null: skipped or failed
};

bool may_lose(const Arm& arm) { return arm.tolerance_ppm > 0 || arm.mode == MltMode::kStaticDeadline; }

// By all jobs; nothing where one does not know.
std::optional<std::uint64_t> retransmitted(const json& facts) {
  std::uint64_t sum = 0;
  for (const json& job : facts) {
    const auto own = job.find("retransmitted_packets");
    if (own == job.end()) return std::nullopt;
    sum += own->get<std::uint64_t>();
  }
  return sum;
}

std::int64_t end_of(const RoundOutcome& round) {
  std::int64_t end = round.go_ns;
  for (const CrewRound& job : round.jobs) end = std::max(end, last_arrival(job));
  return end;
}

// Bytes and CPU are of all rounds, times of those that count.
void add_round(ArmOutcome& arm, const RoundOutcome& round, const Terms& terms, bool counts) {
  const auto names = jobs_of(arm.samples.name);
  double cpu = 0, bits = 0;
  for (std::size_t i = 0; i < round.jobs.size(); ++i) {
    const CrewRound& job = round.jobs[i];
    const auto found = find_arm(names[i]);
    const bool tolerant = found && may_lose(*found);
    cpu += job.cpu_s;
    for (const Arrival& arrival : job.arrivals) {
      const std::uint64_t delivered = terms.message_bytes - arrival.missing;
      if (counts) arm.message_ms.push_back(static_cast<double>(arrival.at_ns - round.go_ns) / 1e6);
      arm.delivered_bytes += delivered;
      arm.missing_bytes += arrival.missing;
      arm.eligible_bytes += tolerant ? terms.message_bytes : 0;
      bits += 8.0 * static_cast<double>(delivered);
    }
  }
  const double ms = static_cast<double>(end_of(round) - round.go_ns) / 1e6;
  (counts ? arm.samples.block_ms.back() : arm.samples.stalled_ms).push_back(ms);
  if (bits > 0) arm.samples.block_cpu.back().push_back(cpu / (bits / 1e9));
  if (names.size() > 1) arm.samples.block_shares.back().push_back(shares_of(round, names, terms.message_bytes));
  arm.seconds += ms / 1e3;
  arm.cpu_s += cpu;
}

// How many cores are busy while all arms are asleep: what others, the kernel's own threads and interrupts cost.
std::optional<double> idle_cores() {
  constexpr double kSeconds = 1;
  const double before = busy_seconds_now();
  std::this_thread::sleep_for(std::chrono::duration<double>(kSeconds));
  const double after = busy_seconds_now();
  return before > 0 ? std::optional((after - before) / kSeconds) : std::nullopt;
}

class Experiment {
 public:
  Experiment(const Scenario& scenario, const Run& run, Testbed& testbed)
      : scenario_(scenario), run_(run), testbed_(testbed) {
    outcome_.scenario = scenario;
    outcome_.rounds = rounds_of(scenario, run);
    outcome_.seed = run.seed;
    if (scenario.messages == 1) stalls_ = std::make_unique<StallWatch>();
    outcome_.stalls_known = stalls_ == nullptr || stalls_->works();
  }

  Result<ScenarioOutcome> conduct() {
    if (const auto measured = measure_one_way(); !measured) {
      if (const auto ok = check_interrupt(); !ok) return tl::unexpected(ok.error());
      outcome_.notes.push_back(fmt::format("The one-way time could not be measured, so the ideal is without it: {}",
                                           measured.error().message));
    }
    set_terms();
    for (const std::string& name : arms_of(scenario_, run_)) {
      if (const auto ok = start(name); !ok) return tl::unexpected(ok.error());
    }
    if (const auto lossy = testbed_.begin_loss(); !lossy) return tl::unexpected(lossy.error());
    if (scenario_.messages > 1) outcome_.idle_cores = idle_cores();
    const std::vector<int> blocks = plan_blocks(outcome_.rounds, scenario_.blocks);
    begin_ = SteadyClock::now();
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      for (const std::size_t turn : turn_order(candidates_.size(), i, run_.seed)) {
        if (const auto ok = block(candidates_[turn], i, blocks); !ok) return tl::unexpected(ok.error());
      }
    }
    for (Candidate& candidate : candidates_) outcome_.arms.push_back(std::move(candidate.outcome));
    if (const auto known = look_at_fabric(); !known) return tl::unexpected(known.error());
    return std::move(outcome_);
  }

 private:
  // Of one packet over idle lines, before anything is lost; the driver's wake-ups included.
  Result<void> measure_one_way() {
    report("measuring the unloaded one-way time");
    Terms terms;
    terms.message_bytes = kOneWayBytes;
    terms.rate_bps = scenario_.fabric.rate_bps;
    auto stage = Stage::start("mlt-p0", terms, run_.executable, testbed_.fabric());
    if (!stage) return tl::unexpected(stage.error());
    std::vector<double> ms;
    for (int i = 0; i < kOneWayRounds; ++i) {
      const auto round = stage->round();
      if (!round) return tl::unexpected(round.error());
      ms.push_back(static_cast<double>(last_arrival(round->jobs.front()) - round->go_ns) / 1e6);
    }
    outcome_.one_way_ms = times_of(std::move(ms)).p50;
    return {};
  }

  Result<void> look_at_fabric() {
    const auto delay_mode = testbed_.delay_mode();
    if (!delay_mode) return tl::unexpected(delay_mode.error());
    const auto drops = testbed_.backstop_drops();
    if (!drops) return tl::unexpected(drops.error());
    outcome_.delay_mode = *delay_mode;
    outcome_.backstop_drops = *drops;
    if (*drops == 0) return {};
    outcome_.notes.push_back(fmt::format(
        "{} packets were dropped behind the switch program: the CPU was far behind a line, and these figures "
        "are not the switch's alone.",
        *drops));
    return {};
  }

  void set_terms() {
    outcome_.ideal_ms = ideal_ms(scenario_, outcome_.one_way_ms);
    // A quarter above what a round without loss takes: as tight as can be without cutting clean rounds.
    outcome_.deadline_ms = 1.25 * outcome_.ideal_ms;
    terms_.senders = scenario_.senders;
    terms_.message_bytes = scenario_.message_bytes;
    terms_.messages = scenario_.messages;
    terms_.window = scenario_.window;
    terms_.rate_bps = scenario_.fabric.rate_bps;
    terms_.deadline_ns = static_cast<std::int64_t>(outcome_.deadline_ms * 1e6);
  }

  // Connected and warmed up; asleep then. The error is an interrupt; everything else is the arm's own.
  Result<void> start(const std::string& name) {
    report(fmt::format("{}: starting {} processes", name,
                       jobs_of(name).size() * static_cast<std::size_t>(terms_.senders + 1)));
    Candidate candidate;
    candidate.outcome.samples.name = name;
    for (const std::string& job : jobs_of(name)) {
      const auto arm = find_arm(job);
      if (!arm) return tl::unexpected(arm.error());
      candidate.outcome.label += (candidate.outcome.label.empty() ? "" : " beside ") + arm->label;
      candidate.outcome.transport +=
          (candidate.outcome.transport.empty() ? "" : "+") + std::string(to_string(arm->carrier));
    }
    Result<void> done = connect(candidate);
    if (done) candidate.stage->sleep();
    if (!done) {
      if (const auto ok = check_interrupt(); !ok) return ok;
      candidate.stage.reset();
      (done.error().code == ErrorCode::kUnavailable ? candidate.outcome.skipped : candidate.outcome.failure) =
          done.error().message;
    }
    candidates_.push_back(std::move(candidate));
    return {};
  }

  Result<void> connect(Candidate& candidate) {
    candidate.stage.reset();
    for (const std::string& job : jobs_of(candidate.outcome.samples.name)) {
      const auto arm = find_arm(job);
      if (!arm) return tl::unexpected(arm.error());
      if (const auto able = testbed_.check(*arm); !able) return able;
    }
    auto stage = Stage::start(candidate.outcome.samples.name, terms_, run_.executable, testbed_.fabric());
    if (!stage) return tl::unexpected(stage.error());
    candidate.stage = std::make_unique<Stage>(std::move(*stage));
    for (int i = 0; i < (scenario_.messages > 1 ? 1 : run_.warm_up); ++i) {
      if (const auto round = candidate.stage->round(); !round) return tl::unexpected(round.error());
    }
    // Later the kernel may have backed off from an RTO.
    const auto facts = candidate.stage->facts();
    return facts ? candidate.stage->check(*facts) : tl::unexpected(facts.error());
  }

  Result<void> block(Candidate& candidate, std::size_t index, const std::vector<int>& blocks) {
    if (candidate.stage == nullptr) return {};
    ArmOutcome& arm = candidate.outcome;
    arm.samples.block_ms.emplace_back();
    arm.samples.block_cpu.emplace_back();
    arm.samples.block_machine_cpu.emplace_back();
    arm.samples.block_shares.emplace_back();
    report(fmt::format("{}, block {} of {}, {} rounds; {}", arm.samples.name, index + 1, blocks.size(), blocks[index],
                       remaining(index, blocks)));
    candidate.stage->wake();
    Result<void> done = scenario_.fresh_connections && index > 0 ? connect(candidate) : Result<void>();
    if (done) done = begin_counting(candidate);
    if (done) {
      const std::uint64_t before = arm.delivered_bytes;
      done = rounds(candidate, blocks[index]);
      const auto counted = end_counting(arm, before);
      if (done) done = counted;
    }
    if (done) done = take_facts(candidate, true);
    if (done) {
      candidate.stage->sleep();
      return {};
    }
    if (const auto ok = check_interrupt(); !ok) return ok;
    arm.failure = done.error().message;
    report(fmt::format("{} failed: {}", arm.samples.name, arm.failure));
    candidate.stage.reset();
    return {};
  }

  // After the round that does not count: the first after a pause finds cold caches and timers of the pause; long
  // streams do not notice.
  Result<void> begin_counting(Candidate& candidate) {
    if (scenario_.messages == 1) {
      if (const auto round = candidate.stage->round(); !round) return tl::unexpected(round.error());
    }
    if (const auto ok = take_facts(candidate, false); !ok) return ok;
    if (const auto ok = testbed_.reset_counters(); !ok) return ok;
    const auto counts = count_machine(testbed_.fabric());
    if (!counts) return tl::unexpected(counts.error());
    before_ = *counts;
    // Counting took time of its own.
    before_.busy_s = busy_seconds_now();
    return {};
  }

  Result<void> end_counting(ArmOutcome& arm, std::uint64_t delivered_before) {
    const auto machine = count_machine(testbed_.fabric());
    const auto counts = testbed_.counts();
    if (!counts) return tl::unexpected(counts.error());
    arm.switches += *counts;
    const auto several_in_one = testbed_.super_packets();
    if (!several_in_one) return tl::unexpected(several_in_one.error());
    arm.samples.super_packets += *several_in_one;
    if (!machine) return tl::unexpected(machine.error());
    const MachineCounts used = *machine - before_;
    arm.interface_drops += used.interface_drops;
    arm.samples.softnet_drops += used.softnet_drops;
    const double gbit = 8e-9 * static_cast<double>(arm.delivered_bytes - delivered_before);
    if (machine->busy_s <= 0 || gbit <= 0) return {};
    arm.machine_cpu_s += used.busy_s;
    arm.samples.block_machine_cpu.back().push_back(used.busy_s / gbit);
    return {};
  }

  // What was sent again before a turn's counted rounds, in warm-ups too, is not the arm's.
  static Result<void> take_facts(Candidate& candidate, bool counted) {
    auto facts = candidate.stage->facts();
    if (!facts) return tl::unexpected(facts.error());
    ArmOutcome& arm = candidate.outcome;
    const auto before = retransmitted(arm.facts), now = retransmitted(*facts);
    if (counted && before && now) arm.retransmitted = arm.retransmitted.value_or(0) + *now - *before;
    arm.facts = std::move(*facts);
    return {};
  }

  Result<void> rounds(Candidate& candidate, int count) {
    int repeated = 0;
    for (int counted = 0; counted < count;) {
      const auto round = candidate.stage->round();
      if (!round) return tl::unexpected(round.error());
      // A machine that stands still all the time is what it is: then these rounds count.
      const bool again = repeated < count && stood_still(*round);
      add_round(candidate.outcome, *round, terms_, !again);
      ++(again ? repeated : counted);
    }
    return {};
  }

  bool stood_still(const RoundOutcome& round) {
    return stalls_ != nullptr && stalls_->works() && stalls_->longest(round.go_ns, end_of(round)) > 0;
  }

  std::string remaining(std::size_t index, const std::vector<int>& blocks) const {
    const auto done = std::accumulate(blocks.begin(), blocks.begin() + static_cast<std::ptrdiff_t>(index), 0);
    if (done == 0) return "";
    const std::chrono::duration<double> used = SteadyClock::now() - begin_;
    return fmt::format("about {:.0f} s left", used.count() * (outcome_.rounds - done) / done);
  }

  void report(const std::string& line) const {
    if (run_.progress) run_.progress(fmt::format("{}: {}", scenario_.name, line));
  }

  const Scenario& scenario_;
  const Run& run_;
  Testbed& testbed_;
  Terms terms_;
  ScenarioOutcome outcome_;
  std::vector<Candidate> candidates_;
  MachineCounts before_;  // of the turn
  std::unique_ptr<StallWatch>
      stalls_;  // null with streams: hardly a second passes without, and their figures are means
  SteadyClock::time_point begin_;
};

}  // namespace

int rounds_of(const Scenario& scenario, const Run& run) {
  if (run.rounds > 0) return run.rounds;
  return run.quick ? scenario.quick_rounds : scenario.rounds;
}

std::vector<std::string> arms_of(const Scenario& scenario, const Run& run) {
  if (run.arms.empty()) return run.quick ? scenario.quick_arms : scenario.arms;
  std::vector<std::string> arms = scenario.arms;
  arms.insert(arms.end(), scenario.named_arms.begin(), scenario.named_arms.end());
  return choose_arms(arms, run.arms);
}

double estimated_seconds(const Scenario& scenario, const Run& run) {
  const double arms = static_cast<double>(arms_of(scenario, run).size());
  return 2 + arms * (1 + (rounds_of(scenario, run) + 1) * (scenario.expected_ms + 3) / 1e3);
}

Result<ScenarioOutcome> conduct(const Scenario& scenario, const Run& run) {
  auto testbed = Testbed::make(scenario, run.seed);
  // A kernel that has no routers may well have bridges.
  if (!testbed && testbed.error().code == ErrorCode::kUnavailable && scenario.fabric.spines > 0) {
    ScenarioOutcome skipped;
    skipped.scenario = scenario;
    skipped.skipped = testbed.error().message;
    return skipped;
  }
  if (!testbed) return tl::unexpected(testbed.error());
  const OtherCpuWatch watch;
  // Its processes are waited for when it ends, so that their CPU is not taken for others'.
  auto outcome = Experiment(scenario, run, **testbed).conduct();
  if (outcome) outcome->other_cpu = watch.now();
  return outcome;
}

}  // namespace clustar::bench::lossy
