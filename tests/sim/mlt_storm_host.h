// The MLT core on a simulated host as a driver runs it, with all that may go wrong on a host: a clock of its own, a
// device that takes little, a process that cannot stage.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "mlt/core/endpoint.h"
#include "tests/sim/mlt_storm_plan.h"
#include "tests/sim/mlt_storm_witness.h"
#include "transport/sim/host.h"
#include "transport/sim/simulation.h"

namespace clustar::mlt::test {

namespace sim = transport::sim;

class StormHost final : public sim::Endpoint {
 public:
  // Attaches itself. All outlive it; `number` is that of the host in the plan.
  StormHost(sim::Host& host, const StormPlan& plan, std::uint32_t number);
  StormHost(const StormHost&) = delete;
  StormHost& operator=(const StormHost&) = delete;

  void open_sender(const StormFlow& flow, Witness& witness);
  void open_receiver(const StormFlow& flow, Witness& witness);
  // Sends and posts what is due; again whenever there may be room.
  void go() { kick(); }

  const mlt::Endpoint& core() const { return core_; }
  const mlt::Endpoint::Counters& counters() const { return core_.counters(); }
  // The round trip that the sender of what is received here has told.
  Duration told_trip(const StormFlow& flow);
  std::size_t most_timers() const { return most_timers_; }
  bool lost_an_honest_peer() const { return lost_; }

  void on_packet(sim::SimPacket& packet, TimePoint now) override;
  TimePoint on_wake(TimePoint now) override;
  void on_room(TimePoint now) override { run(now); }

 private:
  struct End {  // of one connection
    const StormFlow* flow;
    Witness* witness;
    mlt::Endpoint::ConnectionId id;
    bool sends;
    std::size_t next = 0;   // of the messages, or of the receives in their order
    TimePoint called_at{};  // when kick() will come for it
  };

  TimePoint now() const { return host_.simulation().now(); }
  TimePoint clock(TimePoint now) const { return host_plan_.clock.at(now); }
  TimePoint wake_at(TimePoint now) const;
  void kick();
  void kick_at(TimePoint at);
  void run(TimePoint now);
  bool feed(TimePoint now);
  bool send_due(End& end, TimePoint now);
  void take_turn(SendTerms& terms, std::uint64_t whim, TimePoint now) const;
  bool post_due(End& end, TimePoint now);
  void call_back(End& end, TimePoint at);
  bool handle_events();
  void handle(const mlt::Endpoint::Event& event);
  bool transmit(TimePoint now);
  bool device_takes(TimePoint now);
  void fill(const mlt::Endpoint::Outgoing& out);

  sim::Host& host_;
  const StormPlan& plan_;
  const StormHostPlan& host_plan_;
  mlt::Endpoint core_;
  Rng rng_;
  std::vector<End> ends_;
  std::unordered_map<mlt::Endpoint::ConnectionId, std::size_t> end_of_;
  mlt::Endpoint::Outgoing out_;
  sim::SimPacket pending_;  // refused by the NIC, to go first
  bool has_pending_ = false;
  std::uint32_t device_room_ = 0;  // packets, under back-pressure
  TimePoint device_closed_until_{};
  std::size_t most_timers_ = 0;
  bool lost_ = false;
};

}  // namespace clustar::mlt::test
