#include "bench/sim/micro_bursts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <utility>

#include "bench/sim/experiments.h"
#include "bench/sim/testbed.h"
#include "mlt/compare/recoveries.h"
#include "transport/base/rng.h"

namespace clustar::bench::sim {

BurstSchedule::BurstSchedule(const std::vector<Burst>& bursts, Duration gap) {
  for (const Burst& burst : bursts) {
    const TimePoint from = TimePoint{} + period_ + gap;
    windows_.push_back({from, from + burst.length, burst.loss});
    period_ = windows_.back().until - TimePoint{};
  }
}

void BurstSchedule::add_to(transport::sim::FaultChain& faults) const {
  for (const Window& window : windows_) {
    faults.add(transport::sim::MicroBursts{window.loss, {{window.from, window.until}}, period_});
  }
}

double BurstSchedule::loss_at(TimePoint at) const {
  const TimePoint within(at.time_since_epoch() % period_);
  const auto after = std::upper_bound(windows_.begin(), windows_.end(), within,
                                      [](TimePoint time, const Window& window) { return time < window.from; });
  if (after == windows_.begin()) return 0;
  return within < std::prev(after)->until ? std::prev(after)->loss : 0;
}

bool BurstSchedule::touches(TimePoint from, TimePoint until) const {
  const TimePoint begin(from.time_since_epoch() % period_);
  const TimePoint end = begin + (until - from);
  return std::any_of(windows_.begin(), windows_.end(), [&](const Window& window) {
    const bool now = window.from <= end && begin < window.until;
    return now || window.from + period_ <= end;
  });
}

std::vector<OracleMessage> oracle(const BurstSchedule& schedule, std::uint32_t bytes, double may_miss, Duration run,
                                  std::uint64_t seed) {
  const mlt::Options options;
  const std::uint32_t packets = mlt::packet_count(bytes, options.segment);
  const auto needed = packets - static_cast<std::uint32_t>(std::floor(may_miss * packets));
  const Duration spacing(static_cast<Duration::rep>(wire_bytes(bytes, options) * 8e9 / kLineBitsPerSecond / packets));
  Rng rng(seed);
  std::vector<OracleMessage> messages;
  // A packet that leaves the switch at `at` is one link from its receiver; the first needs the rest of the way before.
  for (TimePoint begun{}; begun < TimePoint{} + run;) {
    TimePoint at = begun + kRoundTrip / 4 + spacing;
    std::deque<TimePoint> again;  // when it is known of a lost packet
    std::uint32_t fresh = packets;
    for (std::uint32_t arrived = 0; arrived < needed; at += spacing) {
      if (fresh > 0) {
        --fresh;
      } else {
        at = std::max(at, again.front());
        again.pop_front();
      }
      if (rng.chance(schedule.loss_at(at))) {
        again.push_back(at + kRoundTrip);
      } else {
        ++arrived;
      }
    }
    const TimePoint done = at + kRoundTrip / 4;
    messages.push_back({begun, done});
    begun = done;
  }
  return messages;
}

namespace {

constexpr double kMayMiss = 0.1;  // the core's bound for one message

struct Arm {
  const char* name;
  const mlt::Recovery* recovery = nullptr;
  std::uint32_t tolerance_ppm = 0;
};

struct Situation {
  std::string name;
  BurstSchedule schedule;
  std::uint32_t bytes;
  Duration run;
};

class Outcome {
 public:
  void add(const BurstSchedule& schedule, TimePoint begun, TimePoint done) {
    times_.push_back(microseconds(done - begun));
    if (schedule.touches(begun, done)) hit_.push_back(times_.back());
  }
  // p99 of all messages, in us.
  double p99() { return quantile(times_, 0.99); }
  double hit_p99() { return quantile(hit_, 0.99); }
  Row row(const std::string& situation, const std::string& arm) {
    Row row(situation, arm);
    row.add("p50_us", quantile(times_, 0.5)).add("p99_us", p99());
    return row.add("hit_p50_us", quantile(hit_, 0.5)).add("hit_p99_us", hit_p99());
  }

  double bytes = 0;
  double missing = 0;

