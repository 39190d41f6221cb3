// Parity that leaves: to whom, and what it is of.
#include <fmt/format.h>

#include <utility>

#include "mlt/driver/engine.h"

namespace clustar::mlt::driver {

// What is near needs none, and no memory for it.
bool Engine::may_send_parity(const Options& options, const FarEnd& far_end) {
  if (!far_end.rebuilds || far_end.round_trip < options.parity_from / 2) return false;
  const auto opened = parity_->open(*device_, kBurst);
  if (!opened) {
    context_.log.warn(fmt::format("mlt: no parity to {}: {}", far_end.host.to_string(), opened.error().message));
  }
  return opened.has_value();
}

io::MemorySlice Engine::payload_of(const DataHeader& header) {
  const std::uint32_t first = core_.sender(out_.connection).first_packet(header.message);
  return parity_->encode(header, first, sends_.payload(out_.connection, out_.transmit),
                         std::span(tx_).first(pending_count_));
}

}  // namespace clustar::mlt::driver
