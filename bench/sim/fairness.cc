// Two flows share a link: who gets how much of it, together and one after the other.
#include <algorithm>
#include <array>

#include "bench/sim/experiments.h"
#include "bench/sim/testbed.h"

namespace clustar::bench::sim {
namespace {

using std::chrono::milliseconds;

constexpr std::uint32_t kBytes = 1 << 20;
constexpr std::uint32_t kOutstanding = 16;
constexpr Duration kHeadStart = milliseconds(20);  // of the one that does not come late
constexpr Duration kWarmUp = milliseconds(20);     // after both have begun

struct Shape {
  const char* name;
  bool one_receiver;  // otherwise a link between two switches
  bool with_dctcp;    // the second flow
};

enum class Late : std::uint8_t { kNobody, kFirst, kSecond };

// RFC 8257 on one path, with credit that never binds: what a kernel's DCTCP does, without its slow timers.
mlt::Options dctcp_options() {
  mlt::Options options;
  mlt::Dctcp::Options window;
  window.segment = options.segment;
  options.congestion = mlt::Dctcp(window);
  options.paths = 1;
  options.credit_slack = 64u << 20;
  return options;
}

struct Outcome {
  std::array<double, 2> gbps{};
  double mean_queue = 0;  // bytes
  double max_queue = 0;
  double drops = 0;
};

class Contest {
 public:
  Contest(const Shape& shape, std::uint64_t seed) : shape_(shape), bed_(setup(shape, seed)) {
    if (shape.with_dctcp) {
      bed_.set_options(1, dctcp_options());
      bed_.set_options(3, dctcp_options());
    }
    lanes_ = {bed_.connect(0, 2), bed_.connect(1, shape.one_receiver ? 2 : 3)};
    bed_.on_done([this](const Done& what) { bed_.transfer(what.lane, kBytes); });
  }

  Outcome run(Late late, Duration measured) {
    const std::size_t first = late == Late::kFirst ? 1 : 0;
    start(first);
    if (late != Late::kNobody) bed_.simulation().run_for(kHeadStart);
    start(1 - first);
    bed_.simulation().run_for(kWarmUp);
    const std::array<std::uint64_t, 2> before = {placed(0), placed(1)};
    Outcome outcome;
    constexpr int kLooks = 1000;
    for (int i = 0; i < kLooks; ++i) {
      bed_.simulation().run_for(measured / kLooks);
      const auto queued = static_cast<double>(bottleneck().queued_bytes());
      outcome.mean_queue += queued / kLooks;
      outcome.max_queue = std::max(outcome.max_queue, queued);
    }
    for (std::size_t i = 0; i < 2; ++i) {
      outcome.gbps[i] = static_cast<double>(placed(i) - before[i]) * 8e-9 / seconds(measured);
    }
    outcome.drops = static_cast<double>(bed_.network().drops().total());
    return outcome;
  }

 private:
  static Setup setup(const Shape& shape, std::uint64_t seed) {
    Setup setup;
    setup.hosts = 4;
    setup.leaf_spine = !shape.one_receiver;
    setup.seed = seed;
    return setup;
  }
  void start(std::size_t flow) {
    for (std::uint32_t i = 0; i < kOutstanding; ++i) bed_.transfer(lanes_[flow], kBytes);
  }
  std::uint64_t placed(std::size_t flow) { return bed_.receiver(lanes_[flow]).counters().placed_bytes; }
  transport::sim::Port& bottleneck() {
    return shape_.one_receiver ? bed_.network().down(2) : bed_.network().leaf_to_spine(0, 0);
  }

  Shape shape_;
  Testbed bed_;
  std::array<std::uint32_t, 2> lanes_{};
};

}  // namespace

Rows run_fairness(const Settings& settings) {
  const Duration measured = milliseconds(settings.amount(10, 200, 1000));
  const Shape shapes[] = {{"two MLT into one host", true, false},
                          {"two MLT over an uplink", false, false},
                          {"MLT and DCTCP over an uplink", false, true}};
  Rows rows;
  for (const Shape& shape : shapes) {
    for (const Late late : {Late::kNobody, Late::kFirst, Late::kSecond}) {
      if (late == Late::kFirst && !shape.with_dctcp) continue;  // the same as the other
      const char* arm = late == Late::kNobody  ? "together"
                        : !shape.with_dctcp    ? "one late"
                        : late == Late::kFirst ? "MLT late"
                                               : "DCTCP late";
      settings.progress(std::string(shape.name) + ", " + arm);
      Outcome mean;
      for (std::uint64_t i = 0; i < settings.seeds; ++i) {
        const Outcome outcome = Contest(shape, settings.seed + i).run(late, measured);
        for (std::size_t flow = 0; flow < 2; ++flow) mean.gbps[flow] += outcome.gbps[flow] / settings.seeds;
        mean.mean_queue += outcome.mean_queue / settings.seeds;
        mean.max_queue = std::max(mean.max_queue, outcome.max_queue);
        mean.drops += outcome.drops;
      }
      Row row(shape.name, arm);
      row.add(shape.with_dctcp ? "mlt_gbps" : "first_gbps", mean.gbps[0]);
      row.add(shape.with_dctcp ? "dctcp_gbps" : "second_gbps", mean.gbps[1]);
      const double fair = (mean.gbps[0] + mean.gbps[1]) / 2;
      row.add("least_of_fair", std::min(mean.gbps[0], mean.gbps[1]) / fair).at_least(0.5);
      row.add("mean_queue_kb", mean.mean_queue / 1e3).add("max_queue_kb", mean.max_queue / 1e3);
      row.add("drops", mean.drops);
      rows.push_back(row);
    }
  }
  return rows;
}

}  // namespace clustar::bench::sim
