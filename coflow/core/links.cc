#include "coflow/core/links.h"

#include <algorithm>

namespace clustar::coflow {

bool PortSet::meets(const PortSet& other) const {
  for (std::size_t i = 0; i < words_.size(); ++i) {
    if ((words_[i] & other.words_[i]) != 0) return true;
  }
  return false;
}

bool PortSet::empty() const {
  return std::all_of(words_.begin(), words_.end(), [](std::uint64_t word) { return word == 0; });
}

std::size_t PortSet::common(const PortSet& other) const {
  std::size_t count = 0;
  for (std::size_t i = 0; i < words_.size(); ++i) {
    count += static_cast<std::size_t>(std::popcount(words_[i] & other.words_[i]));
  }
  return count;
}

namespace {

// Of a receiver's flows, those of one sender, which are side by side.
std::span<const FlowId> flows_between(const Table& table, const Receiver& receiver, PortId src) {
  const auto flows = table.flows_to(receiver);
  const auto first = std::lower_bound(flows.begin(), flows.end(), src,
                                      [&](FlowId one, PortId port) { return table.flow(one).src < port; });
  const auto last = std::find_if(first, flows.end(), [&](FlowId one) { return table.flow(one).src != src; });
  return {first, last};
}

}  // namespace

Links::Links(const Table& table, CoflowId id) : coflow_(id) {
  const Coflow& coflow = table.coflow(id);
  const auto prepare = [&](Ends& ends, const auto& all) {
    ends.ports = PortSet(table.ports());
    ends.peers.assign(all.size(), PortSet(table.ports()));
    ends.at.assign(table.ports(), 0);
    for (std::size_t i = 0; i < all.size(); ++i) ends.at[all[i].port] = static_cast<std::uint16_t>(i);
  };
  prepare(out_, coflow.senders);
  prepare(in_, coflow.receivers);
  for (const Receiver& receiver : coflow.receivers) {
    for (const FlowId at : table.flows_to(receiver)) {
      const Flow& flow = table.flow(at);
      several_ = several_ || out_.peers[flow.sender].test(flow.dst);
      out_.peers[flow.sender].set(flow.dst);
      in_.peers[flow.receiver].set(flow.src);
      out_.ports.set(flow.src);
      in_.ports.set(flow.dst);
    }
  }
}

std::size_t Links::count_between(const Table& table, PortId src, PortId dst) const {
  return flows_between(table, table.coflow(coflow_).receivers[in_.at[dst]], src).size();
}

std::size_t Links::at(const Table& table, PortId port, bool sends, const PortSet& others) const {
  const PortSet& peers = (sends ? out_ : in_).peers_of(port);
  if (!several_) return peers.common(others);
  std::size_t count = 0;
  peers.for_each_common(others, [&](PortId other) {
    count += sends ? count_between(table, port, other) : count_between(table, other, port);
  });
  return count;
}

void Links::flow_added(const Table& table, FlowId id) {
  const Flow& flow = table.flow(id);
  const auto grow = [&](Ends& ends, std::uint32_t index, PortId port) {
    if (index >= ends.peers.size()) ends.peers.resize(index + 1, PortSet(table.ports()));
    ends.at[port] = static_cast<std::uint16_t>(index);
    ends.ports.set(port);
  };
  grow(out_, flow.sender, flow.src);
  grow(in_, flow.receiver, flow.dst);
  several_ = several_ || out_.peers[flow.sender].test(flow.dst);
  out_.peers[flow.sender].set(flow.dst);
  in_.peers[flow.receiver].set(flow.src);
}

void Links::flow_ended(const Table& table, FlowId id) {
  const Flow& flow = table.flow(id);
  if (several_ && count_between(table, flow.src, flow.dst) > 0) return;
  out_.peers[flow.sender].clear(flow.dst);
  in_.peers[flow.receiver].clear(flow.src);
  if (out_.peers[flow.sender].empty()) out_.ports.clear(flow.src);
  if (in_.peers[flow.receiver].empty()) in_.ports.clear(flow.dst);
}

}  // namespace clustar::coflow
