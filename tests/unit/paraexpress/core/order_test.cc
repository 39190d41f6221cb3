#include "paraexpress/core/order.h"

#include <gtest/gtest.h>

#include "transport/base/rng.h"

namespace clustar::paraexpress {
namespace {

constexpr OrderLimits kLimits{.helper = 2, .helpers = 5, .plans = 6, .types = 10, .reductions = 2};

TEST(Order, IsReadBack) {
  const Order order{
      .number = 77, .live = 0b10110, .plan = 1, .type = 7, .reduction = 1, .count = 1 << 20, .chunk = 999};
  EXPECT_EQ(parse_order(encode_order(order), kLimits), order);
  const auto end = parse_order(encode_order({.ends = true}), kLimits);
  ASSERT_TRUE(end);
  EXPECT_TRUE(end->ends);
  OrderLimits most = kLimits;
  most.helper = 63;
  most.helpers = kMostHelpers;
  Order all = order;
  all.live = ~std::uint64_t{0};
  EXPECT_EQ(parse_order(encode_order(all), most), all);
}

TEST(Order, WhatIsOutOfRangeIsNone) {
  const Order good{.number = 1, .live = 0b100, .plan = 1, .type = 7, .reduction = 0, .count = 1, .chunk = 1};
  ASSERT_TRUE(parse_order(encode_order(good), kLimits));
  const auto refused = [&](auto change) {
    Order order = good;
    change(order);
    return !parse_order(encode_order(order), kLimits);
  };
  EXPECT_TRUE(refused([](Order& order) { order.live = 0b001; })) << "not for this helper";
  EXPECT_TRUE(refused([](Order& order) { order.live = 0b100100; })) << "no such helper";
  EXPECT_TRUE(refused([](Order& order) { order.plan = 6; }));
  EXPECT_TRUE(refused([](Order& order) { order.type = 10; }));
  EXPECT_TRUE(refused([](Order& order) { order.reduction = 2; }));
  EXPECT_TRUE(refused([](Order& order) { order.count = 0; }));
  EXPECT_TRUE(refused([](Order& order) { order.count = ~std::uint64_t{0}; }));
  EXPECT_TRUE(refused([](Order& order) { order.chunk = 0; }));
}

TEST(Order, AnyBytesAreAnOrderWithinTheLimitsOrNone) {
  Rng rng(3);
  int read = 0;
  for (int i = 0; i < 200'000; ++i) {
    OrderBytes bytes =
        encode_order({.number = rng.below(1000), .live = 4, .plan = 1, .type = 1, .count = 9, .chunk = 4});
    for (std::uint64_t changes = rng.below(4); changes > 0; --changes) {
      bytes[rng.below(kOrderBytes)] = static_cast<std::byte>(rng.below(256));
    }
    const auto order = parse_order(bytes, kLimits);
    if (!order || order->ends) continue;
    ++read;
    ASSERT_LT(order->plan, kLimits.plans);
    ASSERT_LT(order->type, kLimits.types);
    ASSERT_LT(order->reduction, kLimits.reductions);
    ASSERT_EQ(order->live & 0b100, 0b100U);
    ASSERT_GT(order->count, 0U);
    ASSERT_GT(order->chunk, 0U);
  }
  EXPECT_GT(read, 50'000);
}

}  // namespace
}  // namespace clustar::paraexpress
