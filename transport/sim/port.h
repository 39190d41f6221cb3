// An output: eight queues in strict priority, a transmitter of fixed rate, and one direction of a link behind it.
#pragma once

#include <array>
#include <cstdint>

#include "transport/sim/counters.h"
#include "transport/sim/event_queue.h"
#include "transport/sim/faults.h"
#include "transport/sim/packet.h"
#include "transport/sim/simulation.h"

namespace clustar::transport::sim {

struct LinkOptions {
  std::uint64_t rate_bps = 100'000'000'000;  // 1 .. 10^13
  Duration delay{500};                       // propagation, one way
};

// What the nodes at both ends of a link are told.
enum NodeEvent : std::uint32_t {
  kArrival = 0,    // argument: the PacketId, which the node owns now
  kRoom = 1,       // the port has sent a packet after ask_for_room()
  kNodeEvents = 2  // a node's own kinds begin here
};

class Port final : private EventTarget {
 public:
  // `owner` is told of room, `peer` of arrivals. `shared_bytes`: a counter of a buffer shared with other ports, or
  // null.
  Port(Simulation& simulation, const LinkOptions& options, EventTarget& owner, EventTarget& peer,
       std::uint64_t* shared_bytes = nullptr);
  Port(const Port&) = delete;
  Port& operator=(const Port&) = delete;

  // Takes the packet whatever is queued; limits are the owner's. It leaves the buffer when its transmission starts.
  void enqueue(PacketId id);
  // Starts no transmission before `until`.
  void hold(TimePoint until);
  // One kRoom to the owner when the next packet leaves the queue.
  void ask_for_room() { room_wanted_ = true; }

  std::uint64_t queued_bytes() const { return queued_bytes_; }
  std::uint64_t queued_packets() const { return queued_packets_; }
  std::uint64_t queued_bytes(std::size_t traffic_class) const { return queues_[traffic_class].bytes; }
  const LinkOptions& options() const { return options_; }
  FaultChain& faults() { return faults_; }
  PortCounters& counters() { return counters_; }
  const PortCounters& counters() const { return counters_; }

 private:
  struct Queue {
    PacketId head = kNoPacket;
    PacketId tail = kNoPacket;
    std::uint64_t bytes = 0;
  };

  void on_event(std::uint32_t kind, std::uint32_t argument) override;
  void push(PacketId id);
  PacketId pop();
  void transmit(PacketId id);
  void transmit_faulty(PacketId id, TimePoint arrival);

  // What every packet touches comes first, in as few cache lines as possible.
  Simulation& simulation_;
  EventTarget& owner_;
  EventTarget& peer_;
  std::uint64_t* shared_bytes_;
  LinkOptions options_;
  TimePoint busy_until_{};
  // What the last transmission took beyond whole nanoseconds, in units of 1 / rate: back to back packets lose nothing.
  std::uint64_t remainder_ = 0;
  std::uint64_t queued_bytes_ = 0;
  std::uint64_t queued_packets_ = 0;
  std::uint32_t occupied_ = 0;  // one bit a class
  bool scheduled_ = false;      // an event at busy_until_ or earlier is pending; only then is something queued
  bool room_wanted_ = false;
  FaultChain faults_;
  PortCounters counters_;
  std::array<Queue, kClasses> queues_{};
};

}  // namespace clustar::transport::sim
