// A helper's order from any bytes, under any limits: none, or within the limits and the same when it is written and
// read again; what is written of any order within them is read back.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "paraexpress/core/order.h"
#include "tests/fuzz/input.h"

namespace {

using namespace clustar::paraexpress;
using clustar::fuzz::require;

OrderLimits limits_of(clustar::fuzz::Input& input) {
  OrderLimits limits;
  limits.helpers = 1 + input.byte() % kMostHelpers;
  limits.helper = input.byte() % limits.helpers;
  limits.plans = static_cast<std::uint8_t>(1 + input.byte() % 8);
  limits.types = static_cast<std::uint8_t>(1 + input.byte() % 16);
  limits.reductions = static_cast<std::uint8_t>(1 + input.byte() % 4);
  return limits;
}

void check(const Order& order, const OrderLimits& limits) {
  require(order.plan < limits.plans && order.type < limits.types && order.reduction < limits.reductions);
  require((order.live >> limits.helper & 1) == 1);
  require(limits.helpers == kMostHelpers || order.live >> limits.helpers == 0);
  // Elements of 8 bytes have a number of bytes.
  require(order.count > 0 && order.count <= ~std::uint64_t{0} / 8);
  require(order.chunk > 0 && order.chunk <= ~std::uint64_t{0} / 8);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  clustar::fuzz::Input input(data, size);
  const OrderLimits limits = limits_of(input);
  OrderBytes bytes{};
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(input.byte());
  const auto order = parse_order(bytes, limits);
  if (!order) return 0;
  const OrderBytes written = encode_order(*order);
  require(parse_order(written, limits) == order);
  require(written[0] == bytes[0] && written[1] == bytes[1]);
  if (order->ends) return 0;
  check(*order, limits);
  // But for the three zeros every byte has a meaning.
  require(std::equal(written.begin(), written.begin() + 5, bytes.begin()));
  require(std::equal(written.begin() + 8, written.end(), bytes.begin() + 8));
  return 0;
}
