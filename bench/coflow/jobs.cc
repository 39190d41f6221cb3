#include "bench/coflow/jobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace clustar::bench::coflow {
namespace {

using clustar::coflow::CoflowSpec;
using clustar::coflow::FlowSpec;
using clustar::coflow::PortId;

double seconds(Duration time) { return std::chrono::duration<double>(time).count(); }

// Bytes by port: what each sends, then what each receives.
class PortBytes {
 public:
  explicit PortBytes(std::size_t ports = 0) : out_(ports, 0), in_(ports, 0) {}
  void add(const std::vector<FlowSpec>& flows, double times = 1) {
    for (const FlowSpec& flow : flows) {
      const std::size_t ports = std::max<std::size_t>({flow.src + 1, flow.dst + 1, out_.size()});
      out_.resize(ports, 0);
      in_.resize(ports, 0);
      out_[flow.src] += times * flow.bytes;
      in_[flow.dst] += times * flow.bytes;
    }
  }
  double most() const {
    double most = 0;
    for (std::size_t port = 0; port < out_.size(); ++port) most = std::max({most, out_[port], in_[port]});
    return most;
  }
  double mean() const {
    if (out_.empty()) return 0;
    return std::accumulate(out_.begin(), out_.end(), 0.0) / static_cast<double>(out_.size());
  }

 private:
  std::vector<double> out_, in_;
};

double busiest_bytes(const std::vector<FlowSpec>& flows) {
  PortBytes bytes;
  bytes.add(flows);
  return bytes.most();
}

bool sends(const Phase& phase) {
  return std::any_of(phase.flows.begin(), phase.flows.end(), [](const FlowSpec& flow) { return flow.bytes > 0; });
}

void add_ring(Phase& phase, const std::vector<PortId>& ports) {
  if (phase.ring_bytes <= 0 || ports.size() < 2) return;
  for (std::size_t i = 0; i < ports.size(); ++i) {
    phase.flows.push_back({ports[i], ports[(i + 1) % ports.size()], phase.ring_bytes});
  }
}

// Every coflow takes what it takes alone.
Load load_unslowed(const JobMix& mix, double bytes_per_s) {
  using End = std::pair<TimePoint, std::size_t>;
  std::priority_queue<End, std::vector<End>, std::greater<>> ends;
  JobWorkload workload(mix, bytes_per_s);
  PortBytes bytes(mix.ports);
  std::size_t taken = 0;
  while (true) {
    const auto next = workload.next_arrival();
    if (!ends.empty() && (!next || ends.top().first <= *next)) {
      const End end = ends.top();
      ends.pop();
      workload.ended(end.second, end.first);
      workload.reached(end.first);
      continue;
    }
    if (!next) break;
    workload.reached(*next);
    for (auto now = workload.next_arrival(); now && *now <= *next; now = workload.next_arrival()) {
      const CoflowSpec coflow = workload.take();
      bytes.add(coflow.flows);
      const double ns = busiest_bytes(coflow.flows) / bytes_per_s * 1e9;
      ends.emplace(*now + Duration(static_cast<Duration::rep>(ns)), taken++);
    }
  }
  TimePoint first = TimePoint::max(), last{};
  for (const JobResult& job : workload.results()) {
    first = std::min(first, job.began);
    last = std::max(last, job.ended);
  }
  if (last <= first) return {};
  const double most = seconds(last - first) * bytes_per_s;
  return {bytes.most() / most, bytes.mean() / most};
}

}  // namespace

Alone alone(const std::vector<Phase>& phases, Duration compute_after, double bytes_per_s) {
  Alone sum;
  Duration compute = compute_after;
  for (const Phase& phase : phases) {
    compute += phase.compute;
    sum.communication_s += busiest_bytes(phase.flows) / bytes_per_s;
  }
  sum.compute_s = seconds(compute);
  return sum;
}

double spread_alone_s(const Job& job, double bytes_per_s) {
  double seconds = alone(job.phases, job.compute_after, bytes_per_s).iteration_s();
  for (const Phase& phase : job.phases) seconds += phase.ring_bytes / bytes_per_s;
  return seconds;
}

bool may_ring(const Job& job) {
  return job.gpus > 1 &&
         std::any_of(job.phases.begin(), job.phases.end(), [](const Phase& phase) { return phase.ring_bytes > 0; });
}

Load load_of(const JobMix& mix, double bytes_per_s) {
  if (mix.gpus_per_port > 0) return load_unslowed(mix, bytes_per_s);
  PortBytes bytes_each_s(mix.ports);
  for (const Job& job : mix.jobs) {
    const double iteration_s = alone(job.phases, job.compute_after, bytes_per_s).iteration_s();
    if (iteration_s <= 0) continue;
    for (const Phase& phase : job.phases) bytes_each_s.add(phase.flows, 1 / iteration_s);
  }
  return {bytes_each_s.most() / bytes_per_s, bytes_each_s.mean() / bytes_per_s};
}

