// Ordered coflows, each just fast enough that all of its flows end together: MADD with backfill, as Varys has it
// (Chowdhury, Zhong, Stoica, SIGCOMM 2014) and CoflowSim (github.com/coflow/coflowsim b61f209) does it.
//
// Coflow by coflow: Gamma is the longest that one of its ports needs at what is free there, and each flow gets
// left / Gamma. A coflow that needs a full port is skipped. What remains is shared, first among the flows of all that
// were skipped: equally at each port, the lesser of both shares; then all of it, flow by flow, coflows by their
// deadline, otherwise by arrival.
#pragma once

#include <vector>

#include "coflow/core/equal_shares.h"
#include "coflow/core/rates.h"
#include "coflow/core/scheduler.h"

namespace clustar::coflow {

struct MaddOptions {
  // A port with no more than this free counts as full. CoflowSim's 1e-3 bit/s is below the rounding errors of its sums:
  // whether a blocked coflow is skipped or gets next to nothing is decided by them.
  double full_below = 0;  // bytes per rate_unit; 0: a millionth of the ports' rate
  // Varys' deadlines: a coflow is admitted if it can end in time beside what was promised to those before it, gets what
  // ends it in time and no more by right, and the order is that of arrival.
  bool deadlines = false;
};

class Madd final : public Scheduler {
 public:
  // The lower goes first; equals in the order in which they arrived.
  using Key = double (*)(const Table& table, CoflowId coflow);
  enum class Keys { kAtArrival, kNow };  // kNow: all keys are taken again when a coflow takes its place

  Madd(const Table& table, Key key, Keys keys, const MaddOptions& options);

  bool reallocates_at_flow_ends() const override { return false; }
  bool admits(CoflowId coflow, TimePoint now) override;
  void arrived(CoflowId coflow, TimePoint now) override;
  void flow_added(FlowId flow, TimePoint now) override;
  void flow_ended(FlowId flow, TimePoint now) override;
  void departed(CoflowId coflow, TimePoint now) override;
  Allocation allocate(TimePoint now) override;

 private:
  struct Place {
    CoflowId coflow;
    double key;
  };
  // In rate_units; nothing where it needs a full port.
  std::optional<double> gamma(CoflowId coflow);
  void serve(CoflowId coflow, double gamma);
  void serve_in_order(TimePoint now);
  void backfill(TimePoint now);
  void take_used();

  const Table& table_;
  const Key key_;
  const Keys keys_;
  const bool deadlines_;
  const double full_;
  std::vector<Place> order_;
  Rates rates_;
  EqualShares shares_;
  // One allocation's.
  FreePorts free_;
  std::vector<CoflowId> skipped_;
  std::vector<double> used_out_, used_in_, load_out_;
};

}  // namespace clustar::coflow
