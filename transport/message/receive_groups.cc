#include "transport/message/receive_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

namespace clustar::transport {

Result<void> ReceiveGroups::check(const char* transport, std::span<const RecvPart> parts) {
  if (!parts.empty() && parts.size() <= kMaxRecvParts) return {};
  return fail(ErrorCode::kInvalidArgument, fmt::format("{}: {} receives in one request; 1 to {} are allowed", transport,
                                                       parts.size(), kMaxRecvParts));
}

std::optional<std::uint32_t> ReceiveGroups::open(std::size_t parts) {
  assert(parts > 0 && parts <= kMaxRecvParts);
  const auto free = std::ranges::find_if(groups_, [](const Group& group) { return !group.used; });
  if (free == groups_.end()) return std::nullopt;
  free->used = true;
  free->parts = free->open = static_cast<std::uint32_t>(parts);
  std::fill_n(free->messages.begin(), parts, ReceivedMessage{});
  ++outstanding_;
  return static_cast<std::uint32_t>(free - groups_.begin());
}

void ReceiveGroups::finish(std::uint32_t group, std::uint32_t part, std::uint64_t bytes) {
  groups_[group].sizes[part] = bytes;
  --groups_[group].open;
}

std::span<const std::size_t> ReceiveGroups::sizes(std::uint32_t group) const {
  return std::span<const std::size_t>(groups_[group].sizes).first(groups_[group].parts);
}

std::span<const ReceivedMessage> ReceiveGroups::messages(std::uint32_t group) const {
  return std::span<const ReceivedMessage>(groups_[group].messages).first(groups_[group].parts);
}

void ReceiveGroups::release(std::uint32_t group) {
  assert(groups_[group].used && complete(group));
  groups_[group].used = false;
  --outstanding_;
}

}  // namespace clustar::transport
