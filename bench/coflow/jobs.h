// Training jobs as a closed loop: compute, send, and only when all of that has arrived go on.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <string>
#include <tuple>
#include <vector>

#include "bench/coflow/workload.h"
#include "transport/base/result.h"

namespace clustar::bench::coflow {

struct Phase {
  Duration compute{0};  // before it
  std::vector<clustar::coflow::FlowSpec> flows{};
  double ring_bytes = 0;  // more flows, from each port of a job to its next one, where the mix places its jobs
};

struct Job {
  std::string name{};
  TimePoint begins{};   // or is submitted, where it may have to wait
  double weight = 1;    // of its coflows
  int deadline_ms = 0;  // of an iteration's bytes, where it is played under a coordinator; 0: none
  std::size_t iterations = 1;
  std::vector<Phase> phases{};  // of an iteration
  Duration compute_after{0};    // the last phase
  std::size_t gpus = 0;         // in a mix that places its jobs; at most all that there are
};

struct JobMix {
  std::string name{};
  std::size_t ports = 0;
  // 0: flows name the ports, and no job waits. Otherwise jobs wait, first come first served, until their GPUs are free;
  // each of these is then on the port that has most free, the lowest among equals: jobs spread, and share ports.
  std::size_t gpus_per_port = 0;
  std::vector<Job> jobs{};
  double scale = 1;  // times between jobs and iterations are those of a trace divided by this
};

// Of one iteration where nobody else sends.
struct Alone {
  double compute_s = 0;
  double communication_s = 0;  // phase by phase, what its busiest port and direction takes
  double iteration_s() const { return compute_s + communication_s; }
};
Alone alone(const std::vector<Phase>& phases, Duration compute_after, double bytes_per_s);
// Seconds of an iteration where nobody else sends, with its rings between several ports.
double spread_alone_s(const Job& job, double bytes_per_s);
// Of a job that gets its ports while it runs: it sends, should these be several.
bool may_ring(const Job& job);

// Of jobs that have their ports: what each sends in an iteration over the time of that alone, all of them at once.
// Of jobs that are placed: what all of them send over the time from first to last, if none slowed another.
Load load_of(const JobMix& mix, double bytes_per_s);

struct JobResult {
  TimePoint began;
  TimePoint ended;
  double alone_s = 0;  // Alone::iteration_s, on the ports that it got
  std::vector<double> iterations_s{};
};

// What a replay keeps of all iterations, and of all coflows even when they have ended; in doubles, as it may be too
// much for whole numbers. A job that is placed gets as many ports as it has GPUs, as far as there are any.
struct JobSize {
  double iterations = 0, coflows = 0, flows = 0;
};
inline constexpr JobSize kMaxMixSize{2e7, 2e6, 2e7};  // some GB
JobSize size_of(const Job& job, std::size_t ports);
// Up to `size` and with it; `lower` says which settings make it less.
Result<void> add_size(const JobSize& more, const std::string& lower, JobSize& size);

class JobWorkload final : public Workload {
 public:
  // `mix` outlives it.
  JobWorkload(const JobMix& mix, double bytes_per_s);

  std::size_t ports() const override { return mix_.ports; }
  std::optional<TimePoint> next_arrival() const override;
  void reached(TimePoint now) override;
  clustar::coflow::CoflowSpec take() override;  // its label is the job's place in the mix, from 1
  void ended(std::size_t nth, TimePoint now) override;

  const std::vector<JobResult>& results() const { return results_; }  // as the mix has its jobs

 private:
  // In this order where they are at the same time: a job that comes finds the GPUs of one that has gone.
  enum class Kind : std::uint8_t { kEnds, kBegins, kSends };
  using Event = std::tuple<TimePoint, Kind, std::size_t>;  // of a job
  struct Running {
    std::vector<Phase> phases;
    std::vector<clustar::coflow::PortId> gpus;  // of each its port
    std::size_t next = 0;                       // phase
    TimePoint iteration_began;
  };

  void settle();
  void begin_waiting(TimePoint now);
  void begin(std::size_t job, TimePoint now);
  bool place(std::size_t job);
  void go_on(std::size_t job, TimePoint now);

  const JobMix& mix_;
  const double bytes_per_s_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<Running> running_;       // by job
  std::vector<std::size_t> taken_of_;  // by coflow: its job
  std::queue<std::size_t> waiting_;
  std::vector<std::size_t> free_;  // GPUs by port
  std::size_t all_free_ = 0;
  TimePoint now_{};
  std::vector<JobResult> results_;
};

}  // namespace clustar::bench::coflow
