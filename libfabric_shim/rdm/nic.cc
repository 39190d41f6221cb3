#include "libfabric_shim/rdm/nic.h"

#include <fmt/format.h>

#include <utility>

namespace clustar::transport::ofi {

Nic::Nic(std::string name, std::vector<Domain> domains, net::Interface control, const Context& context,
         std::unique_ptr<SendPolicy> policy, std::uint64_t bytes_per_second)
    : name_(std::move(name)),
      domains_(std::move(domains)),
      provider_(provider_of(domains_.front().info())),
      control_(std::move(control)),
      context_(context),
      engine_(context.clock, std::move(policy), {context.settings.send_ahead, bytes_per_second, kPumpBytes}),
      exchanges_(domains_.size()) {}

Result<Rails> Nic::exchanges() {
  for (std::size_t rail = 0; rail < exchanges_.size(); ++rail) {
    if (exchanges_[rail] && !exchanges_[rail]->broken()) continue;
    auto made = Exchange::open(domains_[rail], context_.settings.receiving.eager_bytes, context_.clock, context_.log);
    if (!made) return tl::unexpected(made.error());
    exchanges_[rail] = std::move(*made);
  }
  return exchanges_;
}

void Nic::settle(const Rails& rails, const Exchange::Owner& owner, bool peer_died) {
  const bool connected = provider_.ends_with(";ofi_rxm");
  const TimePoint start = context_.clock.now();
  const auto in_use = [&] {
    Exchange::InUse all;
    for (const auto& exchange : rails) {
      const Exchange::InUse one = exchange->payloads_of(owner);
      all.sends += one.sends;
      all.receives += one.receives;
    }
    return all;
  };
  Exchange::InUse use = in_use();
  while (use.sends + use.receives > 0) {
    const Duration waited = context_.clock.now() - start;
    if (waited > kSettle || (peer_died && connected && use.receives == 0 && waited > kSettleDead)) break;
    // What was announced comes, and its sender waits for it.
    for (const auto& exchange : rails) {
      if (peer_died || waited > kSettle / 2) exchange->cancel_receives(owner);
      exchange->poll();
    }
    use = in_use();
  }
  for (const auto& exchange : rails) end_use(*exchange, owner, peer_died && connected);
}

void Nic::end_use(Exchange& exchange, const Exchange::Owner& owner, bool sends_end) {
  const Exchange::InUse use = exchange.payloads_of(owner);
  exchange.forget(owner);
  if (use.receives == 0 && (use.sends == 0 || sends_end)) return;
  exchange.break_off(
      {ErrorCode::kRemote,
       fmt::format("ofi: {}: a channel closed with {} messages under way that its peer, which lives, "
                   "neither took nor ended within {} s; {} cannot take them back, so its endpoint is "
                   "ended, and with it all channels of {}",
                   domain().name(), use.sends + use.receives,
                   std::chrono::duration_cast<std::chrono::seconds>(kSettle).count(), provider_, name_)});
}

}  // namespace clustar::transport::ofi
