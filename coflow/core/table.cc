#include "coflow/core/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <tuple>

namespace clustar::coflow {
namespace {

constexpr double kNearlyDown = 1e-6;  // of the ports' rate

// Of the ends (senders or receivers) of a coflow, that at the port; made if there is none.
template <typename End>
std::uint32_t end_at(std::vector<End>& ends, PortId port) {
  const auto found = std::find_if(ends.begin(), ends.end(), [&](const End& one) { return one.port == port; });
  if (found != ends.end()) return static_cast<std::uint32_t>(found - ends.begin());
  ends.emplace_back().port = port;
  return static_cast<std::uint32_t>(ends.size() - 1);
}

}  // namespace

template <typename T>
std::uint32_t Table::Ids::take(std::vector<T>& all) {
  if (free_.empty()) {
    all.emplace_back();
    return static_cast<std::uint32_t>(all.size() - 1);
  }
  std::pop_heap(free_.begin(), free_.end(), std::greater<>());
  const std::uint32_t id = free_.back();
  free_.pop_back();
  all[id] = T{};
  return id;
}

void Table::Ids::give_back(std::uint32_t id) {
  free_.push_back(id);
  std::push_heap(free_.begin(), free_.end(), std::greater<>());
}

Table::Table(std::size_t ports, double rate, Duration rate_unit)
    : ports_(ports),
      rate_(rate),
      rate_unit_(rate_unit),
      out_(ports, rate),
      in_(ports, rate),
      scale_out_(ports, 1),
      scale_in_(ports, 1) {}

Result<void> Table::set_rate(PortId port, double out, double in) {
  const auto allowed = [](double rate) { return rate >= 0 && std::isfinite(rate); };
  if (port >= ports_ || !allowed(out) || !allowed(in)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("rates {} and {} of port {}; allowed: finite, not negative, of "
                            "ports 0 to {}",
                            out, in, port, ports_ - 1));
  }
  out_[port] = out;
  in_[port] = in;
  scale_out_[port] = rate_ / std::max(out, rate_ * kNearlyDown);
  scale_in_[port] = rate_ / std::max(in, rate_ * kNearlyDown);
  return {};
}

Result<void> Table::check(std::uint64_t label, const FlowSpec& flow) const {
  if (flow.src >= ports_ || flow.dst >= ports_) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("coflow {}: flow from port {} to {}; allowed: 0 to {}", label,
                                                         flow.src, flow.dst, ports_ - 1));
  }
  if (!(flow.bytes >= 0) || !std::isfinite(flow.bytes)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("coflow {}: flow of {} bytes; allowed: finite, not negative", label, flow.bytes));
  }
  return {};
}

Result<void> Table::check(const CoflowSpec& spec) const {
  if (!(spec.weight > 0) || !std::isfinite(spec.weight)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("coflow {}: weight {}; allowed: finite, above 0", spec.label, spec.weight));
  }
  if (spec.job >= std::uint64_t{1} << 63) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("coflow {}: job {}; allowed: below 2^63", spec.label, spec.job));
  }
  for (const FlowSpec& flow : spec.flows) {
    if (const auto checked = check(spec.label, flow); !checked) return checked;
  }
  return {};
}

