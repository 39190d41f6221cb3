// Which counters of a stream were seen: the anti-replay window of RFC 4303, section 3.4.3. What is not newer than the
// newest by less than kBits counts as seen.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace clustar::mlt {

class ReplayWindow {
 public:
  // More than are under way on a path: 4,096 packets of each lane, while one lane passes another.
  static constexpr std::uint64_t kBits = 8192;

  bool seen(std::uint64_t counter) const {
    if (counter >= next_) return false;
    return next_ - counter > kBits || (word(counter) & bit(counter)) != 0;
  }
  // Only of what was found to be genuine. Without effect on what is seen.
  void mark(std::uint64_t counter) {
    if (counter >= next_) advance(counter);
    if (next_ - counter <= kBits) words_[index(counter)] |= bit(counter);
  }

 private:
  static constexpr std::uint64_t kWord = 64;
  static std::size_t index(std::uint64_t counter) { return counter / kWord % (kBits / kWord); }
  static std::uint64_t bit(std::uint64_t counter) { return std::uint64_t{1} << counter % kWord; }
  std::uint64_t word(std::uint64_t counter) const { return words_[index(counter)]; }

  // Clears the bits that change their meaning.
  void advance(std::uint64_t counter) {
    if (counter - next_ >= kBits) {
      words_.fill(0);
    } else {
      for (std::uint64_t at = next_; at <= counter;) {
        if (at % kWord == 0 && counter - at >= kWord) {
          words_[index(at)] = 0;
          at += kWord;
        } else {
          words_[index(at)] &= ~bit(at);
          ++at;
        }
      }
    }
    next_ = counter + 1;
  }

  std::uint64_t next_ = 0;  // above all that were seen
  std::array<std::uint64_t, kBits / kWord> words_{};
};

}  // namespace clustar::mlt
