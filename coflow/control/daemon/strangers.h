// Connections of which nothing is known yet: how many there may be, and for how long. Pure.
#pragma once

#include <algorithm>
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
  // Who says what it has to say needs no longer: it gives way to others where there is no room.
  static constexpr Duration kUndisturbed = std::chrono::milliseconds(100);

  struct Entry {
    bool admitted = false;
    std::optional<Link> instead{};  // of this one, which is removed
  };
  // Where there are too many, of this source or at all, the oldest gives way, of the source that has most.
  Entry admit(Link link, const std::string& source, TimePoint now) {
    const auto own = by_source_.find(source);
    const std::size_t of_own = own == by_source_.end() ? 0 : own->second;
    Entry entry{true, std::nullopt};
    if (of_own >= kMostOfOne || sources_.size() >= kMost) {
      const bool by_own = of_own >= kMostOfOne;
      const std::string crowd = by_own ? source : largest();
      const auto oldest = std::find_if(deadlines_.begin(), deadlines_.end(), [&](const Deadline& one) {
        const auto found = sources_.find(one.link);
        return found != sources_.end() && found->second == crowd;
      });
      const bool fairer = !by_own && by_source_.at(crowd) > of_own + 1;
      if (!fairer && now - (oldest->at - kPatience) < kUndisturbed) return {};
      entry.instead = oldest->link;
      remove(oldest->link);
    }
    // Of those that are known or gone by now a few are kept, and no more.
    if (deadlines_.size() > 4 * kMost)
      std::erase_if(deadlines_, [&](const Deadline& one) { return !sources_.contains(one.link); });
    ++by_source_[source];
    sources_.emplace(link, source);
    deadlines_.push_back({now + kPatience, link});
    return entry;
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
  std::string largest() const {
    const auto fewer = [](const auto& a, const auto& b) { return a.second < b.second; };
    return std::max_element(by_source_.begin(), by_source_.end(), fewer)->first;
  }
  struct Deadline {
    TimePoint at{};
    Link link = 0;
  };
  std::unordered_map<Link, std::string> sources_;
  std::unordered_map<std::string, std::size_t> by_source_;
  std::deque<Deadline> deadlines_;  // all have the same patience, so they are in order
};

}  // namespace clustar::coflow::control
