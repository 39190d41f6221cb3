#include "transport/base/stream_copy.h"

#include <gtest/gtest.h>

#include <vector>

namespace clustar {
namespace {

TEST(StreamCopy, CopiesWhatMemcpyWouldAtEveryAlignment) {
  std::vector<std::byte> from(1000);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 7 + 1);
  for (std::size_t source = 0; source < 3; ++source) {
    for (std::size_t target = 0; target < 65; ++target) {
      for (const std::size_t length : {0, 1, 63, 64, 65, 127, 128, 129, 300, 900}) {
        std::vector<std::byte> to(1100, std::byte{0xee});
        std::vector<std::byte> expected = to;
        std::copy_n(from.begin() + static_cast<long>(source), length, expected.begin() + static_cast<long>(target));
        stream_copy(to.data() + target, from.data() + source, length);
        order_streamed();
        ASSERT_EQ(to, expected) << source << " " << target << " " << length;
      }
    }
  }
}

}  // namespace
}  // namespace clustar
