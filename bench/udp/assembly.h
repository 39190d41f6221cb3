// The receiver's side of a trial: what has come, where it belongs, and whether it is there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "bench/udp/shape.h"

namespace clustar::bench::udp {

enum class Copy {
  kNone,
  kUsual,      // memcpy
  kStreaming,  // past the caches: the target's lines are not read first, and not there for who reads them next
};

class Assembly {
 public:
  // `target` has kColdBytes.
  Assembly(const Shape& shape, std::span<std::byte> target);

  const Shape& shape() const { return shape_; }
  std::byte* place(std::uint64_t segment) { return target_.data() + shape_.target_offset(segment); }
  bool missing(std::uint64_t segment) const { return segment < shape_.segments && came_[segment] == 0; }
  void mark(std::uint64_t segment);

  // A joined message in one piece: each payload is copied to its place, or only counted.
  void take(std::span<const std::byte> message, std::size_t segment_bytes, Copy copy);

  // Called after each message, with whatever strategy: where the receiver's credits come from.
  void on_message(std::function<void()> call) { on_message_ = std::move(call); }
  void message_done() {
    if (on_message_) on_message_();
  }

  std::uint64_t next() const { return next_; }  // one past the latest arrival
  std::uint64_t end() const { return end_; }    // one past the highest number that has come
  std::uint64_t count() const { return count_; }
  std::uint64_t malformed() const { return malformed_; }
  void count_malformed() { ++malformed_; }
  // Segments that came and whose place, if no later one has taken it, holds other bytes.
  std::uint64_t wrong(std::span<const std::byte> source) const;

 private:
  Shape shape_;
  std::span<std::byte> target_;
  std::vector<std::uint8_t> came_;
  std::uint64_t next_ = 0;
  std::uint64_t end_ = 0;
  std::uint64_t count_ = 0;
  std::uint64_t malformed_ = 0;
  std::function<void()> on_message_;
};

}  // namespace clustar::bench::udp
