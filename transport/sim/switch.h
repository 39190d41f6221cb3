// A switch with queues at its outputs.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "transport/sim/port.h"

namespace clustar::transport::sim {

inline constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();

template <class T>
constexpr std::array<T, kClasses> every_class(T value) {
  std::array<T, kClasses> all{};
  all.fill(value);
  return all;
}

// Bytes are wire bytes of waiting packets; the one in transmission has left the buffer.
struct SwitchOptions {
  std::uint64_t buffer_bytes = 1 << 20;
  bool shared_buffer = false;  // buffer_bytes of all ports together instead of each
  // An ECT packet that finds more than this in its class's queue is marked (RFC 8257, section 3.1, K).
  std::array<std::uint64_t, kClasses> mark_above = every_class(kUnlimited);
  // A packet of the class is dropped where the buffer would hold more than this with it; the classes with the lowest
  // value lose first.
  std::array<std::uint64_t, kClasses> drop_above = every_class(kUnlimited);
  // Instead of dropping a packet, cut its payload and send the header in class 7 (Handley et al., NDP, SIGCOMM 2017).
  std::array<bool, kClasses> trim = every_class(false);
  std::uint64_t trim_reserve_bytes = 16 * 1024;  // of the buffer's kind, for headers of cut packets
};

// Where a destination is: hosts first_host .. first_host + hosts - 1 behind ports 0 .., hosts_per_port behind each; all
// others behind one of `uplinks`, the ports that follow.
struct Routing {
  HostId first_host = 0;
  std::uint32_t hosts = 0;
  std::uint32_t hosts_per_port = 1;
  std::uint32_t uplinks = 0;
};

// The choice of equal-cost paths: a pure function, so that a test can tell which spine a path takes.
std::uint32_t ecmp_choice(HostId source, HostId destination, std::uint8_t path, std::uint32_t choices);

class Switch final : private EventTarget {
 public:
  Switch(Simulation& simulation, const SwitchOptions& options, const Routing& routing);
  Switch(const Switch&) = delete;
  Switch& operator=(const Switch&) = delete;

  // Ports in the order of Routing.
  void add_port(const LinkOptions& link, EventTarget& peer);
  Port& port(std::size_t index) { return *ports_[index]; }
  std::size_t ports() const { return ports_.size(); }
  EventTarget& node() { return *this; }  // what a link to this switch leads to
  const Drops& unroutable() const { return unroutable_; }

 private:
  void on_event(std::uint32_t kind, std::uint32_t argument) override;
  void prepare(std::uint32_t kind, std::uint32_t argument) const override;
  Port* route(const SimPacket& packet);
  // Cuts the packet if that is allowed and lets it fit.
  bool trim(PacketPool::Slot& slot, std::uint64_t occupied, Port& port);

  Simulation& simulation_;
  SwitchOptions options_;
  Routing routing_;
  std::vector<std::unique_ptr<Port>> ports_;
  std::uint64_t used_bytes_ = 0;  // of the shared buffer
  Drops unroutable_;
};

}  // namespace clustar::transport::sim
