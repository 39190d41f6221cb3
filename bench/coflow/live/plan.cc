#include "bench/coflow/live/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace clustar::bench::coflow::live {
namespace {

using clustar::coflow::CoflowSpec;
using clustar::coflow::FlowSpec;

// What a job's flows may join, wherever it is placed.
std::vector<std::pair<std::uint32_t, std::uint32_t>> all_pairs(std::size_t ports) {
  std::vector<std::pair<std::uint32_t, std::uint32_t>> pairs;
  for (std::uint32_t from = 0; from < ports; ++from) {
    for (std::uint32_t to = 0; to < ports; ++to) {
      if (from != to) pairs.emplace_back(from, to);
    }
  }
  return pairs;
}

bool may_ring(const Job& job) {
  return job.gpus > 1 &&
         std::any_of(job.phases.begin(), job.phases.end(), [](const Phase& phase) { return phase.ring_bytes > 0; });
}

std::size_t without_local(std::vector<FlowSpec>& flows) {
  return std::erase_if(flows, [](const FlowSpec& flow) { return flow.src == flow.dst; });
}

}  // namespace

void Plan::add(const Pair& pair) {
  of_[pair].push_back(static_cast<LaneId>(lanes_.size()));
  lanes_.push_back({{pair.from, pair.job}, {pair.to, pair.job}});
}

Plan Plan::of(const Trace& trace) {
  Plan plan;
  for (const CoflowSpec& coflow : trace.coflows) {
    for (const FlowSpec& flow : coflow.flows) plan.add({0, flow.src, flow.dst});
  }
  return plan;
}

Plan Plan::of(const JobMix& mix) {
  Plan plan;
  plan.jobs_ = true;
  for (std::size_t job = 0; job < mix.jobs.size(); ++job) {
    for (const Phase& phase : mix.jobs[job].phases) {
      for (const FlowSpec& flow : phase.flows) {
        const Pair pair{static_cast<std::uint32_t>(job + 1), flow.src, flow.dst};
        if (!plan.of_.contains(pair)) plan.add(pair);
      }
    }
    if (mix.gpus_per_port == 0 || !may_ring(mix.jobs[job])) continue;
    for (const auto& [from, to] : all_pairs(mix.ports)) plan.add({static_cast<std::uint32_t>(job + 1), from, to});
  }
  return plan;
}

std::map<std::uint32_t, std::set<std::uint32_t>> Plan::jobs_of_hosts() const {
  std::map<std::uint32_t, std::set<std::uint32_t>> jobs;
  for (const Lane& lane : lanes_) {
    for (const Place& place : {lane.from, lane.to}) jobs[place.host].insert(place.job);
  }
  return jobs;
}

std::vector<LaneId> Plan::take(const CoflowSpec& coflow) {
  std::vector<LaneId> lanes;
  for (const FlowSpec& flow : coflow.flows) {
    const Pair pair{jobs_ ? static_cast<std::uint32_t>(coflow.label) : 0, flow.src, flow.dst};
    lanes.push_back(of_.at(pair).at(jobs_ ? 0 : taken_[pair]++));
  }
  return lanes;
}

std::size_t leave_out_local(Trace& trace) {
  std::size_t flows = 0;
  for (CoflowSpec& coflow : trace.coflows) flows += without_local(coflow.flows);
  std::erase_if(trace.coflows, [](const CoflowSpec& coflow) { return coflow.flows.empty(); });
  return flows;
}

std::size_t leave_out_local(JobMix& mix) {
  std::size_t flows = 0;
  for (Job& job : mix.jobs) {
    for (Phase& phase : job.phases) flows += without_local(phase.flows);
  }
  return flows;
}

void scale(Trace& trace, double by) {
  for (CoflowSpec& coflow : trace.coflows) {
    for (FlowSpec& flow : coflow.flows) flow.bytes *= by;
  }
}

void scale(JobMix& mix, double by) {
  for (Job& job : mix.jobs) {
    for (Phase& phase : job.phases) {
      phase.ring_bytes *= by;
      for (FlowSpec& flow : phase.flows) flow.bytes *= by;
    }
  }
}

Result<void> check_size(const Plan& plan, const std::string& workload, bool jobs) {
  if (plan.lanes().size() > kMostLanes) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("{} has {} flows; allowed: {}, each is a connection", workload,
                                                         plan.lanes().size(), kMostLanes));
  }
  if (!jobs) return {};
  std::size_t most = 0, places = 0;
  for (const auto& [host, of_host] : plan.jobs_of_hosts()) {
    most = std::max(most, of_host.size());
    places += of_host.size();
  }
  if (most > kMostJobsOfAHost || places > kMostPlaces) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} has {} jobs that send from a host, and {} pairs of a job and a host; allowed: {} and "
                            "{}, each pair is a process; fewer jobs or hosts",
                            workload, most, places, kMostJobsOfAHost, kMostPlaces));
  }
  return {};
}

double bottleneck(const CoflowSpec& coflow) {
  std::map<clustar::coflow::PortId, double> out, in;
  double most = 0;
  for (const FlowSpec& flow : coflow.flows) {
    most = std::max({most, out[flow.src] += flow.bytes, in[flow.dst] += flow.bytes});
  }
  return most;
}

}  // namespace clustar::bench::coflow::live
