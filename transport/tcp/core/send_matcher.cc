#include "transport/tcp/core/send_matcher.h"

#include <algorithm>

namespace clustar::transport::tcp {

bool SendMatcher::fits_window(std::uint64_t bytes) const {
  return bytes <= settings_.eager_bytes && eager_messages_ < kMaxEagerMessages &&
         eager_bytes_ + bytes <= settings_.window_bytes;
}

bool SendMatcher::has_clear(int tag) const {
  const auto known = tags_.find(tag);
  return known != tags_.end() && !known->second.clears.empty();
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
  Tag& state = tags_[tag];
  const std::uint32_t seq = state.next_seq++;
  if (!state.clears.empty()) {
    --clears_held_;
    return matched(cookie, bytes, state.clears.pop_front());
  }
  if (!fits_window(bytes)) {
    state.unmatched.push_back({cookie, bytes, false});
    ++waiting_;
    return std::nullopt;
  }
  state.unmatched.push_back({cookie, bytes, true});
  eager_bytes_ += bytes;
  ++eager_messages_;
  ChunkHeader header;
  header.tag = tag;
  header.seq = seq;
  header.total = bytes;
  return Departure{cookie, header};
}

SendMatcher::ClearResult SendMatcher::on_clear_to_send(const ClearToSend& clear) {
  const auto known = tags_.find(clear.tag);
  if (clears_held_ == kMaxSlots && (known == tags_.end() || known->second.unmatched.empty())) {
    return {Verdict::kProtocolError};
  }
  if (clear.seq != (known == tags_.end() ? 0 : known->second.next_clear_seq)) return {Verdict::kProtocolError};
  Tag& state = tags_[clear.tag];
  if (state.unmatched.empty()) {
    ++state.next_clear_seq;
    ++clears_held_;
    state.clears.push_back(clear);
    return {Verdict::kNoted};
  }
  ++state.next_clear_seq;
  const Sent sent = state.unmatched.pop_front();
  if (sent.eager) {
    eager_bytes_ -= sent.bytes;
    --eager_messages_;
    return {Verdict::kNoted};
  }
  --waiting_;
  return {Verdict::kDeparture, matched(sent.cookie, sent.bytes, clear)};
}

}  // namespace clustar::transport::tcp