Result<CoflowId> Table::add(const CoflowSpec& spec, TimePoint arrived) {
  if (const auto checked = check(spec); !checked) return tl::unexpected(checked.error());
  std::vector<const FlowSpec*> flows;
  for (const FlowSpec& flow : spec.flows) {
    if (flow.bytes > 0) flows.push_back(&flow);
  }
  // Flows of the same ends stay as they were given: their address is the last key.
  std::sort(flows.begin(), flows.end(), [](const FlowSpec* a, const FlowSpec* b) {
    return std::tie(a->dst, a->src, a) < std::tie(b->dst, b->src, b);
  });
  const CoflowId id = coflow_ids_.take(coflows_);
  Coflow& made = coflows_[id];
  made.label = spec.label;
  made.arrived = arrived;
  if (spec.deadline) made.due = arrived + *spec.deadline;
  made.weight = spec.weight;
  made.job = spec.job;
  // Ends first, so that their ports ascend.
  std::vector<std::uint32_t> sender_at(ports_, 0);
  for (const FlowSpec* flow : flows) sender_at[flow->src] = 1;
  for (PortId port = 0; port < ports_; ++port) {
    if (sender_at[port] == 0) continue;
    sender_at[port] = static_cast<std::uint32_t>(made.senders.size());
    made.senders.emplace_back().port = port;
  }
  made.flows.reserve(flows.size());
  for (const FlowSpec* spec_of : flows) {
    if (made.receivers.empty() || made.receivers.back().port != spec_of->dst) {
      made.receivers.emplace_back().port = spec_of->dst;
    }
    Receiver& receiver = made.receivers.back();
    Sender& sender = made.senders[sender_at[spec_of->src]];
    const FlowId at = flow_ids_.take(flows_);
    flows_[at] = {
        spec_of->src,  spec_of->dst, id, sender_at[spec_of->src], static_cast<std::uint32_t>(made.receivers.size() - 1),
        spec_of->bytes};
    receiver.live.push_back(at);
    receiver.left += spec_of->bytes;
    sender.left += spec_of->bytes;
    ++sender.unfinished;
    made.flows.push_back(at);
    made.bytes += spec_of->bytes;
  }
  made.unfinished = static_cast<std::uint32_t>(flows.size());
  return id;
}

Result<FlowId> Table::add_flow(CoflowId id, const FlowSpec& spec) {
  Coflow& coflow = coflows_[id];
  if (const auto checked = check(coflow.label, spec); !checked) return tl::unexpected(checked.error());
  if (spec.bytes <= 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("coflow {}: one more flow of {} bytes; allowed: above 0", coflow.label, spec.bytes));
  }
  const std::uint32_t sender = end_at(coflow.senders, spec.src);
  const std::uint32_t receiver = end_at(coflow.receivers, spec.dst);
  const FlowId at = flow_ids_.take(flows_);
  flows_[at] = {spec.src, spec.dst, id, sender, receiver, spec.bytes};
  auto& live = coflow.receivers[receiver].live;
  const auto after = std::upper_bound(live.begin(), live.end(), spec.src,
                                      [&](PortId port, FlowId one) { return port < flows_[one].src; });
  live.insert(after, at);
  coflow.receivers[receiver].left += spec.bytes;
  coflow.senders[sender].left += spec.bytes;
  ++coflow.senders[sender].unfinished;
  coflow.flows.push_back(at);
  coflow.bytes += spec.bytes;
  ++coflow.unfinished;
  return at;
}

void Table::retire(CoflowId id) {
  for (const FlowId flow : coflows_[id].flows) flow_ids_.give_back(flow);
  coflows_[id] = Coflow{};
  coflow_ids_.give_back(id);
}

void Table::moved(FlowId id, double bytes) {
  sent(flows_[id].coflow, flows_[id].sender, bytes);
  lessened(id, bytes);
}

void Table::lessened(FlowId id, double bytes) {
  Flow& flow = flows_[id];
  Coflow& coflow = coflows_[flow.coflow];
  flow.left -= bytes;
  coflow.receivers[flow.receiver].left -= bytes;
  coflow.senders[flow.sender].left -= bytes;
}

void Table::finish(FlowId id) {
  Flow& flow = flows_[id];
  Coflow& coflow = coflows_[flow.coflow];
  Receiver& receiver = coflow.receivers[flow.receiver];
  const auto first = std::lower_bound(receiver.live.begin(), receiver.live.end(), flow.src,
                                      [&](FlowId one, PortId port) { return flows_[one].src < port; });
  const auto at = std::find(first, receiver.live.end(), id);
  if (at == receiver.live.end()) return;
  receiver.live.erase(at);
  Sender& sender = coflow.senders[flow.sender];
  // What rounding left.
  if (receiver.live.empty()) receiver.left = 0;
  if (--sender.unfinished == 0) sender.left = 0;
  flow.left = 0;
  --coflow.unfinished;
}

double Table::bottleneck(CoflowId id) const {
  double most = 0;
  for (const Sender& sender : coflows_[id].senders) most = std::max(most, load_out(sender.port, sender.left));
  for (const Receiver& receiver : coflows_[id].receivers) {
    most = std::max(most, load_in(receiver.port, receiver.left));
  }
  return most;
}

}  // namespace clustar::coflow
