// The receives that a caller has posted, numbered by tag.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "transport/base/ring.h"

namespace clustar::mlt {

struct PostedReceive {
  bool used = false;
  bool untold = false;  // the sender does not know of it
  std::int32_t tag = 0;
  std::uint32_t tag_seq = 0;
  std::uint32_t length = 0;
  bool matched = false;
  std::uint32_t message = 0;  // once matched
};

class ReceiveTable {
 public:
  // At most so many receives and different tags.
  ReceiveTable(std::uint32_t receives, std::uint32_t tags) : most_(receives), most_tags_(tags) {}

  bool full() const { return free_.empty() && receives_.size() == most_; }
  bool has_room(std::int32_t tag) const { return next_.size() < most_tags_ || next_.contains(tag); }
  // Its id, 0 .. receives - 1. Only when there is room.
  std::uint32_t post(std::int32_t tag, std::uint32_t length) {
    std::uint32_t id = 0;
    if (free_.empty()) {
      id = static_cast<std::uint32_t>(receives_.size());
      receives_.emplace_back();
    } else {
      id = free_.back();
      free_.pop_back();
    }
    PostedReceive& receive = receives_[id] = PostedReceive{};
    receive.used = receive.untold = true;
    receive.tag = tag;
    receive.tag_seq = next_[tag]++;
    receive.length = length;
    untold_.push_back(id);
    return id;
  }
  void release(std::uint32_t id) {
    receives_[id].used = false;
    free_.push_back(id);
  }

  // The one that waits for this message.
  std::optional<std::uint32_t> find(std::int32_t tag, std::uint32_t tag_seq) const {
    const auto waits = [&](const PostedReceive& one) {
      return one.used && !one.matched && one.tag == tag && one.tag_seq == tag_seq;
    };
    const auto found = std::find_if(receives_.begin(), receives_.end(), waits);
    if (found == receives_.end()) return std::nullopt;
    return static_cast<std::uint32_t>(found - receives_.begin());
  }

  // The oldest of which the sender does not know; it does now.
  const PostedReceive* tell() {
    while (!untold_.empty()) {
      PostedReceive& receive = receives_[untold_.pop_front()];
      if (!receive.used || !receive.untold) continue;
      receive.untold = false;
      return &receive;
    }
    return nullptr;
  }
  bool may_tell() const { return !untold_.empty(); }

  PostedReceive& operator[](std::uint32_t id) { return receives_[id]; }
  const PostedReceive& operator[](std::uint32_t id) const { return receives_[id]; }
  auto begin() const { return receives_.begin(); }
  auto end() const { return receives_.end(); }

 private:
  std::uint32_t most_, most_tags_;
  std::vector<PostedReceive> receives_;
  std::vector<std::uint32_t> free_;
  std::unordered_map<std::int32_t, std::uint32_t> next_;
  Ring<std::uint32_t> untold_;
};

}  // namespace clustar::mlt