JobSize size_of(const Job& job, std::size_t ports) {
  const std::size_t ring = std::min(job.gpus, ports);
  JobSize size{1, 0, 0};
  for (const Phase& phase : job.phases) {
    const std::size_t flows = phase.flows.size() + (phase.ring_bytes > 0 && ring > 1 ? ring : 0);
    size.coflows += flows > 0 ? 1 : 0;
    size.flows += static_cast<double>(flows);
  }
  const double times = static_cast<double>(job.iterations);
  return {times, size.coflows * times, size.flows * times};
}

Result<void> add_size(const JobSize& more, const std::string& lower, JobSize& size) {
  size = {size.iterations + more.iterations, size.coflows + more.coflows, size.flows + more.flows};
  const JobSize& most = kMaxMixSize;
  if (size.iterations <= most.iterations && size.coflows <= most.coflows && size.flows <= most.flows) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{:.2g} iterations, {:.2g} coflows and {:.2g} flows of all jobs up to here; allowed: {:.0e}, "
                          "{:.0e} and {:.0e}; {} for less",
                          size.iterations, size.coflows, size.flows, most.iterations, most.coflows, most.flows, lower));
}

JobWorkload::JobWorkload(const JobMix& mix, double bytes_per_s)
    : mix_(mix),
      bytes_per_s_(bytes_per_s),
      running_(mix.jobs.size()),
      free_(mix.ports, mix.gpus_per_port),
      all_free_(mix.ports * mix.gpus_per_port),
      results_(mix.jobs.size()) {
  for (std::size_t job = 0; job < mix.jobs.size(); ++job) events_.emplace(mix.jobs[job].begins, Kind::kBegins, job);
  settle();
}

std::optional<TimePoint> JobWorkload::next_arrival() const {
  if (events_.empty()) return std::nullopt;
  return std::get<TimePoint>(events_.top());
}

void JobWorkload::reached(TimePoint now) {
  now_ = std::max(now_, now);
  settle();
}

// What comes before the next coflow, as far as time has come.
void JobWorkload::settle() {
  while (!events_.empty()) {
    const auto [at, kind, job] = events_.top();
    if (at > now_ || kind == Kind::kSends) return;
    events_.pop();
    if (kind == Kind::kEnds) {
      for (const PortId port : running_[job].gpus) ++free_[port];
      all_free_ += running_[job].gpus.size();
      running_[job] = {};
    } else if (mix_.gpus_per_port == 0) {
      running_[job].phases = mix_.jobs[job].phases;
      begin(job, at);
    } else {
      waiting_.push(job);
    }
    begin_waiting(at);
  }
}

void JobWorkload::begin_waiting(TimePoint now) {
  while (!waiting_.empty() && place(waiting_.front())) {
    begin(waiting_.front(), now);
    waiting_.pop();
  }
}

// False: too few GPUs are free.
bool JobWorkload::place(std::size_t job) {
  const std::size_t gpus = mix_.jobs[job].gpus;
  if (gpus > all_free_) return false;
  Running& running = running_[job];
  for (std::size_t i = 0; i < gpus; ++i) {
    const auto most = std::max_element(free_.begin(), free_.end());
    --*most;
    running.gpus.push_back(static_cast<PortId>(most - free_.begin()));
  }
  all_free_ -= gpus;
  std::vector<PortId> ports = running.gpus;
  std::sort(ports.begin(), ports.end());
  ports.erase(std::unique(ports.begin(), ports.end()), ports.end());
  running.phases = mix_.jobs[job].phases;
  for (Phase& phase : running.phases) add_ring(phase, ports);
  return true;
}

void JobWorkload::begin(std::size_t job, TimePoint now) {
  running_[job].iteration_began = results_[job].began = now;
  results_[job].alone_s = alone(running_[job].phases, mix_.jobs[job].compute_after, bytes_per_s_).iteration_s();
  go_on(job, now);
}

// From the end of a phase, or the start of the job, to the next phase that sends, or the end of the job.
void JobWorkload::go_on(std::size_t job, TimePoint now) {
  Running& running = running_[job];
  JobResult& result = results_[job];
  while (result.iterations_s.size() < mix_.jobs[job].iterations) {
    for (; running.next < running.phases.size(); ++running.next) {
      now += running.phases[running.next].compute;
      if (!sends(running.phases[running.next])) continue;
      events_.emplace(now, Kind::kSends, job);
      return;
    }
    now += mix_.jobs[job].compute_after;
    result.iterations_s.push_back(seconds(now - running.iteration_began));
    running.iteration_began = now;
    running.next = 0;
  }
  result.ended = now;
  events_.emplace(now, Kind::kEnds, job);
}

CoflowSpec JobWorkload::take() {
  const auto [at, kind, job] = events_.top();
  events_.pop();
  CoflowSpec spec;
  spec.label = job + 1;
  spec.job = job + 1;
  spec.arrival = at;
  spec.weight = mix_.jobs[job].weight;
  spec.flows = running_[job].phases[running_[job].next].flows;
  taken_of_.push_back(job);
  settle();
  return spec;
}

void JobWorkload::ended(std::size_t nth, TimePoint now) {
  const std::size_t job = taken_of_[nth];
  ++running_[job].next;
  go_on(job, now);
  settle();
}

}  // namespace clustar::bench::coflow
