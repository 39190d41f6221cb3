// Which collective something is charged to, and what its ranks agreed may be lost of it.
#pragma once

#include <cstdint>

namespace clustar::mlt {

// What both sides agree on before the first message of a collective.
struct Terms {
  std::uint64_t collective_bytes = 0;  // S: input of one rank; 0: unknown
  std::uint32_t ranks = 0;             // n
  std::uint32_t edges = 0;             // E: how often the ring crosses the network, 1 .. n
  std::uint32_t tolerance_ppm = 0;     // p in parts per million, 0 .. 1,000,000

  friend bool operator==(const Terms&, const Terms&) = default;
};

// floor(p * S * n / E) in contribution-bytes, exact and capped at 2^64 - 1. It is 0, so that nothing may be lost, if a
// term is unknown or makes no sense: S = 0, n < 2, E < 1, E > n, p > 1.
// Uniform loss on a ring with one rank per node (E = n) reaches it at 2 p / (n - 1) per hop.
std::uint64_t loss_bound(const Terms& terms);

struct CollectiveId {
  std::uint64_t communicator = 0;
  std::uint32_t sequence = 0;  // grows by one per collective; may wrap (RFC 1982 order)
  bool exchange = false;       // an exchange of the communicator; exchanges have sequence numbers of their own

  friend bool operator==(const CollectiveId&, const CollectiveId&) = default;
};

}  // namespace clustar::mlt
