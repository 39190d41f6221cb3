#include "transport/tcp/core/send_matcher.h"

#include <algorithm>
#include <cassert>

namespace clustar::transport::tcp {

bool SendMatcher::fits_window(std::uint64_t bytes) const {
  return bytes <= settings_.eager_bytes && eager_messages_ < kMaxEagerMessages &&
         eager_bytes_ + bytes <= settings_.window_bytes;
}

SendMatcher::Tag* SendMatcher::find_or_add(int tag) {
  for (Tag& known : tags_) {
    if (known.tag == tag) return &known;
  }
  if (tags_.size() == kMaxTags) return nullptr;
  tags_.emplace_back().tag = tag;
  return &tags_.back();
}

SendMatcher::Departure SendMatcher::matched(std::uint32_t cookie, std::uint64_t bytes, const ClearToSend& clear) {
  ChunkHeader header;
  header.has_slot = true;
  header.tag = clear.tag;
  header.seq = clear.seq;
  header.slot = clear.slot;
  header.total = std::min(bytes, clear.length);
  return {cookie, header};
}

std::optional<SendMatcher::Departure> SendMatcher::submit(std::uint32_t cookie, int tag, std::uint64_t bytes) {
  Tag* state = find_or_add(tag);
  assert(state != nullptr && "the caller's tags are ranks; kMaxTags bounds the peer's");
  const std::uint32_t seq = state->next_seq++;
  if (!state->clears.empty()) {
    --clears_held_;
    return matched(cookie, bytes, state->clears.pop_front());
  }
  if (!fits_window(bytes)) {
    state->unmatched.push_back({cookie, bytes, false});
    ++waiting_;
    return std::nullopt;
  }
  state->unmatched.push_back({cookie, bytes, true});
  eager_bytes_ += bytes;
  ++eager_messages_;
  ChunkHeader header;
  header.tag = tag;
  header.seq = seq;
  header.total = bytes;
  return Departure{cookie, header};
}

SendMatcher::ClearResult SendMatcher::on_clear_to_send(const ClearToSend& clear) {
  Tag* state = find_or_add(clear.tag);
  if (state == nullptr || clear.seq != state->next_clear_seq) return {Verdict::kProtocolError};
  if (state->unmatched.empty()) {
    if (clears_held_ == kMaxSlots) return {Verdict::kProtocolError};
    ++state->next_clear_seq;
    ++clears_held_;
    state->clears.push_back(clear);
    return {Verdict::kNoted};
  }
  ++state->next_clear_seq;
  const Sent sent = state->unmatched.pop_front();
  if (sent.eager) {
    eager_bytes_ -= sent.bytes;
    --eager_messages_;
    return {Verdict::kNoted};
  }
  --waiting_;
  return {Verdict::kDeparture, matched(sent.cookie, sent.bytes, clear)};
}

}  // namespace clustar::transport::tcp
