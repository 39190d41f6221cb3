// Payload of sends that are done before it has arrived: copies that the core sends from, and repeats from.
//
// A short message is always copied. On a long path a longer one is, too, as kernel TCP copies what it is given: who
// waits for an acknowledgement before the next message waits for a round trip that the receiver does not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "mlt/driver/engine.h"
#include "mlt/driver/last_words.h"

namespace clustar::mlt::driver {

// Of one connection; with the engine's lock held.
class SendCopies {
 public:
  struct Copy {
    std::byte* at = nullptr;
    const io::Mr* memory = nullptr;
    std::size_t offset = 0;   // in `memory`
    std::uint64_t place = 0;  // of the short ones, or of the long
    bool is_long = false;
  };

  explicit SendCopies(Engine& engine) : engine_(engine) {}

  static bool is_short(std::size_t length) { return length <= kBufferedBytes; }
  static bool is_long(std::size_t length) { return length > kBufferedBytes && length <= kFarBufferedBytes; }
  // Uninitialised room for so many bytes, up to kFarBufferedBytes. nullopt: there is none now, or the memory cannot be
  // registered.
  std::optional<Copy> take(std::size_t length);
  void give_back(const Copy& copy);
  // All places for short messages are taken.
  bool full() const { return short_.memory != nullptr && free_short_.empty(); }
  bool in_use() const { return taken_ > 0; }

 private:
  struct Region {
    std::unique_ptr<std::byte[]> bytes;
    std::unique_ptr<io::Mr> memory;
    bool refused = false;  // it cannot be registered
  };
  struct Block {
    std::uint64_t end = 0;  // of all bytes that were ever taken, with what was skipped at the region's end
    bool free = false;
  };

  bool reserve(Region& region, std::size_t bytes);
  std::optional<Copy> take_short();
  std::optional<Copy> take_long(std::size_t length);

  Engine& engine_;
  Region short_;
  std::vector<std::uint32_t> free_short_;
  Region long_;
  std::deque<Block> blocks_;       // of the long ones, in order: memory comes free in order
  std::uint64_t first_block_ = 0;  // number of blocks_.front()
  std::uint64_t begin_ = 0, end_ = 0;
  std::uint32_t taken_ = 0;
};

}  // namespace clustar::mlt::driver
