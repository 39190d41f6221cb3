#include "coflow/core/policies/match.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

#include "coflow/core/policies/bssi.h"

namespace clustar::coflow {

Match::Match(const Table& table, const std::optional<TurnsOptions>& turns) : table_(table), order_(2 * table.ports()) {
  if (turns) turns_.emplace(table, *turns);
  for (Side* side : {&out_, &in_}) {
    side->owner.assign(table.ports(), kNobody);
    side->flow.assign(table.ports(), kNone);
    side->freed = PortSet(table.ports());
  }
}

Match::~Match() = default;

void Match::arrived(CoflowId id, TimePoint) {
  auto active = std::make_unique<Active>(Active{id, 0, Links(table_, id)});
  by_coflow_.resize(std::max<std::size_t>(by_coflow_.size(), id + 1), nullptr);
  by_coflow_[id] = active.get();
  active_.push_back(std::move(active));
  served_.resize(table_.flows(), false);
  told_.resize(table_.flows(), 0);
  if (turns_) turns_->arrived(id);
  reorder_ = true;
}

void Match::flow_added(FlowId id, TimePoint) {
  const CoflowId coflow = table_.flow(id).coflow;
  served_.resize(table_.flows(), false);
  told_.resize(table_.flows(), 0);
  by_coflow_[coflow]->links.flow_added(table_, id);
  if (turns_) turns_->flow_added(id);
  reorder_ = true;
}

// The order touches every flow that is served.
void Match::port_changed(PortId, TimePoint) { reorder_ = true; }

void Match::flow_ended(FlowId id, TimePoint) {
  const Flow& flow = table_.flow(id);
  Active& active = *by_coflow_[flow.coflow];
  if (served_[id]) {
    served_[id] = false;
    told_[id] = 0;
    out_.owner[flow.src] = in_.owner[flow.dst] = kNobody;
    out_.flow[flow.src] = in_.flow[flow.dst] = kNone;
    out_.freed.set(flow.src);
    in_.freed.set(flow.dst);
    from_ = std::min(from_, active.place);
  }
  active.links.flow_ended(table_, id);
}

void Match::departed(CoflowId coflow, TimePoint) {
  if (turns_) turns_->departed(coflow);
  by_coflow_[coflow] = nullptr;
  std::erase_if(active_, [&](const auto& one) { return one->coflow == coflow; });
  reorder_ = true;
}

void Match::reorder(TimePoint now) {
  std::vector<CoflowId> ids;
  for (const auto& one : active_) ids.push_back(one->coflow);
  std::uint32_t place = 0;
  const auto ordered = turns_ ? turns_->order(order_) : bssi_order_of(table_, ids, order_);
  for (const CoflowId id : ordered) by_coflow_[id]->place = place++;
  order_until_.reset();
  if (turns_) {
    const double good_ns = turns_->good_for() * static_cast<double>(table_.rate_unit().count());
    constexpr double kForever = 1e18;
    if (good_ns < kForever)
      order_until_ = now + Duration(std::max<Duration::rep>(static_cast<Duration::rep>(good_ns), 1));
  }
  std::sort(active_.begin(), active_.end(), [](const auto& a, const auto& b) { return a->place < b->place; });
  for (Side* side : {&out_, &in_}) {
    for (PortId port = 0; port < table_.ports(); ++port) {
      if (side->flow[port] != kNone) {
        served_[side->flow[port]] = false;
        touch(side->flow[port]);
      }
      side->owner[port] = kNobody;
      side->flow[port] = kNone;
      side->freed.set(port);
    }
  }
  from_ = 0;
}

double Match::left_at(const Active& active, PortId port, bool sends) const {
  const Coflow& coflow = table_.coflow(active.coflow);
  return sends ? coflow.senders[active.links.out().at[port]].left : coflow.receivers[active.links.in().at[port]].left;
}

void Match::displace(Side& side, PortId port) {
  const FlowId id = side.flow[port];
  if (id == kNone) return;
  const Flow& flow = table_.flow(id);
  served_[id] = false;
  touch(id);
  // The port that is not taken is free for those that are looked at later; the taken one is written over.
  out_.owner[flow.src] = in_.owner[flow.dst] = kNobody;
  out_.flow[flow.src] = in_.flow[flow.dst] = kNone;
  out_.freed.set(flow.src);
  in_.freed.set(flow.dst);
}

void Match::serve(const Active& active, PortId src, PortId dst) {
  displace(out_, src);
  displace(in_, dst);
  const auto flows = table_.flows_to(table_.coflow(active.coflow).receivers[active.links.in().at[dst]]);
  const FlowId flow = *std::lower_bound(flows.begin(), flows.end(), src,
                                        [&](FlowId one, PortId port) { return table_.flow(one).src < port; });
  served_[flow] = true;
  touch(flow);
  out_.owner[src] = in_.owner[dst] = active.place;
  out_.flow[src] = in_.flow[dst] = flow;
  out_.freed.clear(src);
  in_.freed.clear(dst);
}

// With the peer that has most left, of those that no coflow before this one, or itself, has taken.
void Match::match(const Active& active, const Candidate& one) {
  const Links::Ends& ends = one.sends ? active.links.out() : active.links.in();
  const Links::Ends& others = one.sends ? active.links.in() : active.links.out();
  const Side& across = one.sends ? in_ : out_;
  if ((one.sends ? out_ : in_).owner[one.port] <= active.place) return;
  const auto& rates_across = one.sends ? table_.rates_in() : table_.rates_out();
  if ((one.sends ? table_.rates_out() : table_.rates_in())[one.port] <= 0) return;
  std::optional<PortId> best;
  double most = 0;
  ends.peers_of(one.port).for_each_common(others.ports, [&](PortId peer) {
    if (rates_across[peer] <= 0 || (across.owner[peer] != kNobody && across.owner[peer] <= active.place)) return;
    const double left = left_at(active, peer, !one.sends);
    if (best && left <= most) return;
    most = left;
    best = peer;
  });
  if (!best) return;
  one.sends ? serve(active, one.port, *best) : serve(active, *best, one.port);
}

void Match::look_at(const Active& active) {
  candidates_.clear();
  active.links.out().ports.for_each_common(out_.freed, [&](PortId port) {
    candidates_.push_back({left_at(active, port, true), port, true});
  });
  active.links.in().ports.for_each_common(in_.freed, [&](PortId port) {
    candidates_.push_back({left_at(active, port, false), port, false});
  });
  std::sort(candidates_.begin(), candidates_.end(), [](const Candidate& a, const Candidate& b) {
    if (a.left != b.left) return a.left > b.left;
    return a.sends != b.sends ? a.sends : a.port < b.port;
  });
  for (const Candidate& one : candidates_) match(active, one);
}

std::optional<TimePoint> Match::next_timeout(TimePoint) const { return order_until_; }

Allocation Match::allocate(TimePoint now) {
  if (order_until_ && *order_until_ <= now) reorder_ = true;
  if (std::exchange(reorder_, false)) reorder(now);
  for (std::size_t place = from_; place < active_.size(); ++place) {
    const Active& active = *active_[place];
    if (!active.links.out().ports.meets(out_.freed) && !active.links.in().ports.meets(in_.freed)) continue;
    look_at(active);
  }
  from_ = kNobody;
  // What nobody wanted is no news to whom is looked at later, but free all the same.
  out_.freed = PortSet(table_.ports());
  in_.freed = PortSet(table_.ports());
  changes_.clear();
  for (const FlowId flow : touched_) {
    const Flow& one = table_.flow(flow);
    const double rate = served_[flow] ? table_.rate_between(one.src, one.dst) : 0;
    if (rate == told_[flow]) continue;
    told_[flow] = rate;
    changes_.push_back({flow, rate});
  }
  touched_.clear();
  return {changes_, nullptr};
}

}  // namespace clustar::coflow
