#include "paraexpress/tolerant/core/saved.h"

#include <gtest/gtest.h>

#include "transport/base/rng.h"

namespace clustar::paraexpress::tolerant {
namespace {

Residual some(bool with_elements) {
  Residual residual{3, DataType::kFloat64, 7, {2, 0, 5}, {}};
  if (with_elements) residual.elements.assign(24, std::byte{9});
  return residual;
}

std::vector<std::byte> bytes_of(const Residual& residual) {
  std::vector<std::byte> bytes(saved_bytes(residual));
  save(residual, bytes);
  return bytes;
}

TEST(TolerantSaved, ComesBackAsItWas) {
  for (const bool with_elements : {true, false}) {
    const Residual residual = some(with_elements);
    const auto back = parse_saved(bytes_of(residual));
    ASSERT_TRUE(back);
    EXPECT_EQ(back->count, residual.count);
    EXPECT_EQ(back->type, residual.type);
    EXPECT_EQ(back->owed, residual.owed);
    EXPECT_EQ(back->elements, residual.elements);
  }
  const auto empty = parse_saved(bytes_of({}));
  ASSERT_TRUE(empty);
  EXPECT_EQ(empty->count, 0U);
}

TEST(TolerantSaved, OtherBytesAreRefusedOrReadWithoutHarm) {
  const auto good = bytes_of(some(true));
  for (std::size_t length = 0; length < good.size(); ++length) {
    const auto back = parse_saved(std::span<const std::byte>(good).first(length));
    EXPECT_TRUE(!back || (back->elements.empty() && length == 24)) << length;
  }
  Rng rng(1);
  for (int i = 0; i < 20'000; ++i) {
    auto bytes = good;
    for (std::uint64_t changes = 1 + rng.below(3); changes > 0; --changes) {
      bytes[rng.below(bytes.size())] = static_cast<std::byte>(rng.below(256));
    }
    const auto back = parse_saved(bytes);
    if (!back || back->elements.empty()) continue;
    EXPECT_EQ(back->elements.size(), back->count * element_bytes(back->type));
  }
}

}  // namespace
}  // namespace clustar::paraexpress::tolerant
