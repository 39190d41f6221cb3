// Fifteen hosts send to one at once, through a shallow buffer.
#include "bench/sim/experiments.h"
#include "bench/sim/testbed.h"
#include "mlt/compare/recoveries.h"
#include "transport/base/rng.h"

namespace clustar::bench::sim {
namespace {

constexpr std::uint32_t kSenders = 15;
constexpr std::uint32_t kBytes = 128 << 10;
constexpr std::uint64_t kBuffer = 100'000;
constexpr Duration kLimit = std::chrono::milliseconds(100);  // of a round

struct Arm {
  const char* name;
  const mlt::Recovery* recovery = nullptr;
  bool posted_before = false;
  bool credit = true;
};

struct Outcome {
  std::vector<double> rounds;  // of the ideal time
  std::uint64_t missing = 0;
  std::uint64_t dropped = 0;
  std::uint32_t unfinished = 0;
};

class Incast {
 public:
  Incast(const Arm& arm, std::uint64_t seed) : arm_(arm), rng_(seed), bed_(setup(arm, seed)) {
    for (std::uint32_t host = 1; host <= kSenders; ++host) lanes_.push_back(bed_.connect(host, 0));
  }

  void run(std::uint32_t rounds, Outcome& outcome) {
    bed_.on_done([&](const Done& what) { outcome.missing += what.missing; });
    for (std::uint32_t i = 0; i < rounds; ++i) {
      if (!round(outcome)) break;
    }
    outcome.dropped += bed_.network().drops().total();
  }

 private:
  static Setup setup(const Arm& arm, std::uint64_t seed) {
    Setup setup;
    setup.hosts = kSenders + 1;
    setup.buffer_bytes = kBuffer;
    setup.seed = seed;
    setup.options.recovery = arm.recovery;
    if (!arm.credit) setup.options.credit_slack = 64u << 20;
    return setup;
  }
  // Every byte on the wire at line rate, and one way over the empty network.
  double ideal() const {
    return kSenders * wire_bytes(kBytes, {}) * 8 / static_cast<double>(kLineBitsPerSecond) + seconds(kRoundTrip / 2);
  }

  bool round(Outcome& outcome) {
    if (arm_.posted_before) {
      for (const std::uint32_t lane : lanes_) bed_.post(lane, kBytes);
      bed_.simulation().run_for(3 * kRoundTrip);
    }
    // In another order each time, and not all in the same nanosecond.
    for (std::size_t i = lanes_.size(); i-- > 1;) std::swap(lanes_[i], lanes_[rng_.below(i + 1)]);
    const TimePoint begin = bed_.now();
    for (const std::uint32_t lane : lanes_) {
      if (!arm_.posted_before) bed_.post(lane, kBytes);
      bed_.send(lane, kBytes);
      bed_.simulation().run_for(Duration(static_cast<Duration::rep>(rng_.below(100))));
    }
    const bool finished = bed_.finish(kLimit);
    outcome.rounds.push_back(seconds(bed_.now() - begin) / ideal());
    if (!finished) ++outcome.unfinished;
    bed_.simulation().run_for(5 * kRoundTrip);
    return finished;
  }

  Arm arm_;
  Rng rng_;
  Testbed bed_;
  std::vector<std::uint32_t> lanes_;
};

}  // namespace

Rows run_incast(const Settings& settings) {
  const std::uint32_t rounds = settings.amount(10, 200, 1000);
  const mlt::compare::StaticDeadline deadline(std::chrono::milliseconds(1));
  const mlt::compare::GoBackN go_back_n{};
  const Arm arms[] = {
      {.name = "normal, posted before", .posted_before = true},
      {.name = "normal, posted at the send"},
      {.name = "static deadline", .recovery = &deadline},
      {.name = "static deadline, no credit", .recovery = &deadline, .credit = false},
      {.name = "go-back-N", .recovery = &go_back_n},
      {.name = "go-back-N, no credit", .recovery = &go_back_n, .credit = false},
  };
  Rows rows;
  for (const Arm& arm : arms) {
    settings.progress(arm.name);
    Outcome outcome;
    for (std::uint64_t i = 0; i < settings.seeds; ++i) Incast(arm, settings.seed + i).run(rounds, outcome);
    const double bytes = static_cast<double>(outcome.rounds.size()) * kSenders * kBytes;
    Row row("15 to 1, 128 KiB each", arm.name);
    row.add("p50_of_ideal", quantile(outcome.rounds, 0.5)).add("p99_of_ideal", quantile(outcome.rounds, 0.99));
    if (arm.posted_before) row.at_most(1.05);
    row.add("missing_fraction", static_cast<double>(outcome.missing) / bytes);
    row.add("drops", static_cast<double>(outcome.dropped));
    if (outcome.unfinished > 0) row.add("unfinished", outcome.unfinished);
    rows.push_back(row);
  }
  return rows;
}

}  // namespace clustar::bench::sim
