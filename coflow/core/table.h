// What is to be sent between which ports, and how much of it is left. Facts: the sender reports them, schedulers read
// them.
//
// A port sends and receives at its rates at once. Rates are bytes per rate_unit(), which is a second unless a
// simulation counts otherwise (CoflowSim's second has 1,024 ms). Ids are small numbers, for arrays. Those of a coflow
// that was retired, and of its flows, are given out again: what runs for months needs no more memory than what is
// present at once.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "transport/base/result.h"
#include "transport/base/time.h"

namespace clustar::coflow {

using PortId = std::uint32_t;    // 0 .. ports - 1
using FlowId = std::uint32_t;    // below Table::flows()
using CoflowId = std::uint32_t;  // below Table::coflows()

inline constexpr std::size_t kMaxPorts = 4096;  // of a table; schedulers keep what grows with ports squared

struct FlowSpec {
  PortId src = 0;
  PortId dst = 0;
  double bytes = 0;
};

struct CoflowSpec {
  std::uint64_t label = 0;  // the trace's or the job's name for it
  TimePoint arrival{};
  std::optional<Duration> deadline{};  // after its arrival
  double weight = 1;                   // of its job: GPU intensity times the tenant's share; above 0
  std::uint64_t job = 0;               // below 2^63; 0: of none
  std::vector<FlowSpec> flows{};
};

struct Flow {
  PortId src = 0;
  PortId dst = 0;
  CoflowId coflow = 0;
  std::uint32_t sender = 0, receiver = 0;  // their index in the coflow's
  double left = 0;                         // bytes; of an unfinished flow above 0
};

// What one port sends of a coflow, in bytes.
struct Sender {
  PortId port = 0;
  double left = 0;
  double sent = 0;
  std::uint32_t unfinished = 0;  // flows
};

// The flows of one coflow towards one port.
struct Receiver {
  PortId port = 0;
  double left = 0;             // bytes
  std::vector<FlowId> live{};  // unfinished; senders ascending, those of one sender as they came
};

struct Coflow {
  std::uint64_t label = 0;
  TimePoint arrived;
  std::optional<TimePoint> due;
  double weight = 1;
  std::uint64_t job = 0;
  double bytes = 0;
  double sent = 0;
  std::uint32_t unfinished = 0;     // flows
  std::vector<FlowId> flows;        // all, also those that have ended
  std::vector<Sender> senders;      // ports ascending, and those of flows that came later behind them
  std::vector<Receiver> receivers;  // likewise; those without unfinished flows are empty
};

class Table {
 public:
  // `ports`: 1 to kMaxPorts. `rate`: bytes per `rate_unit` of every port and direction, until set_rate(); above 0.
  Table(std::size_t ports, double rate, Duration rate_unit = std::chrono::seconds(1));

  std::size_t ports() const { return ports_; }
  double rate() const { return rate_; }  // that of a port as it should be
  const std::vector<double>& rates_out() const { return out_; }
  const std::vector<double>& rates_in() const { return in_; }
  double rate_between(PortId src, PortId dst) const { return out_[src] < in_[dst] ? out_[src] : in_[dst]; }
  // From now on; 0: the port is down. The scheduler is to be told (Scheduler::port_changed). An error names a port out
  // of range, or a rate that is no such number.
  Result<void> set_rate(PortId port, double out, double in);
  // Bytes at a port as a port of rate() would have them to send in the same time. One that is down, or nearly, counts
  // as a millionth of it.
  double load_out(PortId port, double bytes) const { return bytes * scale_out_[port]; }
  double load_in(PortId port, double bytes) const { return bytes * scale_in_[port]; }
  Duration rate_unit() const { return rate_unit_; }

  // Flows of no bytes are left out; the others are ordered by receiver, then sender, equal ones as they were given.
  // An error names a port out of range, or bytes or a weight that are no such number.
  Result<CoflowId> add(const CoflowSpec& spec, TimePoint arrived);
  // One more of a coflow that is there, of more than 0 bytes. Errors as of add().
  Result<FlowId> add_flow(CoflowId coflow, const FlowSpec& flow);
  // Nobody remembers it: the scheduler has allocated since it departed, or was never told of it. Its ids are given out
  // again.
  void retire(CoflowId coflow);
  // `bytes` of an unfinished flow have gone. The caller says by finish() when nothing is left.
  void moved(FlowId flow, double bytes);
  // The halves of it, for callers that report them at other times: what was sent of a coflow, and that there is less of
  // a flow.
  void sent(CoflowId coflow, std::uint32_t sender, double bytes) {
    coflows_[coflow].sent += bytes;
    coflows_[coflow].senders[sender].sent += bytes;
  }
  void lessened(FlowId flow, double bytes);
  void finish(FlowId flow);

  // Ids that were ever given out are below these.
  std::size_t flows() const { return flows_.size(); }
  std::size_t coflows() const { return coflows_.size(); }
  const Flow& flow(FlowId flow) const { return flows_[flow]; }
  const Coflow& coflow(CoflowId coflow) const { return coflows_[coflow]; }
  std::span<const FlowId> flows_to(const Receiver& receiver) const { return receiver.live; }
  // Load left at the port and direction that has most of the coflow: Gamma times rate().
  double bottleneck(CoflowId coflow) const;

 private:
  // Of those that were given back, the lowest first.
  class Ids {
   public:
    // `all` has a place for each id.
    template <typename T>
    std::uint32_t take(std::vector<T>& all);
    void give_back(std::uint32_t id);

   private:
    std::vector<std::uint32_t> free_;  // heap
  };

  Result<void> check(const CoflowSpec& spec) const;
  Result<void> check(std::uint64_t label, const FlowSpec& flow) const;

  const std::size_t ports_;
  const double rate_;
  const Duration rate_unit_;
  std::vector<double> out_, in_;              // rates, per port
  std::vector<double> scale_out_, scale_in_;  // rate_ over them
  std::vector<Flow> flows_;
  std::vector<Coflow> coflows_;
  Ids flow_ids_, coflow_ids_;
};

}  // namespace clustar::coflow
