// Periodic jobs that share an uplink and know nothing of each other: whether their iterations come to alternate where
// windows grow by what was sent of an iteration (MLTCP: Rajasekaran et al., HotNets 2024).
#include <algorithm>
#include <cmath>
#include <vector>

#include "bench/sim/experiments.h"
#include "bench/sim/testbed.h"
#include "coflow/enforce/push.h"

namespace clustar::bench::sim {
namespace {

constexpr std::uint64_t kBps = 200'000'000;
constexpr std::uint32_t kMessage = 256 * 1024;
constexpr std::uint32_t kOutstanding = 4;

struct Shape {
  const char* name;
  std::uint32_t flows;  // of each job
  std::uint64_t bytes;  // of an iteration, of each flow
  std::uint32_t jobs;
  Duration compute, round_trip;
};

class Jobs {
 public:
  Jobs(const Shape& shape, bool pushes, std::uint64_t seed) : shape_(shape), pushes_(pushes), bed_(setup(shape, seed)) {
    for (std::uint32_t job = 0; job < shape.jobs; ++job) {
      jobs_.push_back({});
      for (std::uint32_t flow = 0; flow < shape.flows; ++flow) {
        const std::uint32_t from = job * shape.flows + flow;
        bed_.connect(from, from + shape.jobs * shape.flows);
      }
    }
    bed_.on_done([this](const Done& what) { done(what); });
  }

  // Seconds of each iteration, by job.
  std::vector<std::vector<double>> run(std::size_t iterations) {
    for (std::uint32_t job = 0; job < shape_.jobs; ++job) {
      // They begin together but for a hundredth of an iteration.
      bed_.simulation().at(bed_.now() + job * shape_.compute / 100, [this, job] { begin(job); });
    }
    const auto all = [&] {
      return std::all_of(jobs_.begin(), jobs_.end(), [&](const Job& job) { return job.took.size() >= iterations; });
    };
    for (int steps = 0; steps < 100'000 && !all(); ++steps) bed_.simulation().run_for(std::chrono::milliseconds(10));
    std::vector<std::vector<double>> took;
    for (const Job& job : jobs_) took.push_back(job.took);
    return took;
  }

 private:
  struct Job {
    TimePoint began{};
    std::uint64_t arrived = 0;          // bytes of this iteration, of all flows
    std::vector<std::uint64_t> left{};  // by flow, not yet queued
    std::vector<double> took{};
  };

  static Setup setup(const Shape& shape, std::uint64_t seed) {
    Setup setup;
    setup.hosts = 2 * shape.jobs * shape.flows;
    setup.leaf_spine = true;
    setup.line_bps = kBps;
    setup.round_trip = setup.base_rtt = shape.round_trip;
    setup.seed = seed;
    setup.options = driver_options(kBps, 1);
    setup.path_known = true;
    return setup;
  }

  void begin(std::uint32_t number) {
    Job& job = jobs_[number];
    job.began = bed_.now();
    job.arrived = 0;
    job.left.assign(shape_.flows, shape_.bytes);
    for (std::uint32_t flow = 0; flow < shape_.flows; ++flow) {
      for (std::uint32_t i = 0; i < kOutstanding; ++i) push(number, flow);
    }
  }

  void push(std::uint32_t number, std::uint32_t flow) {
    Job& job = jobs_[number];
    if (job.left[flow] == 0) return;
    const auto bytes = static_cast<std::uint32_t>(std::min<std::uint64_t>(kMessage, job.left[flow]));
    job.left[flow] -= bytes;
    mlt::SendTerms terms;
    const std::uint64_t all = shape_.bytes * shape_.flows;
    if (pushes_) terms.turn.push = coflow::enforce::push_of(all - job.arrived, all);
    bed_.transfer(number * shape_.flows + flow, bytes, terms);
  }

  void done(const Done& what) {
    const std::uint32_t number = what.lane / shape_.flows, flow = what.lane % shape_.flows;
    Job& job = jobs_[number];
    job.arrived += what.bytes;
    push(number, flow);
    if (job.arrived < shape_.bytes * shape_.flows) return;
    bed_.simulation().at(bed_.now() + shape_.compute, [this, number] {
      jobs_[number].took.push_back(seconds(bed_.now() - jobs_[number].began));
      begin(number);
    });
  }

  const Shape shape_;
  const bool pushes_;
  Testbed bed_;
  std::vector<Job> jobs_;
};

double mean(const std::vector<double>& values, std::size_t from) {
  double sum = 0;
  for (std::size_t i = from; i < values.size(); ++i) sum += values[i];
  return sum / static_cast<double>(values.size() - from);
}

}  // namespace

Rows run_take_turns(const Settings& settings) {
  using std::chrono::milliseconds;
  constexpr Duration kNear = std::chrono::microseconds(100), kFar = milliseconds(1), kFarther = milliseconds(10);
  const Shape shapes[] = {{"one job, 0.1 ms", 1, 5'000'000, 1, milliseconds(300), kNear},
                          {"one job, 10 ms", 1, 5'000'000, 1, milliseconds(300), kFarther},
                          {"one job of 4 flows, 1 ms", 4, 1'250'000, 1, milliseconds(300), kFar},
                          {"two jobs, duty 0.4, 0.1 ms", 1, 5'000'000, 2, milliseconds(300), kNear},
                          {"two jobs, duty 0.4, 1 ms", 1, 5'000'000, 2, milliseconds(300), kFar},
                          {"two jobs, duty 0.4, 3 ms", 1, 5'000'000, 2, milliseconds(300), milliseconds(3)},
                          {"two jobs, duty 0.4, 10 ms", 1, 5'000'000, 2, milliseconds(300), kFarther},
                          {"two jobs, duty 0.5, 0.1 ms", 1, 5'000'000, 2, milliseconds(200), kNear},
                          {"two jobs of 4 flows, duty 0.4, 0.1 ms", 4, 1'250'000, 2, milliseconds(300), kNear},
                          {"two jobs of 4 flows, duty 0.4, 1 ms", 4, 1'250'000, 2, milliseconds(300), kFar},
                          {"three jobs, duty 0.3, 0.1 ms", 1, 5'000'000, 3, milliseconds(470), kNear}};
  const std::size_t iterations = settings.amount(10, 60, 200);
  Rows rows;
  for (const Shape& shape : shapes) {
    for (const bool pushes : {false, true}) {
      const char* arm = pushes ? "by progress" : "plain";
      settings.progress(std::string(shape.name) + ", " + arm);
      double first = 0, later = 0, worst = 0;
      for (std::uint64_t i = 0; i < settings.seeds; ++i) {
        for (const auto& took : Jobs(shape, pushes, settings.seed + i).run(iterations)) {
          const double parts = settings.seeds * shape.jobs;
          first += mean({took.begin(), took.begin() + static_cast<std::ptrdiff_t>(iterations / 5)}, 0) / parts;
          later += mean(took, iterations / 2) / parts;
          worst = std::max(worst, mean(took, iterations / 2));
        }
      }
      const double alone = seconds(shape.compute) + wire_bytes(kMessage, driver_options(kBps, 1)) / kMessage *
                                                        static_cast<double>(shape.bytes * shape.flows) * 8 / kBps;
      Row row(shape.name, arm);
      row.add("alone_ms", alone * 1e3).add("first_fifth_of_alone", first / alone);
      row.add("second_half_of_alone", later / alone).add("worst_job_of_alone", worst / alone);
      rows.push_back(row);
    }
  }
  return rows;
}

}  // namespace clustar::bench::sim
