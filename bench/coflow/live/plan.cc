#include "bench/coflow/live/plan.h"

#include <algorithm>

namespace clustar::bench::coflow::live {
namespace {

using clustar::coflow::CoflowSpec;
using clustar::coflow::FlowSpec;

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
  }
  return plan;
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
      for (FlowSpec& flow : phase.flows) flow.bytes *= by;
    }
  }
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
