// The requests of one receive channel. Each is a group of receives, its parts: which are open, and what came for the
// others. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "transport/api/flow_tag.h"
#include "transport/api/transport.h"

namespace clustar::transport {

class ReceiveGroups {
 public:
  static constexpr std::uint32_t kMost = 32;  // NCCL_NET_MAX_REQUESTS

  // For RecvChannel::recv. Error kInvalidArgument: none, or more than kMaxRecvParts. `transport` begins it.
  static Result<void> check(const char* transport, std::span<const RecvPart> parts);

  // 1 .. kMaxRecvParts parts. nullopt: kMost are outstanding.
  std::optional<std::uint32_t> open(std::size_t parts);
  void identify(std::uint32_t group, std::uint32_t part, const MessageIdentity& identity) {
    groups_[group].messages[part].identity = identity;
  }
  // Once per part.
  void finish(std::uint32_t group, std::uint32_t part, std::uint64_t bytes);

  bool complete(std::uint32_t group) const { return groups_[group].open == 0; }
  std::span<const std::size_t> sizes(std::uint32_t group) const;
  std::span<const ReceivedMessage> messages(std::uint32_t group) const;
  // Its number may be given out again. It is complete.
  void release(std::uint32_t group);

  std::size_t outstanding() const { return outstanding_; }

 private:
  struct Group {
    bool used = false;
    std::uint32_t parts = 0;
    std::uint32_t open = 0;
    std::array<std::size_t, kMaxRecvParts> sizes{};
    std::array<ReceivedMessage, kMaxRecvParts> messages{};
  };

  std::array<Group, kMost> groups_{};
  std::size_t outstanding_ = 0;
};

}  // namespace clustar::transport
