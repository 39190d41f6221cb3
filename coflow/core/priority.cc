#include "coflow/core/priority.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace clustar::coflow {

StrictPriority::StrictPriority(const Table& table)
    : table_(table), full_(table.rate() * 1e-6), free_(table), filling_(table) {}

void StrictPriority::arrived(CoflowId coflow) {
  links_.resize(table_.coflows());
  ended_.resize(table_.coflows(), 0);
  added_.resize(table_.coflows(), 0);
  served_.resize(table_.coflows(), 0);
  rates_.resize(table_.flows(), 0);
  links_[coflow] = std::make_unique<Links>(table_, coflow);
}

void StrictPriority::flow_added(FlowId flow) {
  const CoflowId coflow = table_.flow(flow).coflow;
  rates_.resize(table_.flows(), 0);
  links_[coflow]->flow_added(table_, flow);
  added_[coflow] = round_;
}

void StrictPriority::flow_ended(FlowId flow) {
  const CoflowId coflow = table_.flow(flow).coflow;
  links_[coflow]->flow_ended(table_, flow);
  ended_[coflow] = round_;
  rates_[flow] = 0;
}

void StrictPriority::departed(CoflowId coflow) { links_[coflow].reset(); }

void StrictPriority::begin() {
  ++round_;
  place_ = 0;
  free_ = FreePorts(table_);
  senders_free_ = receivers_free_ = table_.ports();
  changes_.clear();
}

bool StrictPriority::same_flows(const Class& one, std::span<const CoflowId> coflows,
                                const std::vector<bool>& chosen) const {
  return one.filled > 0 && chosen == one.chosen &&
         std::equal(coflows.begin(), coflows.end(), one.coflows.begin(), one.coflows.end()) &&
         std::none_of(coflows.begin(), coflows.end(), [&](CoflowId coflow) { return added_[coflow] >= one.filled; });
}

bool StrictPriority::same_ports(const Class& one) const {
  for (const CoflowId coflow : one.coflows) {
    if (ended_[coflow] >= one.filled) return false;
  }
  // Sums in another order differ by rounding.
  const double same = table_.rate() * 1e-9;
  const auto as_before = [&](const std::vector<PortUse>& uses, const std::vector<double>& free) {
    return std::all_of(uses.begin(), uses.end(),
                       [&](const PortUse& use) { return std::abs(free[use.port] - use.before) <= same; });
  };
  return as_before(one.out, free_.out) && as_before(one.in, free_.in);
}

void StrictPriority::list_ports(Class& one) {
  PortSet out(table_.ports()), in(table_.ports());
  for (const Links* links : members_) {
    links->out().ports.for_each([&](PortId port) { out.set(port); });
    links->in().ports.for_each([&](PortId port) { in.set(port); });
  }
  one.out.clear();
  one.in.clear();
  out.for_each([&](PortId port) { one.out.push_back({port, free_.out[port], 0}); });
  in.for_each([&](PortId port) { one.in.push_back({port, free_.in[port], 0}); });
}

void StrictPriority::fill(Class& one, bool same_members) {
  one.filled = round_;
  members_.clear();
  for (const CoflowId coflow : one.coflows) members_.push_back(links_[coflow].get());
  list_ports(one);
  PortSet senders(table_.ports());
  for (std::size_t i = 0; i < one.chosen.size(); ++i) {
    if (one.chosen[i]) senders.set(table_.coflow(one.coflows.front()).senders[i].port);
  }
  const PortShares before = std::move(one.shares);
  const double rate_before = std::exchange(one.rate, 0);
  FreePorts free = free_;
  filling_.fill(members_, one.chosen.empty() ? nullptr : &senders, full_, free, one.shares);
  for (PortUse& use : one.out) {
    use.used = use.before - free.out[use.port];
    one.rate += use.used;
  }
  for (PortUse& use : one.in) use.used = use.before - free.in[use.port];
  if (same_members && one.rate == 0 && rate_before == 0) return;
  share(one, same_members ? &before : nullptr);
}

// Rates from shares. `before`: those that the same flows had.
void StrictPriority::share(const Class& one, const PortShares* before) {
  PortSet others(table_.ports());  // senders whose share is another
  for (const PortUse& use : one.out) {
    if (before != nullptr && one.shares.out[use.port] != before->out[use.port]) others.set(use.port);
  }
  for (const CoflowId id : one.coflows) {
    for (const Receiver& receiver : table_.coflow(id).receivers) {
      const auto flows = table_.flows_to(receiver);
      if (flows.empty()) continue;
      const double most = one.shares.in[receiver.port];
      if (before != nullptr && most == before->in[receiver.port] &&
          !links_[id]->in().peers_of(receiver.port).meets(others)) {
        continue;
      }
      const FlowId* at = flows.data();
      if (one.chosen.empty() && !links_[id]->several()) {
        // Senders ascend as flows do.
        links_[id]->in().peers_of(receiver.port).for_each([&](PortId src) {
          set(*at++, std::min(most, one.shares.out[src]));
        });
        continue;
      }
      for (const FlowId flow : flows) {
        const Flow& it = table_.flow(flow);
        if (one.chosen.empty() || one.chosen[it.sender]) set(flow, std::min(most, one.shares.out[it.src]));
      }
    }
  }
}

void StrictPriority::take(const Class& one) {
  const auto from = [&](const std::vector<PortUse>& uses, std::vector<double>& free, std::size_t& count) {
    for (const PortUse& use : uses) {
      const bool was_free = free[use.port] > full_;
      free[use.port] -= use.used;
      if (was_free && free[use.port] <= full_) --count;
    }
  };
  from(one.out, free_.out, senders_free_);
  from(one.in, free_.in, receivers_free_);
}

void StrictPriority::serve(std::span<const CoflowId> coflows, const std::vector<bool>& chosen) {
  if (place_ == classes_.size()) classes_.emplace_back();
  Class& one = classes_[place_++];
  for (const CoflowId coflow : coflows) served_[coflow] = round_;
  const bool same = same_flows(one, coflows, chosen);
  if (!same) {
    left_out_.insert(left_out_.end(), one.coflows.begin(), one.coflows.end());
    one.coflows.assign(coflows.begin(), coflows.end());
    one.chosen = chosen;
  }
  if (!same || !same_ports(one)) fill(one, same);
  take(one);
}

double StrictPriority::rate_out(PortId port) const {
  const auto& uses = classes_[place_ - 1].out;
  const auto use =
      std::lower_bound(uses.begin(), uses.end(), port, [](const PortUse& one, PortId at) { return one.port < at; });
  return use != uses.end() && use->port == port ? use->used : 0;
}

void StrictPriority::stop(CoflowId coflow) {
  for (const Receiver& receiver : table_.coflow(coflow).receivers) {
    for (const FlowId flow : table_.flows_to(receiver)) set(flow, 0);
  }
}

std::span<const RateChange> StrictPriority::end() {
  for (std::size_t place = place_; place < classes_.size(); ++place) {
    left_out_.insert(left_out_.end(), classes_[place].coflows.begin(), classes_[place].coflows.end());
  }
  classes_.resize(place_);
  for (const CoflowId coflow : left_out_) {
    if (std::exchange(served_[coflow], round_) != round_) stop(coflow);
  }
  left_out_.clear();
  return changes_;
}

}  // namespace clustar::coflow