 private:
  std::vector<double> times_;
  std::vector<double> hit_;  // of the messages that met a burst
};

// Twice what the line needs: a deadline that cuts a burst short, and no message of an idle network.
Duration deadline_of(std::uint32_t bytes) {
  return 2 * (kRoundTrip + Duration(static_cast<Duration::rep>(wire_bytes(bytes, {}) * 8e9 / kLineBitsPerSecond)));
}

// Messages of one collective, one after the other.
void run_arm(const Situation& situation, const Arm& arm, std::uint64_t seed, Outcome& outcome) {
  Setup setup;
  setup.options.recovery = arm.recovery;
  setup.seed = seed;
  Testbed bed(setup);
  situation.schedule.add_to(bed.network().down(1).faults());
  const std::uint32_t lane = bed.connect(0, 1);
  const auto most = static_cast<std::uint64_t>(seconds(situation.run) * kLineBitsPerSecond / 8);
  const mlt::SendTerms terms = arm.tolerance_ppm > 0 ? ring_terms(arm.tolerance_ppm, most) : mlt::SendTerms{};
  const TimePoint end = TimePoint{} + situation.run;
  bed.on_done([&](const Done& what) {
    outcome.add(situation.schedule, what.posted, what.at);
    outcome.bytes += what.bytes;
    outcome.missing += what.missing;
    if (what.at < end) bed.transfer(lane, situation.bytes, terms);
  });
  bed.transfer(lane, situation.bytes, terms);
  bed.finish(2 * situation.run);
}

void add_limits(const Situation& situation, const Settings& settings, Rows& rows) {
  double reliable = 0;
  for (const double may_miss : {0.0, kMayMiss}) {
    Outcome outcome;
    for (std::uint64_t i = 0; i < settings.seeds; ++i) {
      for (const auto& message :
           oracle(situation.schedule, situation.bytes, may_miss, situation.run, settings.seed + i)) {
        outcome.add(situation.schedule, message.begun, message.done);
      }
    }
    Row row = outcome.row(situation.name, may_miss > 0 ? "limit, 10 % may miss" : "limit, none may miss");
    if (may_miss > 0) row.add("p0_p99_over_p99", reliable / outcome.p99());
    reliable = outcome.p99();
    rows.push_back(row);
  }
}

void add_rows(const Situation& situation, const Settings& settings, Rows& rows) {
  const mlt::compare::StaticDeadline deadline(deadline_of(situation.bytes));
  const mlt::compare::GoBackN go_back_n{};
  const Arm arms[] = {{.name = "p = 0"},
                      {.name = "p = 1 %", .tolerance_ppm = 10'000},
                      {.name = "static deadline", .recovery = &deadline},
                      {.name = "go-back-N", .recovery = &go_back_n}};
  double reliable = 0, reliable_hit = 0;  // p99 at p = 0
  double tolerant = 0;                    // p99 at p = 1 %
  for (const Arm& arm : arms) {
    settings.progress(situation.name + ", " + arm.name);
    Outcome outcome;
    for (std::uint64_t i = 0; i < settings.seeds; ++i) run_arm(situation, arm, settings.seed + i, outcome);
    Row row = outcome.row(situation.name, arm.name);
    row.add("missing_fraction", outcome.missing / outcome.bytes);
    if (arm.recovery == &go_back_n) row.add("p99_over_p1_p99", outcome.p99() / tolerant);
    if (arm.tolerance_ppm > 0) {
      row.add("p0_hit_p99_over_hit_p99", reliable_hit / outcome.hit_p99());
      row.add("p0_p99_over_p99", reliable / outcome.p99()).at_least(3);
      tolerant = outcome.p99();
    }
    if (&arm == &arms[0]) {
      reliable = outcome.p99();
      reliable_hit = outcome.hit_p99();
    }
    rows.push_back(row);
  }
  add_limits(situation, settings, rows);
}

}  // namespace

Rows run_micro_bursts(const Settings& settings) {
  const std::uint32_t bursts = settings.amount(4, 40, 400);
  std::vector<std::pair<std::string, std::vector<Burst>>> mixes;
  std::vector<Burst> mixed;
  for (const double loss : {0.6, 0.75, 0.9}) {
    for (const int trips : {5, 20, 50}) {
      const Burst burst{loss, trips * kRoundTrip};
      mixes.push_back({fmt::format("{:.0f} % for {} RTT", loss * 100, trips), {burst}});
      mixed.push_back(burst);
    }
  }
  // Long ones and short ones, heavy ones and light ones in turns: 4 has no common factor with 9.
  std::vector<Burst> turns;
  for (std::size_t i = 0; i < mixed.size(); ++i) turns.push_back(mixed[i * 4 % mixed.size()]);
  mixes.push_back({"mixed", turns});
  Rows rows;
  for (const std::uint32_t bytes : {64u << 10, 256u << 10, 1u << 20}) {
    for (const auto& [name, list] : mixes) {
      if (settings.length == Length::kQuick && name != "mixed") continue;
      const BurstSchedule schedule(list, settings.burst_gap);
      const auto periods = static_cast<std::int64_t>((bursts + list.size() - 1) / list.size());
      add_rows({fmt::format("{} KiB, {}", bytes >> 10, name), schedule, bytes, schedule.period() * periods}, settings,
               rows);
    }
  }
  return rows;
}

}  // namespace clustar::bench::sim
