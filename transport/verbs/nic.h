// One device of the transport: one RDMA port, or several that work as one. What its channels share: the ports, the
// sending side, the watch for asynchronous events, and the counters.
//
// Thread rule: that of SendEngine for send channels. Receive channels share nothing but counters and the state of
// ports.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "gdr/registration_cache.h"
#include "transport/base/log.h"
#include "transport/base/time.h"
#include "transport/message/send_engine.h"
#include "transport/message/traffic_book.h"
#include "transport/net/interfaces.h"
#include "transport/verbs/device_memory.h"
#include "transport/verbs/memory.h"
#include "transport/verbs/port.h"
#include "transport/verbs/settings.h"

namespace clustar::transport::verbs {

// What every part of one VerbsTransport shares; the transport owns it and outlives them.
struct Context {
  Settings settings;
  const Clock& clock;
  Log log;
  std::shared_ptr<SendPolicies> policies;
};

class Nic {
 public:
  // `control`: where its listeners' control connections are. 1 .. kMaxPorts ports.
  // The policy is that of a NIC of `bytes_per_second`.
  Nic(std::vector<Port> ports, net::Interface control, const Context& context, std::unique_ptr<SendPolicy> policy,
      std::uint64_t bytes_per_second);

  const std::vector<Port>& ports() const { return ports_; }
  const net::Interface& control() const { return control_; }
  const Context& context() const { return context_; }
  std::string name() const;
  std::uint32_t memory_kinds() const { return device_memory_.kinds; }
  const DeviceMemory& device_memory() const { return device_memory_; }
  // Of messages that may go ahead of their receives to this NIC, which copies them.
  std::uint32_t eager_bytes() const { return std::min(context_.settings.eager_bytes, kMaxEagerBytes); }
  // Registers on all ports, or shares what is registered. Any thread. Error kInvalidArgument: not one of
  // memory_kinds().
  Result<Regions> reg(const gdr::MemoryRef& memory, int access);
  gdr::MrCache::Counts registrations() const { return registrations_.counts(); }
  // By which ways they were made, for people.
  std::string registered_by() const { return registrar_.describe(); }
  // ibv_access_flags that every registration of user's memory may have on top.
  int relaxed() const;

  // Takes events, unless it was done a moment ago. Any thread.
  void watch(bool at_once = false);
  // That the port's link is down; nothing while it is up.
  std::optional<std::string> link_state(std::size_t port) const;
  // The same for a caller that has just seen something fail, which may come before the event does. Asks the device.
  std::optional<std::string> link_state_now(std::size_t port);
  // Why queue pairs of the port cannot go on; nothing while they can.
  std::optional<std::string> trouble(std::size_t port) const;

  SendEngine& engine() { return engine_; }
  const SendEngine& engine() const { return engine_; }

  struct Counters {
    std::atomic<std::uint64_t> writes{0};  // stripes posted
    std::atomic<std::uint64_t> eager{0};   // messages that were copied by the receiver
    std::atomic<std::uint64_t> flushes{0};
    std::atomic<std::uint64_t> failed_queue_pairs{0};
    std::atomic<std::uint64_t> failovers{0};  // stripes and eager messages sent again by another queue pair
    std::atomic<std::uint64_t> strangers{0};  // connections to our socket that did not show the token
  };
  Counters& counters() { return counters_; }
  TrafficBook& traffic() { return traffic_; }
  const TrafficBook& traffic() const { return traffic_; }
  const Counters& counters() const { return counters_; }
  // Transmissions that the ports repeated since this was made, by the driver's own counters, over all their users. 0
  // where the driver does not count.
  std::uint64_t retries() const;

 private:
  // Long enough for a link that flaps and a switch that forgets; shorter than the 3 s in which a caller must know.
  static constexpr Duration kPortGrace = std::chrono::milliseconds(2000);
  static constexpr Duration kWatchInterval = std::chrono::milliseconds(20);

  struct PortState {
    std::atomic<std::int64_t> down_since{0};  // TimePoint's count; 0 = up
    std::atomic<bool> dead{false};            // the device
  };

  void take_events(std::size_t port, TimePoint now);
  std::uint64_t count_retries() const;

  std::vector<Port> ports_;
  const DeviceMemory device_memory_;
  PortRegistrar registrar_;
  gdr::RegistrationCache registrations_;
  std::vector<PortState> states_;
  const net::Interface control_;
  const Context& context_;
  Counters counters_;
  TrafficBook traffic_;
  std::uint64_t first_retries_ = 0;
  std::mutex events_mutex_;
  std::atomic<std::int64_t> next_watch_{0};
  SendEngine engine_;
};

}  // namespace clustar::transport::verbs
