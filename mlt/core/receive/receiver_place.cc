// Where a receiver puts payload: in its place, or aside until the receive is known; and which places stay empty.
#include <algorithm>

#include "mlt/core/receive/receiver.h"

namespace clustar::mlt {
Placement Receiver::place(Message& message, const DataHeader& header, std::uint32_t payload, bool can_stage) {
  const std::uint32_t offset = header.index * header.segment;
  if (message.receive != kNone) return {Placement::Kind::kPlace, message.receive, offset, payload};
  if (!can_stage) return {};
  if (!message.has_open && message.staging == kNone) message.tolerant = header.passed != 0;
  // A sender that is told that all is there tells no record any more.
  if (!message.has_open && message.received + 1 == message.packets) return {};
  const std::uint32_t order = order_of(message, header.message, header.index);
  const std::uint32_t staged_at = order * header.segment;
  if (std::uint64_t{order} * header.segment + payload > options_.staging_bytes()) return {};
  if (message.staging == kNone) {
    const std::uint32_t most = options_.staging_bytes() / header.segment + 1;
    if (!message.staged.reset(std::min(message.packets, most))) return {};
    message.staging = staging_.take().value_or(kNone);
    if (message.staging == kNone) return {};
  }
  message.staged.set(order);
  return {Placement::Kind::kStage, message.staging, staged_at, payload};
}

std::uint32_t Receiver::first_of(std::uint32_t id, const Message& message) const {
  return message.tolerant ? first_index(secret_, id, message.packets) : 0;
}

std::uint32_t Receiver::order_of(const Message& message, std::uint32_t id, std::uint32_t index) const {
  const std::uint32_t first = first_of(id, message);
  return index >= first ? index - first : index + message.packets - first;
}

std::optional<Receiver::Range> Receiver::missing(std::uint32_t receive, std::uint32_t from) const {
  const PostedReceive& posted = receives_[receive];
  if (!posted.matched || !messages_.contains(posted.message)) return std::nullopt;
  const Message& message = messages_[posted.message];
  if (from >= message.bytes) return std::nullopt;
  const std::uint32_t first = message.got.first_clear(from / message.segment);
  if (first >= message.packets) return std::nullopt;
  const std::uint32_t end = std::min(message.packets, message.got.first_set(first));
  const std::uint32_t offset = first * message.segment;
  return Range{offset, std::min(message.bytes, end * message.segment) - offset};
}

std::optional<Receiver::Staged> Receiver::staged(std::uint32_t receive, std::uint32_t from) const {
  const PostedReceive& posted = receives_[receive];
  if (!posted.matched || !messages_.contains(posted.message)) return std::nullopt;
  const Message& message = messages_[posted.message];
  if (message.staging == kNone) return std::nullopt;
  const std::uint32_t order = message.staged.first_set(from);
  if (order >= message.staged.size()) return std::nullopt;
  const std::uint32_t index = (first_of(posted.message, message) + order) % message.packets;
  return Staged{message.staging, order, order * message.segment, index * message.segment,
                packet_bytes(index, message.bytes, message.segment)};
}

void Receiver::unstaged(std::uint32_t receive) { free_staging(messages_[receives_[receive].message]); }

void Receiver::free_staging(Message& message) {
  if (message.staging == kNone) return;
  staging_.give_back(message.staging);
  message.staging = kNone;
}

}  // namespace clustar::mlt
