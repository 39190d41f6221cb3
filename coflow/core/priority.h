// Strict priority between classes of flows, max-min fairness inside each: what TCP gives behind priority queues.
//
// A class whose flows are the same as in the allocation before, and whose ports have the same left for it, keeps its
// rates: what changes on few ports costs little, however many flows there are.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "coflow/core/links.h"
#include "coflow/core/max_min.h"
#include "coflow/core/rates.h"

namespace clustar::coflow {

class StrictPriority {
 public:
  explicit StrictPriority(const Table& table);

  void arrived(CoflowId coflow);
  void flow_added(FlowId flow);
  void flow_ended(FlowId flow);
  void departed(CoflowId coflow);

  // An allocation: begin, classes by priority, end. Coflows that are in no class get nothing.
  void begin();
  // The next class: all unfinished flows of these coflows.
  void serve(std::span<const CoflowId> coflows) { serve(coflows, {}); }
  // Only what senders with `chosen[sender index]` send of a coflow. In each allocation each sender of it is chosen
  // once.
  void serve_senders(CoflowId coflow, const std::vector<bool>& chosen) { serve({&coflow, 1}, chosen); }
  // Whether a further class could get anything.
  bool any_free() const { return senders_free_ > 0 && receivers_free_ > 0; }
  // Of the class served last: what it gets in all, and what this port sends of it.
  double rate() const { return classes_[place_ - 1].rate; }
  double rate_out(PortId port) const;
  std::span<const RateChange> end();

 private:
  struct PortUse {
    PortId port;
    double before, used;  // what was free, and what the class took of it
  };
  struct Class {
    std::vector<CoflowId> coflows{};
    std::vector<bool> chosen{};        // senders; empty: all
    std::uint32_t filled = 0;          // the allocation in which it was
    std::vector<PortUse> out{}, in{};  // where it has flows; ports ascending
    PortShares shares{};
    double rate = 0;
  };

  void serve(std::span<const CoflowId> coflows, const std::vector<bool>& chosen);
  bool same_flows(const Class& one, std::span<const CoflowId> coflows, const std::vector<bool>& chosen) const;
  bool same_ports(const Class& one) const;
  void fill(Class& one, bool same_members);
  void list_ports(Class& one);
  void share(const Class& one, const PortShares* before);
  void take(const Class& one);
  void stop(CoflowId coflow);
  void set(FlowId flow, double rate) {
    if (rates_[flow] == rate) return;
    rates_[flow] = rate;
    changes_.push_back({flow, rate});
  }

  const Table& table_;
  const double full_;
  FreePorts free_;
  std::size_t senders_free_ = 0, receivers_free_ = 0;
  MaxMinFilling filling_;
  std::vector<Class> classes_;                 // by place in the last allocation
  std::size_t place_ = 0;                      // the next
  std::uint32_t round_ = 0;                    // allocations so far
  std::vector<std::unique_ptr<Links>> links_;  // by coflow
  std::vector<std::uint32_t> ended_;           // by coflow: the allocation after which a flow ended last
  std::vector<std::uint32_t> added_;           // by coflow: the same of a flow that was added
  std::vector<std::uint32_t> served_;          // by coflow: the allocation in which it was in a class last
  std::vector<CoflowId> left_out_;             // were in a class before, and may be in none now
  std::vector<const Links*> members_;
  std::vector<double> rates_;  // by flow
  std::vector<RateChange> changes_;
};

}  // namespace clustar::coflow
