// What is to be sent between which ports, and how much of it is left. Facts: whoever sends tells them, schedulers read.
// For a bounded run: what has ended keeps its place.
//
// A port sends and receives at its rate at once. Rates are bytes per rate_unit(), which is a second unless a simulation
// counts otherwise (CoflowSim's second has 1,024 ms).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "transport/base/result.h"
#include "transport/base/time.h"

namespace clustar::coflow {

using PortId = std::uint32_t;    // 0 .. ports - 1
using FlowId = std::uint32_t;    // in the order in which they were added
using CoflowId = std::uint32_t;  // in the order in which they were added

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

// The flows of one coflow towards one port: live()[begin, end), senders ascending.
struct Receiver {
  PortId port = 0;
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  double left = 0;  // bytes
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
  std::vector<Sender> senders;      // ports ascending
  std::vector<Receiver> receivers;  // ports ascending; those without unfinished flows are empty
};

class Table {
 public:
  // `ports`: 1 to kMaxPorts. `rate`: bytes per `rate_unit` of every port and direction; above 0.
  Table(std::size_t ports, double rate, Duration rate_unit = std::chrono::seconds(1));

  std::size_t ports() const { return ports_; }
  double rate() const { return rate_; }
  Duration rate_unit() const { return rate_unit_; }

  // Flows of no bytes are left out; the others are ordered by receiver, then sender, equal ones as they were given.
  // An error names a port out of range, or bytes or a weight that are no such number.
  Result<CoflowId> add(const CoflowSpec& spec, TimePoint arrived);
  // `bytes` of an unfinished flow have gone. Who calls it says by finish() when nothing is left.
  void moved(FlowId flow, double bytes);
  // The halves of it, for who tells them at other times: what was sent of a coflow, and that there is less of a flow.
  void sent(CoflowId coflow, std::uint32_t sender, double bytes) {
    coflows_[coflow].sent += bytes;
    coflows_[coflow].senders[sender].sent += bytes;
  }
  void lessened(FlowId flow, double bytes);
  void finish(FlowId flow);

  std::size_t flows() const { return flows_.size(); }
  std::size_t coflows() const { return coflows_.size(); }
  const Flow& flow(FlowId flow) const { return flows_[flow]; }
  const Coflow& coflow(CoflowId coflow) const { return coflows_[coflow]; }
  std::span<const FlowId> flows_to(const Receiver& receiver) const {
    return {live_.data() + receiver.begin, receiver.end - receiver.begin};
  }
  // Bytes left at the port and direction that has most of the coflow: Gamma times the ports' rate.
  double bottleneck(CoflowId coflow) const;

 private:
  const std::size_t ports_;
  const double rate_;
  const Duration rate_unit_;
  std::vector<Flow> flows_;
  std::vector<FlowId> live_;  // the unfinished flows of each receiver, in its range
  std::vector<Coflow> coflows_;
};

}  // namespace clustar::coflow
