#include "mlt/core/send/loss_allowance.h"

#include <algorithm>
#include <utility>

#include "mlt/core/recovery.h"

namespace clustar::mlt {

void LossAllowance::open(const SendMessage& message) {
  const OpenRecord& open = message.open;
  budget_.open(collective_of(open), {open.collective_bytes, open.ranks, open.edges, open.tolerance_ppm});
}

void LossAllowance::know_open(SendMessage& message) {
  if (std::exchange(message.open_known, true) || !message.open.tolerant) return;
  budget_.add_eligible(collective_of(message.open), message.bytes);
}

// Once the receiver wanted some of a message, it wants all that are lost again. Time is no proof of a loss: a packet
// may wait in a path or a class that all others pass, and a network that loses nothing must not cost anything.
bool LossAllowance::may_miss(SendMessage& message, const SentPacket& packet, Evidence evidence,
                             std::uint64_t in_flight) {
  if (gives_up(options_.recovery)) return true;
  if (evidence != Evidence::kOrder) return false;
  const OpenRecord& open = message.open;
  if (!open.tolerant || message.loss.wanted || message.important.test(packet.index)) return false;
  if (message.loss.tolerated >= message_cap_packets(message.packets)) return false;
  const CollectiveId collective = collective_of(open);
  // Lost at the end it is on its way again when the receiver decides, who may do without; what was let be and is wanted
  // would cost a round trip.
  const bool end = message.state == SendState::kSent;
  if (end || !budget_.allows(collective, open.stage, packet.bytes + reserve(in_flight))) return false;
  if (!budget_.charge(collective, open.stage, packet.bytes)) return false;  // another NIC of the process was faster
  ++message.loss.tolerated;
  return true;
}

std::uint32_t LossAllowance::may_miss(const SendMessage& message) const {
  const std::uint64_t headroom = budget_.headroom(collective_of(message.open), message.open.stage);
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>(message_cap_packets(message.packets), headroom / options_.segment));
}

// What is lost early comes again before the message ends and costs no time, what is lost at the end a round trip: as
// much of the budget is kept for the receiver to end it as would be lost of a quarter of what is on its way.
std::uint64_t LossAllowance::reserve(std::uint64_t in_flight) const {
  return std::max<std::uint64_t>(options_.segment, in_flight / 4);
}

void LossAllowance::charge_rest(const SendMessage& message, std::uint32_t missing) {
  if (!message.open.tolerant || missing <= message.loss.tolerated) return;
  const CollectiveId collective = collective_of(message.open);
  const std::uint64_t bytes = std::uint64_t{missing - message.loss.tolerated} * options_.segment;
  (void)budget_.charge(collective, message.open.stage,
                       std::min(bytes, budget_.headroom(collective, message.open.stage)));
}

}  // namespace clustar::mlt
