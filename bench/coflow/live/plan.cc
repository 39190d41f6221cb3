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

std::size_t without_local(std::vector<FlowSpec>& flows) {
  return std::erase_if(flows, [](const FlowSpec& flow) { return flow.src == flow.dst; });
}

// Of a connection both ends keep each other.
std::size_t neighbours_of(const Plan& plan) {
  std::set<std::pair<std::uint32_t, std::uint32_t>> pairs;
  for (const Plan::Lane& lane : plan.lanes()) {
    pairs.emplace(lane.from.host, lane.to.host);
    pairs.emplace(lane.to.host, lane.from.host);
  }
  return pairs.size();
}

}  // namespace

std::string name_of(const Place& place, const std::vector<std::string>& jobs) {
  if (place.job == 0) return fmt::format("host {}", place.host);
  const std::string job = place.job <= jobs.size() ? jobs[place.job - 1] : std::to_string(place.job);
  return fmt::format("host {}, job {}", place.host, job);
}

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

std::vector<std::string> names_of(const JobMix& mix) {
  std::vector<std::string> names;
  for (const Job& job : mix.jobs) names.push_back(job.name);
  return names;
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

Result<void> check_size(const Plan& plan, const std::string& workload, const SizeLimits& limits) {
  if (plan.lanes().size() > kMostLanes) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} has {} flows; allowed: {}, each is a connection; {} for less", workload,
                            plan.lanes().size(), kMostLanes, limits.lower));
  }
  if (const std::size_t neighbours = neighbours_of(plan); neighbours > kMostNeighbours) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: hosts have {} neighbours; allowed: {} in all, as 30 hosts have that all connect, "
                            "since the kernel keeps so few; {} for less",
                            workload, neighbours, kMostNeighbours, limits.lower));
  }
  std::size_t most = 0, places = 0;
  for (const auto& [host, of_host] : plan.jobs_of_hosts()) {
    most = std::max(most, of_host.size());
    places += of_host.size();
  }
  if (limits.of_host && most > kMostJobsOfAHost) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("{} has {} jobs that send from a host; allowed: {}, as their processes agree on their order; "
                    "{} for less",
                    workload, most, kMostJobsOfAHost, limits.lower));
  }
  if (limits.in_all && places > kMostPlaces) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} has {} pairs of a job and a host; allowed: {}, each is a process; {} for less",
                            workload, places, kMostPlaces, limits.lower));
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
