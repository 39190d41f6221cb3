// Parity that comes, and what is rebuilt by it.
#include <algorithm>

#include "mlt/core/receive/receiver.h"

namespace clustar::mlt {

// Nobody sends it again, so it is acknowledged whatever becomes of it. It is kept only where the receive's memory can
// take part: it is known, and holds the message whole, which lies nowhere else.
Placement Receiver::on_parity(const DataHeader& header, Message& message, const Arriving& packet, TimePoint now) {
  control_path_ = header.path;
  acks_.track(header, packet.marked, trip_, now, packet.waited);
  if (!message.growing()) return {};
  message.parity = true;
  credit_.note_parity(header.index % kMaxParity + 1);
  const std::uint32_t block = header.index / kMaxParity;
  // It follows its block.
  const std::uint32_t end = std::min(message.packets, (block + 1) * kParityBlock);
  message.sent_known = std::max(message.sent_known, end);
  asking_.on_packet(message, false, trip_, now);
  arm(message, now);
  if (!options_.parity || options_.recovery != nullptr || message.state != ReceiveState::kArriving) return {};
  const bool whole = message.bytes <= receives_[message.receive].length && message.staging == kNone;
  if (!whole || header.segment > options_.segment) return {};
  const std::uint32_t missing = missing_of_block(header.message, message, block);
  if (parity_.count(header.message, block) >= missing) return {};
  const auto buffer = parity_.keep(header.message, block, static_cast<std::uint8_t>(header.index % kMaxParity));
  if (!buffer) return {};
  offer_rebuild(header.message, message, block);
  return {Placement::Kind::kParity, *buffer, 0, header.segment};
}

std::uint32_t Receiver::missing_of_block(std::uint32_t id, const Message& message, std::uint32_t block) const {
  const std::uint32_t begin = (first_of(id, message) + block * kParityBlock) % message.packets;
  const std::uint32_t size = block_packets(block, message.packets);
  const std::uint32_t end = begin + size;
  std::uint32_t here = message.got.count(begin, std::min(end, message.packets));
  if (end > message.packets) here += message.got.count(0, end - message.packets);
  return size - here;
}

// Something of the block came, or parity of it.
void Receiver::offer_rebuild(std::uint32_t id, Message& message, std::uint32_t block) {
  const std::uint32_t missing = missing_of_block(id, message, block);
  if (missing == 0) return parity_.drop(id, block);
  if (missing <= parity_.count(id, block)) rebuilds_.push_back({id, block});
}

bool Receiver::has_rebuild() {
  while (!rebuilds_.empty() && !next_rebuild()) rebuilds_.pop_front();
  return !rebuilds_.empty();
}

std::optional<Rebuild> Receiver::poll_rebuild() {
  while (!rebuilds_.empty()) {
    auto next = next_rebuild();
    rebuilds_.pop_front();
    if (next) return next;
  }
  return std::nullopt;
}

// Of the oldest that was offered; it may have come meanwhile.
std::optional<Rebuild> Receiver::next_rebuild() const {
  const auto [id, block] = rebuilds_.front();
  if (!messages_.contains(id) || messages_[id].state != ReceiveState::kArriving) return std::nullopt;
  const Message& message = messages_[id];
  const std::uint32_t missing = missing_of_block(id, message, block);
  if (missing == 0 || missing > parity_.count(id, block)) return std::nullopt;
  Rebuild next{.message = id,
               .receive = message.receive,
               .bytes = message.bytes,
               .segment = message.segment,
               .packets = message.packets,
               .first = first_of(id, message),
               .block = block};
  for (std::uint32_t place = 0; place < next.block_packets(); ++place) {
    if (!message.got.test(next.index(place))) next.missing[next.count++].place = static_cast<std::uint8_t>(place);
  }
  std::uint32_t found = 0;
  for (const ParityStore::Row& row : parity_.rows()) {
    if (row.message != id || row.block != block || found == next.count) continue;
    next.missing[found].row = row.row;
    next.missing[found++].buffer = row.buffer;
  }
  return next;
}

void Receiver::rebuilt(const Rebuild& what, TimePoint now) {
  Message& message = messages_[what.message];
  for (std::uint32_t i = 0; i < what.count; ++i) {
    const std::uint32_t index = what.index(what.missing[i].place);
    if (!message.got.set(index)) continue;
    const std::uint32_t bytes = packet_bytes(index, message.bytes, message.segment);
    ++message.received;
    message.received_bytes += bytes;
    counters_.placed_bytes += bytes;
    ++counters_.rebuilt;
    credit_.came(bytes);
  }
  parity_.drop(what.message, what.block);
  // Nobody knows which of them were important: what is missing now may be, and none of it can be given up.
  if (message.open.important > 0) {
    message.important = message.open.important;
    message.loss.refused = true;
  }
  arrived_more(what.message, message, now);
}

}  // namespace clustar::mlt
