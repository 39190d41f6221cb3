// One device: its domain, or of a fused one a domain for each rail, the endpoints that all its channels share, its
// sending side, and its counters.
// Thread rule: that of SendEngine; the engine's lock guards the exchange, and so all channels.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "libfabric_shim/domain.h"
#include "libfabric_shim/rdm/exchange.h"
#include "libfabric_shim/rdm/nic_settings.h"
#include "transport/api/gpu_driver.h"
#include "transport/base/log.h"
#include "transport/base/time.h"
#include "transport/message/send_engine.h"
#include "transport/message/traffic_book.h"
#include "transport/net/interfaces.h"

namespace clustar::transport::ofi {

// What every part of one OfiTransport shares; the transport owns it and outlives them.
struct Context {
  Settings settings;
  const Clock& clock;
  Log log;
  std::shared_ptr<GpuDriver> gpu_driver{};  // null: no device has GPU memory, or host memory plays it
};

// The exchange of each rail that a connection has, one at least.
using Rails = std::vector<std::shared_ptr<Exchange>>;

class Nic {
 public:
  // `domains`: one, or those of a fused device, all of one provider. `control`: the interface by which two ends find
  // each other.
  Nic(std::string name, std::vector<Domain> domains, net::Interface control, const Context& context,
      std::unique_ptr<SendPolicy> policy, std::uint64_t bytes_per_second);

  const std::string& name() const { return name_; }  // of the device: "eth0"
  const std::string& provider() const { return provider_; }
  Domain& domain(std::size_t rail = 0) { return domains_[rail]; }
  std::size_t rails() const { return domains_.size(); }
  const net::Interface& control() const { return control_; }
  const Context& context() const { return context_; }
  SendEngine& engine() { return engine_; }
  const SendEngine& engine() const { return engine_; }

  // The following need the engine's lock.
  // Of all rails; each made when it is first needed, and again when it broke. Error: libfabric's.
  Result<Rails> exchanges();
  // When it returns, nothing uses the memory of the owner's payloads, and it is told nothing more of them. Polls until
  // they are over, for kSettle at most; then the endpoint is ended, at the cost of all its channels, since a provider
  // can take back no message. Of a peer that died, a provider with connections (rxm) knows, and uses nothing any more.
  void settle(const Rails& rails, const Exchange::Owner& owner, bool peer_died);

  struct Counters {
    std::atomic<std::uint64_t> frames{0};
    std::atomic<std::uint64_t> payloads{0};        // messages of their own, straight to where they belong
    std::atomic<std::uint64_t> direct{0};          // messages without a frame
    std::atomic<std::uint64_t> early_messages{0};  // arrived before their receive: one copy more
    std::atomic<std::uint64_t> strangers{0};       // connections to our port that did not show the token
  };
  Counters& counters() { return counters_; }
  const Counters& counters() const { return counters_; }
  TrafficBook& traffic() { return traffic_; }
  const TrafficBook& traffic() const { return traffic_; }

 private:
  static constexpr Duration kSettle = std::chrono::seconds(1);
  static constexpr Duration kSettleDead = std::chrono::milliseconds(100);
  static constexpr std::uint64_t kPumpBytes = 8 << 20;

  // After settle()'s wait. `sends_end`: what was sent ends without the provider's word.
  void end_use(Exchange& exchange, const Exchange::Owner& owner, bool sends_end);

  const std::string name_;
  std::vector<Domain> domains_;
  const std::string provider_;
  const net::Interface control_;
  const Context& context_;
  Counters counters_;
  TrafficBook traffic_;
  SendEngine engine_;
  Rails exchanges_;  // null: not made yet
};

}  // namespace clustar::transport::ofi
