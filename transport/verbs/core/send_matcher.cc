#include "transport/verbs/core/send_matcher.h"

#include <algorithm>

namespace clustar::transport::verbs {

SendMatcher::Departure SendMatcher::direct(std::uint32_t cookie, std::uint64_t bytes, const Descriptor& descriptor) {
  return {.cookie = cookie,
          .bytes = std::min(bytes, descriptor.length),
          .tag = descriptor.tag,
          .seq = descriptor.seq,
          .descriptor = descriptor};
}

std::optional<SendMatcher::Departure> SendMatcher::submit(std::uint32_t cookie, int tag, std::uint64_t bytes) {
  Tag& state = tags_[tag];
  const std::uint32_t seq = state.next_seq++;
  if (!state.known.empty() && state.known.front().seq == seq) {
    --known_;
    return direct(cookie, bytes, state.known.pop_front());
  }
  if (eager_bytes_ > 0 && bytes <= eager_bytes_ && eager_sent_ - eager_freed_ < kEagerSlots) {
    const std::uint32_t place = eager_sent_++ % kEagerSlots;
    return Departure{.cookie = cookie, .bytes = bytes, .tag = tag, .seq = seq, .eager = true, .place = place};
  }
  state.waiting.push_back({cookie, seq, bytes});
  ++waiting_;
  return std::nullopt;
}

SendMatcher::Outcome SendMatcher::on_descriptor(const Descriptor& descriptor) {
  ++consumed_;
  on_freed(descriptor.eager_freed);
  const auto found = tags_.find(descriptor.tag);
  if (found != tags_.end()) {
    Tag& state = found->second;
    if (!state.waiting.empty() && state.waiting.front().seq == descriptor.seq) {
      const Waiting message = state.waiting.pop_front();
      --waiting_;
      return {Verdict::kDeparture, direct(message.cookie, message.bytes, descriptor)};
    }
    // Its message went ahead of it.
    if (static_cast<std::int32_t>(descriptor.seq - state.next_seq) < 0) return {};
  }
  if (known_ == kMaxSlots) return {Verdict::kProtocolError, {}};
  ++known_;
  tags_[descriptor.tag].known.push_back(descriptor);
  return {};
}

void SendMatcher::on_freed(std::uint32_t freed) {
  if (freed - eager_freed_ <= eager_sent_ - eager_freed_) eager_freed_ = freed;
}

}  // namespace clustar::transport::verbs
