#include "transport/tcp/nic.h"

#include <utility>

namespace clustar::transport::tcp {

Nic::Nic(net::Interface interface, const Context& context, std::unique_ptr<SendPolicy> policy)
    : interface_(std::move(interface)),
      context_(context),
      engine_(context.clock, std::move(policy),
              {context.settings.send_ahead, interface_.bytes_per_second(), kPumpBytes,
               ordered_chunk(interface_.bytes_per_second())}) {}

void Nic::pump() {
  deferred_.store(false, std::memory_order_relaxed);
  deferred_bytes_ = deferred_messages_ = 0;
  engine_.pump();
}

void Nic::pump_deferred() {
  if (!deferred_.load(std::memory_order_relaxed)) return;
  const std::unique_lock lock(engine_.mutex(), std::try_to_lock);
  if (lock) pump();
}

}  // namespace clustar::transport::tcp
