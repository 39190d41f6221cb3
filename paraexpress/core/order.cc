#include "paraexpress/core/order.h"

namespace clustar::paraexpress {
namespace {

constexpr std::byte kOrderVersion{1};

void put_number(OrderBytes& bytes, std::size_t at, std::uint64_t value) {
  for (std::size_t i = 0; i < 8; ++i) bytes[at + i] = static_cast<std::byte>(value >> (56 - 8 * i) & 0xff);
}

std::uint64_t number_at(const OrderBytes& bytes, std::size_t at) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < 8; ++i) value = value << 8 | static_cast<std::uint64_t>(bytes[at + i]);
  return value;
}

}  // namespace

OrderBytes encode_order(const Order& order) {
  OrderBytes bytes{};
  bytes[0] = kOrderVersion;
  if (order.ends) {
    bytes[1] = std::byte{1};
    return bytes;
  }
  bytes[2] = static_cast<std::byte>(order.plan);
  bytes[3] = static_cast<std::byte>(order.type);
  bytes[4] = static_cast<std::byte>(order.reduction);
  put_number(bytes, 8, order.number);
  put_number(bytes, 16, order.live);
  put_number(bytes, 24, order.count);
  put_number(bytes, 32, order.chunk);
  return bytes;
}

std::optional<Order> parse_order(const OrderBytes& bytes, const OrderLimits& limits) {
  Order order;
  if (bytes[0] != kOrderVersion || bytes[1] > std::byte{1}) return std::nullopt;
  if (bytes[1] == std::byte{1}) {
    order.ends = true;
    return order;
  }
  order.plan = static_cast<std::uint8_t>(bytes[2]);
  order.type = static_cast<std::uint8_t>(bytes[3]);
  order.reduction = static_cast<std::uint8_t>(bytes[4]);
  order.number = number_at(bytes, 8);
  order.live = number_at(bytes, 16);
  order.count = number_at(bytes, 24);
  order.chunk = number_at(bytes, 32);
  const bool known = order.plan < limits.plans && order.type < limits.types && order.reduction < limits.reductions;
  const std::uint64_t all = limits.helpers >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << limits.helpers) - 1;
  const bool mine = (order.live >> limits.helper & 1) == 1 && (order.live & ~all) == 0;
  constexpr std::uint64_t kMostElements = std::uint64_t{1} << 48;
  const bool sized = order.count > 0 && order.count <= kMostElements && order.chunk > 0 && order.chunk <= kMostElements;
  if (!known || !mine || !sized) return std::nullopt;
  return order;
}

}  // namespace clustar::paraexpress
