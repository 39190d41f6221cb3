// What a helper is told of an operation, by rank 0: a helper starts none itself. One per operation and helper.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace clustar::paraexpress {

inline constexpr std::uint32_t kMostHelpers = 64;

struct Order {
  bool ends = false;  // there are no more: the rest means nothing
  std::uint64_t number = 0;
  std::uint64_t live = 0;                // helpers that take part, bit i for helper i; the addressee is one
  std::uint8_t plan = 0;                 // Plan
  std::uint8_t type = 0, reduction = 0;  // DataType, Reduction of sums/reduce.h
  std::uint64_t count = 0;               // elements, > 0
  std::uint64_t chunk = 0;               // elements, > 0

  bool operator==(const Order&) const = default;
};

// On the wire, big-endian: version, what it is (0 operation, 1 end), plan, type, reduction, 3 zeros, number, live,
// count, chunk.
inline constexpr std::size_t kOrderBytes = 40;
using OrderBytes = std::array<std::byte, kOrderBytes>;
OrderBytes encode_order(const Order& order);

struct OrderLimits {
  std::uint32_t helper = 0, helpers = 0;
  std::uint8_t plans = 0, types = 0, reductions = 0;
};
// Nothing: this is no order, or not for this helper.
std::optional<Order> parse_order(const OrderBytes& bytes, const OrderLimits& limits);

}  // namespace clustar::paraexpress
