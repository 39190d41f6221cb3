// Connections of which nothing is known yet: how many there may be, and for how long. Pure.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>

#include "transport/base/time.h"

namespace clustar::coflow::control {

class Strangers {
 public:
  using Link = std::uint64_t;
  static constexpr std::size_t kMost = 256;
  static constexpr std::size_t kMostOfOne = 64;  // source address
  static constexpr Duration kPatience = std::chrono::seconds(2);

  // False: there are too many, of this source or at all.
  bool admit(Link link, const std::string& source, TimePoint now) {
    if (sources_.size() >= kMost) return false;
    std::size_t& of_one = by_source_[source];
    if (of_one >= kMostOfOne) return false;
    ++of_one;
    sources_.emplace(link, source);
    deadlines_.push_back({now + kPatience, link});
    return true;
  }
  // It is known now, or gone.
  void remove(Link link) {
    const auto found = sources_.find(link);
    if (found == sources_.end()) return;
    const auto of_one = by_source_.find(found->second);
    if (--of_one->second == 0) by_source_.erase(of_one);
    sources_.erase(found);
  }
  // One whose time is over; it is removed.
  std::optional<Link> expired(TimePoint now) {
    while (!deadlines_.empty() && deadlines_.front().at <= now) {
      const Link link = deadlines_.front().link;
      deadlines_.pop_front();
      if (!sources_.contains(link)) continue;
      remove(link);
      return link;
    }
    return std::nullopt;
  }
  std::optional<TimePoint> next_timeout() const {
    return deadlines_.empty() ? std::nullopt : std::optional(deadlines_.front().at);
  }
  std::size_t count() const { return sources_.size(); }

 private:
  struct Deadline {
    TimePoint at{};
    Link link = 0;
  };
  std::unordered_map<Link, std::string> sources_;
  std::unordered_map<std::string, std::size_t> by_source_;
  std::deque<Deadline> deadlines_;  // all have the same patience, so they are in order
};

}  // namespace clustar::coflow::control
