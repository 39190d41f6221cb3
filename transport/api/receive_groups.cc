#include "transport/api/receive_groups.h"

#include <algorithm>
#include <cassert>

namespace clustar::transport {

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
