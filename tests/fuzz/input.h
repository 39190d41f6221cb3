// A fuzzer's bytes as a stream of decisions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

namespace clustar::fuzz {

inline void require(bool holds) {
  if (!holds) std::abort();
}

class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : bytes_(data, size) {}
  bool empty() const { return at_ >= bytes_.size(); }
  // 0 when all are used up.
  std::uint32_t byte() { return empty() ? 0 : bytes_[at_++]; }

 private:
  std::span<const std::uint8_t> bytes_;
  std::size_t at_ = 0;
};

}  // namespace clustar::fuzz
