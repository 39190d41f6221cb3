#include "bench/coflow/shared_flows.h"

#include <algorithm>
#include <limits>

namespace clustar::bench::coflow {

void SharedFlows::add(clustar::coflow::FlowId id, const clustar::coflow::Flow& flow) {
  flows_.push_back({flow.left, static_cast<std::uint16_t>(flow.src), static_cast<std::uint16_t>(flow.dst), id});
  if (bytes_.size() <= id) bytes_.resize(id + 1, 0);
  bytes_[id] = flow.left;
}

double SharedFlows::first_end(const clustar::coflow::PortShares& shares) const {
  double first = std::numeric_limits<double>::infinity();
  for (const One& one : flows_) first = std::min(first, one.left / std::min(shares.out[one.src], shares.in[one.dst]));
  return first;
}

const std::vector<SharedFlows::Ended>& SharedFlows::advance(double time, const clustar::coflow::PortShares& shares,
                                                            double nothing) {
  ended_.clear();
  out_.resize(shares.out.size());
  in_.resize(shares.in.size());
  const auto in_time = [&](double share) { return share * time; };
  std::transform(shares.out.begin(), shares.out.end(), out_.begin(), in_time);
  std::transform(shares.in.begin(), shares.in.end(), in_.begin(), in_time);
  for (std::size_t i = 0; i < flows_.size();) {
    One& one = flows_[i];
    const double moved = std::min(out_[one.src], in_[one.dst]);
    if (one.left - moved > nothing) {
      one.left -= moved;
      ++i;
      continue;
    }
    ended_.push_back({one.flow, bytes_[one.flow], one.left, moved / time});
    one = flows_.back();
    flows_.pop_back();
  }
  return ended_;
}

}  // namespace clustar::bench::coflow
