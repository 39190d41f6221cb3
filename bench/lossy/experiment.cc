#include "bench/lossy/experiment.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "bench/lossy/crew.h"

namespace clustar::bench::lossy {
namespace {

using nlohmann::json;

constexpr std::chrono::milliseconds kRoundLimit{30'000};
// Senders hear of a round before it begins, so that none begins later for being told last.
constexpr std::int64_t kLeadNs = 1'000'000;
constexpr int kOneWayRounds = 30;
constexpr std::size_t kOneWayBytes = 1024;  // one packet

std::int64_t now_ns() { return SteadyClock::now().time_since_epoch().count(); }

struct RoundOutcome {
  std::int64_t go_ns = 0;
  std::vector<CrewRound> jobs;
};

// What runs one arm: a crew for each of its jobs.
class Stage {
 public:
  static Result<Stage> start(const std::string& arm, const Terms& terms, const Run& run, const fabric::Fabric& fabric) {
    Stage stage;
    int first_sender = 1;
    for (const std::string& job : jobs_of(arm)) {
      Terms own = terms;
      const auto found = find_arm(job);
      if (!found) return tl::unexpected(found.error());
      own.arm = *found;
      auto crew = Crew::start(run.executable, fabric, own, first_sender);
      if (!crew) return tl::unexpected(crew.error());
      first_sender += terms.senders;
      stage.crews_.push_back(std::move(*crew));
    }
    return stage;
  }

  Result<RoundOutcome> round() {
    const std::uint32_t number = ++number_;
    RoundOutcome outcome;
    const auto limit = kRoundLimit * (crews_.front()->terms().messages > 1 ? 4 : 1);
    for (const auto& crew : crews_) {
      if (const auto ready = crew->prepare(number, limit); !ready) return tl::unexpected(ready.error());
    }
    outcome.go_ns = now_ns() + kLeadNs;
    for (const auto& crew : crews_) {
      if (const auto gone = crew->go(outcome.go_ns); !gone) return tl::unexpected(gone.error());
    }
    for (const auto& crew : crews_) {
      auto done = crew->finish();
      if (!done) return tl::unexpected(done.error());
      outcome.jobs.push_back(std::move(*done));
    }
    return outcome;
  }

  Result<json> facts() {
    json all = json::array();
    for (const auto& crew : crews_) {
      auto one = crew->facts();
      if (!one) return one;
      (*one)["job"] = crew->terms().arm.name;
      all.push_back(std::move(*one));
    }
    return all;
  }

  // The kernel's own word on the minimum RTO is the RTO that it works with.
  Result<void> check(const json& facts) const {
    for (std::size_t i = 0; i < crews_.size(); ++i) {
      const Arm& arm = crews_[i]->terms().arm;
      const json& sender = facts.at(i).at("sender");
      if (!sender.contains("rto_us")) continue;
      const std::uint32_t rto = sender["rto_us"];
      const bool is_short = arm.rto_min_us < 100'000;
      if (rto >= arm.rto_min_us && (!is_short || rto < 150'000)) continue;
      return fail(ErrorCode::kSystem, fmt::format("{}: the kernel works with an RTO of {} us where the minimum was set "
                                                  "to {} us",
                                                  arm.name, rto, arm.rto_min_us));
    }
    return {};
  }

  void sleep() {
    for (const auto& crew : crews_) crew->sleep();
  }
  void wake() {
    for (const auto& crew : crews_) crew->wake();
  }

 private:
  std::vector<std::unique_ptr<Crew>> crews_;
  std::uint32_t number_ = 0;
};

struct Candidate {
  ArmOutcome outcome;
  std::unique_ptr<Stage> stage;  // null: skipped or failed
};

bool may_lose(const Arm& arm) { return arm.tolerance_ppm > 0 || arm.mode == MltMode::kStaticDeadline; }

std::uint64_t retransmitted(const json& facts) {
  std::uint64_t sum = 0;
  for (const json& job : facts) sum += job.value("retransmitted_packets", std::uint64_t{0});
  return sum;
}

std::int64_t last_arrival(const CrewRound& round) {
  std::int64_t last = 0;
  for (const Arrival& arrival : round.arrivals) last = std::max(last, arrival.at_ns);
  return last;
}

// While all jobs were at it: the one that is first leaves the line to the others.
std::vector<JobShare> shares_of(const RoundOutcome& round, const std::vector<std::string>& names, std::size_t bytes) {
  std::int64_t until = last_arrival(round.jobs.front());
  for (const CrewRound& job : round.jobs) until = std::min(until, last_arrival(job));
  std::vector<JobShare> shares;
  double sum = 0;
  for (std::size_t i = 0; i < round.jobs.size(); ++i) {
    double bits = 0;
    for (const Arrival& arrival : round.jobs[i].arrivals) {
      if (arrival.at_ns <= until) bits += 8.0 * static_cast<double>(bytes - arrival.missing);
    }
    shares.push_back({names[i], bits / static_cast<double>(until - round.go_ns), 0});
    sum += shares.back().goodput_gbps;
  }
  for (JobShare& share : shares) {
    share.share = sum > 0 ? share.goodput_gbps / sum * static_cast<double>(shares.size()) : 0;
  }
  return shares;
}

void add_round(ArmOutcome& arm, const RoundOutcome& round, const Terms& terms, bool tolerant) {
  const auto names = jobs_of(arm.samples.name);
  std::int64_t end = round.go_ns;
  double cpu = 0, bits = 0;
  for (const CrewRound& job : round.jobs) {
    end = std::max(end, last_arrival(job));
    cpu += job.cpu_s;
    for (const Arrival& arrival : job.arrivals) {
      const std::uint64_t delivered = terms.message_bytes - arrival.missing;
      arm.message_ms.push_back(static_cast<double>(arrival.at_ns - round.go_ns) / 1e6);
      arm.delivered_bytes += delivered;
      arm.missing_bytes += arrival.missing;
      arm.eligible_bytes += tolerant ? terms.message_bytes : 0;
      bits += 8.0 * static_cast<double>(delivered);
    }
  }
  const double ms = static_cast<double>(end - round.go_ns) / 1e6;
  arm.samples.block_ms.back().push_back(ms);
  if (bits > 0) arm.samples.block_cpu.back().push_back(cpu / (bits / 1e9));
  if (names.size() > 1) arm.samples.block_shares.back() = shares_of(round, names, terms.message_bytes);
  arm.seconds += ms / 1e3;
  arm.cpu_s += cpu;
}

class Experiment {
 public:
  Experiment(const Scenario& scenario, const Run& run, Testbed& testbed)
      : scenario_(scenario), run_(run), testbed_(testbed) {
    outcome_.scenario = scenario;
    outcome_.rounds = rounds_of(scenario, run);
    outcome_.seed = run.seed;
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
    const std::vector<int> blocks = plan_blocks(outcome_.rounds, scenario_.blocks);
    begin_ = SteadyClock::now();
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      for (Candidate& candidate : candidates_) {
        if (const auto ok = block(candidate, i, blocks); !ok) return tl::unexpected(ok.error());
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
    auto stage = Stage::start("mlt-p0", terms, run_, testbed_.fabric());
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
    auto stage = Stage::start(candidate.outcome.samples.name, terms_, run_, testbed_.fabric());
    if (!stage) return tl::unexpected(stage.error());
    candidate.stage = std::make_unique<Stage>(std::move(*stage));
    for (int i = 0; i < (scenario_.messages > 1 ? 1 : run_.warm_up); ++i) {
      if (const auto round = candidate.stage->round(); !round) return tl::unexpected(round.error());
    }
    return take_facts(candidate, true);
  }

  static Result<void> take_facts(Candidate& candidate, bool fresh) {
    auto facts = candidate.stage->facts();
    if (!facts) return tl::unexpected(facts.error());
    // Later the kernel may have backed off from an RTO.
    if (fresh) {
      if (const auto ok = candidate.stage->check(*facts); !ok) return ok;
    }
    ArmOutcome& arm = candidate.outcome;
    const std::uint64_t count = retransmitted(*facts);
    // Counters begin anew with new connections; what warm-ups sent again is not the arm's.
    if (!fresh) arm.retransmitted += count - retransmitted(arm.facts);
    arm.facts = std::move(*facts);
    return {};
  }

  Result<void> block(Candidate& candidate, std::size_t index, const std::vector<int>& blocks) {
    if (candidate.stage == nullptr) return {};
    ArmOutcome& arm = candidate.outcome;
    arm.samples.block_ms.emplace_back();
    arm.samples.block_cpu.emplace_back();
    arm.samples.block_shares.emplace_back();
    report(fmt::format("{}, block {} of {}, {} rounds; {}", arm.samples.name, index + 1, blocks.size(), blocks[index],
                       remaining(index, blocks)));
    candidate.stage->wake();
    Result<void> done = scenario_.fresh_connections && index > 0 ? connect(candidate) : Result<void>();
    if (done) done = testbed_.reset_counters();
    if (done) done = rounds(candidate, blocks[index]);
    if (const auto counts = testbed_.counts(); counts) {
      arm.switches += *counts;
    } else if (done) {
      done = tl::unexpected(counts.error());
    }
    if (done) done = take_facts(candidate, false);
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

  Result<void> rounds(Candidate& candidate, int count) {
    const std::string& name = candidate.outcome.samples.name;
    const auto arm = find_arm(jobs_of(name).front());
    // The first after a pause finds cold caches and timers of the pause; long streams do not notice.
    const int unmeasured = scenario_.messages > 1 ? 0 : 1;
    for (int i = -unmeasured; i < count; ++i) {
      const auto round = candidate.stage->round();
      if (!round) return tl::unexpected(round.error());
      if (i >= 0) add_round(candidate.outcome, *round, terms_, arm && may_lose(*arm));
    }
    return {};
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
  SteadyClock::time_point begin_;
};

}  // namespace

int rounds_of(const Scenario& scenario, const Run& run) {
  if (run.rounds > 0) return run.rounds;
  return run.quick ? scenario.quick_rounds : scenario.rounds;
}

std::vector<std::string> arms_of(const Scenario& scenario, const Run& run) {
  return choose_arms(run.quick && run.arms.empty() ? scenario.quick_arms : scenario.arms, run.arms);
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
  return Experiment(scenario, run, **testbed).conduct();
}

}  // namespace clustar::bench::lossy
