// One process's send queue under the host's policy, for tests.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "coflow/enforce/host_policy.h"
#include "transport/message/send_queue.h"

namespace clustar::coflow::enforce {

inline constexpr std::uint64_t kChunk = 16 * 1024;
inline constexpr std::uint64_t kMiB = 1024 * 1024;
inline constexpr TimePoint kNow = TimePoint(std::chrono::seconds(1));

inline transport::FlowTag coflow(std::uint64_t id, std::uint64_t bytes,
                                 transport::Urgency urgency = transport::Urgency::kGradient) {
  transport::FlowTag tag;
  tag.coflow = id;
  tag.bytes = bytes;
  tag.urgency = urgency;
  return tag;
}

// A queue of one process; each message is a connection of its own.
class Host {
 public:
  explicit Host(const HostPolicyOptions& options = {}, std::unique_ptr<Board> board = nullptr)
      : policy_(new HostPolicy(options, std::move(board))), queue_(std::unique_ptr<transport::SendPolicy>(policy_)) {}

  std::uint32_t push(const transport::FlowTag& tag, std::uint64_t bytes, TimePoint now = kNow) {
    const auto connection = queue_.add_connection({.peer = next_});
    queue_.push(connection, next_, tag, bytes, now);
    return next_++;
  }
  // The message that a chunk was taken of; nothing: the gate is shut, or nothing waits.
  std::optional<std::uint64_t> take(TimePoint now = kNow) {
    const auto chunk = queue_.next(kChunk, now);
    if (!chunk) return std::nullopt;
    queue_.commit(*chunk, now);
    return chunk->cookie;
  }
  transport::SendQueue& queue() { return queue_; }
  const HostPolicy& policy() const { return *policy_; }

 private:
  HostPolicy* const policy_;
  transport::SendQueue queue_;
  std::uint32_t next_ = 0;
};

}  // namespace clustar::coflow::enforce
