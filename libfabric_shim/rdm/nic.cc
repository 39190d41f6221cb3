#include "libfabric_shim/rdm/nic.h"

#include <fmt/format.h>

#include <utility>

namespace clustar::transport::ofi {

Nic::Nic(std::string name, Domain domain, net::Interface control, const Context& context,
         std::unique_ptr<SendPolicy> policy, std::uint64_t bytes_per_second)
    : name_(std::move(name)),
      domain_(std::move(domain)),
      provider_(provider_of(domain_.info())),
      control_(std::move(control)),
      context_(context),
      engine_(context.clock, std::move(policy), {context.settings.send_ahead, bytes_per_second, kPumpBytes}) {}

Result<std::shared_ptr<Exchange>> Nic::exchange() {
  if (exchange_ && !exchange_->broken()) return exchange_;
  auto made = Exchange::open(domain_, context_.settings.receiving.eager_bytes, context_.clock, context_.log);
  if (!made) return made;
  exchange_ = *made;
  return made;
}

void Nic::settle(Exchange& exchange, const Exchange::Owner& owner, bool peer_died) {
  const bool connected = provider_.ends_with(";ofi_rxm");
  const TimePoint start = context_.clock.now();
  Exchange::InUse use = exchange.payloads_of(owner);
  while (use.sends + use.receives > 0) {
    const Duration waited = context_.clock.now() - start;
    if (waited > kSettle || (peer_died && connected && use.receives == 0 && waited > kSettleDead)) break;
    // What was announced comes, and its sender waits for it.
    if (peer_died || waited > kSettle / 2) exchange.cancel_receives(owner);
    exchange.poll();
    use = exchange.payloads_of(owner);
  }
  exchange.forget(owner);
  if (use.receives == 0 && (use.sends == 0 || (peer_died && connected))) return;
  exchange.break_off(
      {ErrorCode::kRemote,
       fmt::format("ofi: {}: a channel closed with {} messages under way that its peer, which lives, "
                   "neither took nor ended within {} s; {} cannot take them back, so its endpoint is "
                   "ended, and with it all channels of {}",
                   domain_.name(), use.sends + use.receives,
                   std::chrono::duration_cast<std::chrono::seconds>(kSettle).count(), provider_, name_)});
}

}  // namespace clustar::transport::ofi
