// The parity that a receiver keeps until its blocks are whole.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "mlt/core/receive/staging.h"
#include "mlt/core/wire.h"

namespace clustar::mlt {

// What rebuilds the missing packets of one block: as many rows as packets are missing.
struct Rebuild {
  std::uint32_t message = 0;
  std::uint32_t receive = 0;
  std::uint32_t bytes = 0;  // of the message, which its receive holds whole
  std::uint16_t segment = 0;
  std::uint32_t packets = 0;  // of the message
  std::uint32_t first = 0;    // index of the packet that goes first
  std::uint32_t block = 0;
  struct Missing {
    std::uint8_t place = 0;    // in the block, in sending order; rising
    std::uint8_t row = 0;      // of some parity that is here, in any order,
    std::uint32_t buffer = 0;  // and where: Placement::Kind::kParity
  };
  std::uint32_t count = 0;
  std::array<Missing, kMaxParity> missing{};

  std::uint32_t block_packets() const { return mlt::block_packets(block, packets); }
  // Of a packet by its place in the block.
  std::uint32_t index(std::uint32_t place) const { return (first + block * kParityBlock + place) % packets; }
};

class ParityStore {
 public:
  struct Row {
    std::uint32_t message = 0, block = 0;
    std::uint8_t row = 0;
    std::uint32_t buffer = 0;
  };

  explicit ParityStore(std::uint32_t most) : buffers_(most) {}

  bool empty() const { return rows_.empty(); }
  std::span<const Row> rows() const { return rows_; }
  std::uint32_t count(std::uint32_t message, std::uint32_t block) const {
    return static_cast<std::uint32_t>(
        std::ranges::count_if(rows_, [&](const Row& row) { return row.message == message && row.block == block; }));
  }
  // Its buffer. nullopt: it is here, or there is no room.
  std::optional<std::uint32_t> keep(std::uint32_t message, std::uint32_t block, std::uint8_t number) {
    const bool here = std::ranges::any_of(
        rows_, [&](const Row& row) { return row.message == message && row.block == block && row.row == number; });
    if (here) return std::nullopt;
    const auto buffer = buffers_.take();
    if (buffer) rows_.push_back({message, block, number, *buffer});
    return buffer;
  }
  void drop(std::uint32_t message) {
    drop_if([&](const Row& row) { return row.message == message; });
  }
  void drop(std::uint32_t message, std::uint32_t block) {
    drop_if([&](const Row& row) { return row.message == message && row.block == block; });
  }
  std::uint32_t taken() const { return buffers_.taken(); }

 private:
  template <class Is>
  void drop_if(Is is) {
    std::erase_if(rows_, [&](const Row& row) {
      if (!is(row)) return false;
      buffers_.give_back(row.buffer);
      return true;
    });
  }

  Staging buffers_;
  std::vector<Row> rows_;
};

}  // namespace clustar::mlt
