// A table of consecutive 32-bit ids that wrap: [base, end), grown by one power of two at a time up to a bound.
#pragma once

#include <cassert>
#include <cstdint>
#include <vector>

#include "mlt/core/wire.h"

namespace clustar::mlt {

template <class T>
class Window {
 public:
  explicit Window(std::uint32_t bound) : bound_(bound) {}

  std::uint32_t base() const { return base_; }
  std::uint32_t end() const { return base_ + size_; }
  std::uint32_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  bool full() const { return size_ == bound_; }
  bool contains(std::uint32_t id) const { return id - base_ < size_; }
  // True when `id` is in the table or can be brought into it.
  bool reaches(std::uint32_t id) const { return id - base_ < bound_; }

  T& operator[](std::uint32_t id) {
    assert(contains(id));
    return slots_[id & mask_];
  }
  const T& operator[](std::uint32_t id) const {
    assert(contains(id));
    return slots_[id & mask_];
  }
  // Only when !full(). The slot keeps what its last user left, so that its storage is used again.
  T& push() {
    assert(!full());
    if (size_ == slots_.size()) grow();
    ++size_;
    return (*this)[end() - 1];
  }
  void pop() {
    assert(!empty());
    ++base_;
    --size_;
  }

 private:
  void grow() {
    std::vector<T> bigger(slots_.empty() ? 4 : slots_.size() * 2);
    const auto mask = static_cast<std::uint32_t>(bigger.size() - 1);
    for (std::uint32_t i = 0; i < size_; ++i) bigger[(base_ + i) & mask] = std::move(slots_[(base_ + i) & mask_]);
    slots_.swap(bigger);
    mask_ = mask;
  }

  std::uint32_t bound_;
  std::uint32_t base_ = 0;
  std::uint32_t size_ = 0;
  std::uint32_t mask_ = 0;
  std::vector<T> slots_;
};

}  // namespace clustar::mlt
