// One network device: its sending side, which holds back small messages until several share a system call, and its
// counters. Thread rule: that of SendEngine.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "transport/base/log.h"
#include "transport/base/time.h"
#include "transport/message/send_engine.h"
#include "transport/message/traffic_book.h"
#include "transport/net/interfaces.h"
#include "transport/tcp/nic_settings.h"

namespace clustar::transport::tcp {

// What every part of one TcpTransport shares; the transport owns it and outlives them.
struct Context {
  Settings settings;
  const Clock& clock;
  Log log;
};

class Nic {
 public:
  Nic(net::Interface interface, const Context& context, std::unique_ptr<SendPolicy> policy);

  const net::Interface& interface() const { return interface_; }
  const Context& context() const { return context_; }
  SendEngine& engine() { return engine_; }
  const SendEngine& engine() const { return engine_; }

  // The following need the engine's lock.
  // What was pushed may wait for the next test of a request that is not done.
  void defer(std::uint64_t bytes) {
    deferred_.store(true, std::memory_order_relaxed);
    deferred_bytes_ += bytes;
    ++deferred_messages_;
  }
  std::uint64_t deferred_bytes() const { return deferred_bytes_; }
  std::size_t deferred_messages() const { return deferred_messages_; }
  // The engine's, of what was deferred too.
  void pump();

  // Needs no lock. For callers that test receives only.
  void pump_deferred();

  struct Counters {
    std::atomic<std::uint64_t> early_messages{0};  // arrived before their receive: one copy more
    std::atomic<std::uint64_t> strangers{0};       // connections to our port that did not show the token
  };
  Counters& counters() { return counters_; }
  TrafficBook& traffic() { return traffic_; }
  const TrafficBook& traffic() const { return traffic_; }
  const Counters& counters() const { return counters_; }

 private:
  static constexpr std::uint64_t kPumpBytes = 8 << 20;

  const net::Interface interface_;
  const Context& context_;
  Counters counters_;
  TrafficBook traffic_;
  SendEngine engine_;
  std::atomic<bool> deferred_{false};
  std::uint64_t deferred_bytes_ = 0;  // since the latest pump
  std::size_t deferred_messages_ = 0;
};

}  // namespace clustar::transport::tcp
