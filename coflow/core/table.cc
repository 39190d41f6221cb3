#include "coflow/core/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace clustar::coflow {

Table::Table(std::size_t ports, double rate, Duration rate_unit) : ports_(ports), rate_(rate), rate_unit_(rate_unit) {}

namespace {

std::vector<Sender> senders_of(const std::vector<FlowSpec>& flows, std::size_t ports) {
  std::vector<Sender> by_port(ports);
  for (const FlowSpec& flow : flows) {
    by_port[flow.src].left += flow.bytes;
    ++by_port[flow.src].unfinished;
  }
  std::vector<Sender> senders;
  for (PortId port = 0; port < ports; ++port) {
    by_port[port].port = port;
    if (by_port[port].unfinished > 0) senders.push_back(by_port[port]);
  }
  return senders;
}

}  // namespace

Result<CoflowId> Table::add(const CoflowSpec& spec, TimePoint arrived) {
  if (!(spec.weight > 0) || !std::isfinite(spec.weight)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("coflow {}: weight {}; allowed: finite, above 0", spec.label, spec.weight));
  }
  if (spec.job >= std::uint64_t{1} << 63) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("coflow {}: job {}; allowed: below 2^63", spec.label, spec.job));
  }
  for (const FlowSpec& flow : spec.flows) {
    if (flow.src >= ports_ || flow.dst >= ports_) {
      return fail(ErrorCode::kInvalidArgument, fmt::format("coflow {}: flow from port {} to {}; allowed: 0 to {}",
                                                           spec.label, flow.src, flow.dst, ports_ - 1));
    }
    if (!(flow.bytes >= 0) || !std::isfinite(flow.bytes)) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("coflow {}: flow of {} bytes; allowed: finite, not negative", spec.label, flow.bytes));
    }
  }
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < spec.flows.size(); ++i) {
    if (spec.flows[i].bytes > 0) order.push_back(i);
  }
  std::sort(order.begin(), order.end(), [&](std::size_t i, std::size_t j) {
    const FlowSpec &a = spec.flows[i], &b = spec.flows[j];
    return a.dst != b.dst ? a.dst < b.dst : a.src != b.src ? a.src < b.src : i < j;
  });
  std::vector<FlowSpec> sorted;
  for (const std::size_t i : order) sorted.push_back(spec.flows[i]);

  Coflow made;
  made.label = spec.label;
  made.arrived = arrived;
  if (spec.deadline) made.due = arrived + *spec.deadline;
  made.weight = spec.weight;
  made.job = spec.job;
  made.unfinished = static_cast<std::uint32_t>(sorted.size());
  const auto id = static_cast<CoflowId>(coflows_.size());
  made.senders = senders_of(sorted, ports_);
  for (const FlowSpec& flow : sorted) {
    const auto at = static_cast<std::uint32_t>(flows_.size());
    if (made.receivers.empty() || made.receivers.back().port != flow.dst) {
      made.receivers.push_back({flow.dst, at, at, 0});
    }
    const auto sender = std::lower_bound(made.senders.begin(), made.senders.end(), flow.src,
                                         [](const Sender& one, PortId port) { return one.port < port; });
    flows_.push_back({flow.src, flow.dst, id, static_cast<std::uint32_t>(sender - made.senders.begin()),
                      static_cast<std::uint32_t>(made.receivers.size() - 1), flow.bytes});
    live_.push_back(at);
    made.receivers.back().end = at + 1;
    made.receivers.back().left += flow.bytes;
    made.bytes += flow.bytes;
  }
  coflows_.push_back(std::move(made));
  return id;
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
  const auto begin = live_.begin() + receiver.begin, end = live_.begin() + receiver.end;
  // Senders ascend, and so do ids within a receiver.
  const auto at = std::lower_bound(begin, end, id);
  if (at == end || *at != id) return;
  std::copy(at + 1, end, at);
  --receiver.end;
  Sender& sender = coflow.senders[flow.sender];
  // What rounding left.
  if (receiver.begin == receiver.end) receiver.left = 0;
  if (--sender.unfinished == 0) sender.left = 0;
  flow.left = 0;
  --coflow.unfinished;
}

double Table::bottleneck(CoflowId id) const {
  double most = 0;
  for (const Sender& sender : coflows_[id].senders) most = std::max(most, sender.left);
  for (const Receiver& receiver : coflows_[id].receivers) most = std::max(most, receiver.left);
  return most;
}

}  // namespace clustar::coflow
