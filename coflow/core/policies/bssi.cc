#include "coflow/core/policies/bssi.h"

#include <utility>

#include "coflow/core/levels.h"

namespace clustar::coflow {

std::vector<CoflowId> bssi_order_of(const Table& table, std::span<const CoflowId> coflows, BssiOrder& order) {
  std::vector<std::vector<BssiItem::Load>> loads(coflows.size());
  std::vector<BssiItem> items;
  const auto ports = static_cast<std::uint32_t>(table.ports());
  for (std::size_t i = 0; i < coflows.size(); ++i) {
    const Coflow& coflow = table.coflow(coflows[i]);
    for (const Sender& sender : coflow.senders) {
      if (sender.left > 0) loads[i].push_back({sender.port, table.load_out(sender.port, sender.left)});
    }
    for (const Receiver& receiver : coflow.receivers) {
      if (receiver.left > 0) loads[i].push_back({ports + receiver.port, table.load_in(receiver.port, receiver.left)});
    }
    items.push_back({loads[i], coflow.weight});
  }
  std::vector<CoflowId> ordered;
  for (const std::uint32_t at : order(items)) ordered.push_back(coflows[at]);
  return ordered;
}

Bssi::Bssi(const Table& table, const BssiOptions& options)
    : table_(table), options_(options), order_(2 * table.ports()), priority_(table) {}

void Bssi::arrived(CoflowId coflow, TimePoint) {
  coflows_.push_back(coflow);
  priority_.arrived(coflow);
  reorder_ = true;
}

void Bssi::flow_added(FlowId flow, TimePoint) {
  priority_.flow_added(flow);
  reorder_ = true;
}

void Bssi::flow_ended(FlowId flow, TimePoint) { priority_.flow_ended(flow); }

void Bssi::departed(CoflowId coflow, TimePoint) {
  std::erase(coflows_, coflow);
  priority_.departed(coflow);
  reorder_ = true;
}

Allocation Bssi::allocate(TimePoint) {
  if (std::exchange(reorder_, false)) {
    classes_ = into_levels(table_, bssi_order_of(table_, coflows_, order_), options_.levels, options_.spread);
  }
  priority_.begin();
  for (const auto& one : classes_) {
    if (!priority_.any_free()) break;
    priority_.serve(one);
  }
  return {priority_.end(), nullptr};
}

}  // namespace clustar::coflow
