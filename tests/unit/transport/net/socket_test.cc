#include "transport/net/socket.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace clustar::transport::net {
namespace {

using std::chrono::milliseconds;

// More than sixteen times what any buffer of the system's takes at once.
constexpr std::size_t kSize = 192 << 20;

std::array<Socket, 2> pair() {
  std::array<int, 2> ends{};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
  return {Socket(ends[0]), Socket(ends[1])};
}

TEST(WriteLast, AllOfItToWhoReadsInItsOwnTime) {
  auto [here, there] = pair();
  const auto byte_at = [](std::size_t i) { return static_cast<std::byte>(i * 7 >> 5); };
  std::vector<std::byte> sent(kSize);
  for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = byte_at(i);
  std::size_t received = 0;
  std::size_t wrong = 0;
  std::thread reader([&, fd = there.fd()] {
    std::vector<std::byte> part(1 << 20);
    pollfd watched{fd, POLLIN, 0};
    while (::poll(&watched, 1, 20000) > 0) {
      const IoResult got = read_some(fd, std::span(part));
      if (got.kind != IoResult::Kind::kBytes) break;
      for (std::size_t i = 0; i < got.bytes; ++i) wrong += part[i] != byte_at(received + i) ? 1 : 0;
      received += got.bytes;
    }
  });
  // Room comes more often than a closing end waits where none comes.
  EXPECT_TRUE(write_last(here, sent, milliseconds(2000)));
  here.close();
  reader.join();
  EXPECT_EQ(received, kSize);
  EXPECT_EQ(wrong, 0u);
}

TEST(WriteLast, AFewWaitsForWhoReadsNothing) {
  auto [here, there] = pair();
  const std::vector<std::byte> bytes(kSize);
  EXPECT_FALSE(write_last(here, bytes, milliseconds(1)));
  there.close();
  EXPECT_FALSE(write_last(here, bytes, milliseconds(1)));
  EXPECT_TRUE(write_last(here, {}, milliseconds(1)));
}

TEST(WriteLast, MakesTheBufferLargeEnough) {
  auto [here, there] = pair();
  const int small = 4096;
  ASSERT_EQ(setsockopt(here.fd(), SOL_SOCKET, SO_SNDBUF, &small, sizeof small), 0);
  const std::vector<std::byte> bytes(100000);  // allowed on every system: net.core.wmem_max is 212,992 at least
  EXPECT_TRUE(write_last(here, bytes, milliseconds(0))) << "nobody reads";
}

}  // namespace
}  // namespace clustar::transport::net
