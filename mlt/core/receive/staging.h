// The buffers for packets that come before their receive, or before what says which receive is theirs.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace clustar::mlt {

class Staging {
 public:
  explicit Staging(std::uint32_t most) : most_(most) {}

  std::optional<std::uint32_t> take() {
    if (!free_.empty()) {
      const std::uint32_t buffer = free_.back();
      free_.pop_back();
      return buffer;
    }
    if (made_ == most_) return std::nullopt;
    return made_++;
  }
  void give_back(std::uint32_t buffer) { free_.push_back(buffer); }
  std::uint32_t taken() const { return made_ - static_cast<std::uint32_t>(free_.size()); }

 private:
  std::uint32_t most_;
  std::uint32_t made_ = 0;
  std::vector<std::uint32_t> free_;
};

}  // namespace clustar::mlt
