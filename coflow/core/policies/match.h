// Our own: coflows in BSSI order, and each port serves one flow at a time at full rate.
//
// Coflow by coflow, ports that no coflow before it took are matched, most bytes of the coflow first, each with the port
// that has most among those it shares an unfinished flow with. So a coflow's bottleneck never waits for its lighter
// ports, and what a higher coflow leaves idle goes to the next at once. On one port, against sharing it among many
// flows, those served first end earlier and none later. Within a coflow a flow that runs is not interrupted but by a
// new order.
//
// An ended flow frees two ports: only who comes after its coflow is looked at, and of those only who wants a freed
// port.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>

#include "coflow/core/bssi_order.h"
#include "coflow/core/links.h"
#include "coflow/core/policies/turns.h"
#include "coflow/core/scheduler.h"

namespace clustar::coflow {

class Match final : public Scheduler {
 public:
  // With `turns` jobs take them (turns.h).
  explicit Match(const Table& table, const std::optional<TurnsOptions>& turns = {});
  ~Match() override;

  bool reallocates_at_flow_ends() const override { return true; }
  void arrived(CoflowId coflow, TimePoint now) override;
  void flow_added(FlowId flow, TimePoint now) override;
  void flow_ended(FlowId flow, TimePoint now) override;
  void departed(CoflowId coflow, TimePoint now) override;
  void port_changed(PortId port, TimePoint now) override;
  Allocation allocate(TimePoint now) override;
  std::optional<TimePoint> next_timeout(TimePoint now) const override;

 private:
  static constexpr std::uint32_t kNobody = std::numeric_limits<std::uint32_t>::max();
  static constexpr FlowId kNone = std::numeric_limits<FlowId>::max();

  // One direction of all ports.
  struct Side {
    std::vector<std::uint32_t> owner;  // place in the order of the coflow that is served there; kNobody
    std::vector<FlowId> flow;          // that is served there; kNone
    PortSet freed;                     // may be taken by those that are still to be looked at
  };
  struct Active {
    CoflowId coflow;
    std::uint32_t place = 0;
    Links links;
  };
  struct Candidate {
    double left;
    PortId port;
    bool sends;
  };

  double left_at(const Active& active, PortId port, bool sends) const;
  void reorder(TimePoint now);
  void look_at(const Active& active);
  void match(const Active& active, const Candidate& port);
  void serve(const Active& active, PortId src, PortId dst);
  void displace(Side& side, PortId port);
  void touch(FlowId flow) { touched_.push_back(flow); }

  const Table& table_;
  BssiOrder order_;
  std::optional<JobTurns> turns_;
  std::optional<TimePoint> order_until_;
  std::vector<std::unique_ptr<Active>> active_;  // in order; new ones at the end until they are ordered
  std::vector<Active*> by_coflow_;               // by id
  bool reorder_ = false;
  std::uint32_t from_ = kNobody;  // the first place to look at
  Side out_, in_;
  std::vector<bool> served_;     // by flow
  std::vector<double> told_;     // by flow: the rate that was given out
  std::vector<FlowId> touched_;  // flows for which these may differ
  std::vector<RateChange> changes_;
  std::vector<Candidate> candidates_;
};

}  // namespace clustar::coflow
