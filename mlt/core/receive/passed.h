// What of a message has passed, by lane: DataHeader::passed, added up.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace clustar::mlt {

// Within a lane packets stay in order. So when the counts of all lanes add up to the message, everything was sent and
// nothing is on its way by its first transmission: what is not here was lost (loss contract, point 4c). A peer that
// counts wrong either never adds up, and is asked as before, or says too soon what a Probe could say as well.
class Passed {
 public:
  // For the next message; keeps the storage.
  void reset() {
    std::fill(lanes_.begin(), lanes_.end(), Lane{});
    total_ = 0;
  }
  // A packet came by lane `lane` of `lanes` with this count. `first`: it is a first transmission, the count its own.
  void note(std::uint32_t lane, std::uint32_t lanes, std::uint16_t count, bool first) {
    if (count == 0) return;
    if (lanes_.size() < lanes) lanes_.resize(lanes);
    Lane& on = lanes_[lane];
    const auto ahead =
        static_cast<std::int16_t>(static_cast<std::uint16_t>(count - static_cast<std::uint16_t>(on.count)));
    if (ahead > 0) {
      on.count += static_cast<std::uint32_t>(ahead);
      on.recent = ahead >= kRecent ? 0 : on.recent << ahead;
      total_ += static_cast<std::uint32_t>(ahead);
    }
    if (first && ahead > -kRecent) on.recent |= std::uint64_t{1} << (ahead > 0 ? 0 : -ahead);
  }
  // First transmissions that have passed or come.
  std::uint64_t total() const { return total_; }
  // Some lane lacks one of its latest `window` packets: it may have been overtaken, and come yet.
  bool hole_within(std::uint8_t window) const {
    const std::uint32_t most = std::min<std::uint32_t>(window, kRecent);
    return std::any_of(lanes_.begin(), lanes_.end(), [&](const Lane& lane) {
      const std::uint32_t bits = std::min(most, lane.count);
      const std::uint64_t mask = bits == 0 ? 0 : ~std::uint64_t{0} >> (64 - bits);
      return (~lane.recent & mask) != 0;
    });
  }

 private:
  static constexpr int kRecent = 64;
  struct Lane {
    std::uint32_t count = 0;
    std::uint64_t recent = 0;  // bit i: number count - i came
  };
  std::vector<Lane> lanes_;
  std::uint64_t total_ = 0;
};

}  // namespace clustar::mlt
