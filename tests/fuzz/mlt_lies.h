// What a peer that holds the secret may say: packets of MLT with fields that the input chose. Values near those of
// genuine packets, and half of all numbers away from them, are what the other end's arithmetic can be wrong about.
#pragma once

#include <array>
#include <cstdint>

#include "mlt/core/wire.h"
#include "tests/fuzz/input.h"

namespace clustar::fuzz {

// The latest numbers that genuine packets of a connection told.
class Numbers {
 public:
  void note(std::uint32_t number) { numbers_[next_++ % numbers_.size()] = number; }
  std::uint32_t operator[](std::uint32_t i) const { return numbers_[i % numbers_.size()]; }

 private:
  std::array<std::uint32_t, 16> numbers_{};
  std::uint32_t next_ = 0;
};

struct Lie {
  std::uint32_t field = 0;  // modulo the packet's
  std::uint32_t how = 0;
  std::uint32_t amount = 0;
};

Lie lie_from(Input& input);
// Changes the field of `packet` that the lie names. It may be one that cannot be written until it is mended.
void apply(mlt::Packet& packet, const Lie& lie, const Numbers& seen);
// Makes a packet such that it can be written, and parse() takes it.
void mend(mlt::Packet& packet);
// A packet of no connection's history: of sort `sort`, about message `message`.
mlt::Packet blank(std::uint32_t sort, std::uint64_t secret, std::uint32_t message, std::uint16_t segment);

}  // namespace clustar::fuzz
