// A host: one NIC, at most one endpoint, and times at which it is frozen.
#pragma once

#include <cstdint>
#include <memory>

#include "transport/base/ring.h"
#include "transport/sim/port.h"

namespace clustar::transport::sim {

// What runs on a host. May call anything of its Host from inside of these.
class Endpoint {
 public:
  virtual ~Endpoint() = default;
  // The packet is the callee's to change until it returns.
  virtual void on_packet(SimPacket& packet, TimePoint now) = 0;
  // The time given to set_wake() has come; answers the next one (kNever: none). One that is not later than `now` counts
  // as the nanosecond after it, so that simulated time cannot stand still.
  virtual TimePoint on_wake(TimePoint now) = 0;
  // After a refused send(): a packet has left the NIC's queue.
  virtual void on_room(TimePoint now) { (void)now; }
};

struct HostOptions {
  std::uint32_t tx_queue_packets = 256;         // waiting in the NIC, all classes; beyond it send() refuses
  std::uint32_t frozen_backlog_packets = 1024;  // received while frozen; beyond it they are lost
};

class Host final : private EventTarget {
 public:
  Host(Simulation& simulation, HostId id, const HostOptions& options);
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  // Once, before anything is sent: the link from the NIC.
  void connect(const LinkOptions& link, EventTarget& peer);
  // Not owned; null detaches, and packets are then lost as kNoEndpoint. Clears the wake-up time.
  void attach(Endpoint* endpoint);

  // Copies the packet into the NIC's queue; false if that is full.
  bool send(const SimPacket& packet);
  std::uint32_t room() const;
  // The one pending wake-up; replaces the earlier one. kNever: none.
  void set_wake(TimePoint at) { wake_.arm(at); }

  // In [from, until) the host starts no transmission and its endpoint is not called. Packets wait, then come in order,
  // before the wake-up if that was due. Windows may overlap.
  void freeze(TimePoint from, TimePoint until);
  bool frozen() const { return frozen_ > 0; }

  HostId id() const { return id_; }
  EventTarget& node() { return *this; }  // what a link to this host leads to
  Simulation& simulation() { return simulation_; }
  Port& nic() { return *nic_; }
  HostCounters& counters() { return counters_; }

 private:
  enum Kind : std::uint32_t { kWake = kNodeEvents, kFreeze, kThaw };

  void on_event(std::uint32_t kind, std::uint32_t argument) override;
  void prepare(std::uint32_t kind, std::uint32_t argument) const override;
  void arrive(PacketId id);
  void deliver(PacketId id);
  void wake();
  void thaw();
  void drop(PacketId id, DropCause cause);

  Simulation& simulation_;
  HostId id_;
  HostOptions options_;
  std::unique_ptr<Port> nic_;
  Endpoint* endpoint_ = nullptr;
  Timer wake_;
  std::uint32_t frozen_ = 0;      // windows that are open
  bool wake_missed_ = false;      // due while frozen
  bool room_missed_ = false;      // likewise
  std::vector<TimePoint> holds_;  // ends of the windows, by the number that kFreeze names
  Ring<PacketId> backlog_;
  HostCounters counters_;
};

}  // namespace clustar::transport::sim
