// The world that hosts, switches and links of one run share: time, packets, seed and digest.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "transport/base/time.h"
#include "transport/sim/counters.h"
#include "transport/sim/event_queue.h"
#include "transport/sim/packet.h"

namespace clustar::transport::sim {

struct SimulationOptions {
  std::uint64_t seed = 1;
  // Added to header and payload on every wire and in every buffer. Ethernet with preamble and gap 38, IPv4 20, UDP 8.
  std::uint32_t overhead_bytes = 66;
};

// Single-threaded. Lives longer than the Network over it; destroy the Network only when nothing is run any more.
class Simulation final : public Clock, private EventTarget {
 public:
  explicit Simulation(const SimulationOptions& options = {}) : options_(options) {}

  TimePoint now() const override { return events_.now(); }
  // Convenience for harnesses and tests: costs an allocation. Parts of the network push events of their own.
  void at(TimePoint when, std::function<void()> callback);
  bool step();
  void run_until(TimePoint until);
  void run_for(Duration duration) { run_until(now() + duration); }
  // Until nothing is left to happen, or `events` have happened; true if nothing is left.
  bool run(std::uint64_t events);
  bool running() const { return running_; }  // inside of an event: step() and run must not be called

  EventQueue& events() { return events_; }
  PacketPool& packets() { return packets_; }
  Digest& digest() { return digest_; }
  std::uint64_t seed() const { return options_.seed; }
  std::uint32_t overhead_bytes() const { return options_.overhead_bytes; }
  std::uint32_t next_port_id() { return port_ids_++; }

 private:
  void on_event(std::uint32_t kind, std::uint32_t argument) override;

  SimulationOptions options_;
  EventQueue events_;
  PacketPool packets_;
  Digest digest_;
  std::vector<std::function<void()>> callbacks_;
  std::vector<std::uint32_t> free_callbacks_;
  std::uint32_t port_ids_ = 0;
  bool running_ = false;
};

}  // namespace clustar::transport::sim
