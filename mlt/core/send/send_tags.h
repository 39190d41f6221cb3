// How a sender numbers the messages of each tag, and which of their receives were posted before them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "mlt/core/wire.h"

namespace clustar::mlt {

class SendTags {
 public:
  explicit SendTags(std::uint32_t most) : most_(most) {}  // different tags

  bool has_room(std::int32_t tag) const { return next_.size() < most_ || next_.contains(tag); }
  // Number of the next message with this tag. Only when has_room().
  std::uint32_t take(std::int32_t tag) { return next_[tag]++; }
  // How many messages with this tag come after this one, itself included; not above 0: it was not sent yet.
  std::int32_t since(std::int32_t tag, std::uint32_t tag_seq) const {
    const auto sent = next_.find(tag);
    return sent == next_.end() ? 0 : distance(sent->second, tag_seq);
  }

  // The receive of a message that was not sent yet is posted. False: there are `most` of those.
  bool post_early(std::int32_t tag, std::uint32_t tag_seq, std::uint32_t most) {
    if (find(tag, tag_seq) != early_.end()) return true;
    if (early_.size() >= most) return false;
    early_.push_back({tag, tag_seq});
    return true;
  }
  // The message is sent: whether its receive was posted early.
  bool take_early(std::int32_t tag, std::uint32_t tag_seq) {
    const auto found = find(tag, tag_seq);
    if (found == early_.end()) return false;
    *found = early_.back();
    early_.pop_back();
    return true;
  }

 private:
  struct Receive {
    std::int32_t tag;
    std::uint32_t tag_seq;
  };
  std::vector<Receive>::iterator find(std::int32_t tag, std::uint32_t tag_seq) {
    return std::find_if(early_.begin(), early_.end(),
                        [&](const Receive& one) { return one.tag == tag && one.tag_seq == tag_seq; });
  }
  std::uint32_t most_;
  std::unordered_map<std::int32_t, std::uint32_t> next_;
  std::vector<Receive> early_;
};

}  // namespace clustar::mlt
