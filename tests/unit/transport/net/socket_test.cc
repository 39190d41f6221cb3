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

// More than any buffer of the system's takes.
constexpr std::size_t kSize = 64 << 20;

std::array<Socket, 2> pair() {
  std::array<int, 2> ends{};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
  return {Socket(ends[0]), Socket(ends[1])};
}

TEST(WriteLast, AllOfItToWhoReadsInItsOwnTime) {
  auto [here, there] = pair();
  std::vector<std::byte> sent(kSize);
  for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<std::byte>(i * 7 >> 5);
  std::vector<std::byte> received;
  received.reserve(kSize);
  std::thread reader([&, fd = there.fd()] {
    std::vector<std::byte> part(1 << 20);
    pollfd watched{fd, POLLIN, 0};
    while (::poll(&watched, 1, 20000) > 0) {
      const IoResult got = read_some(fd, std::span(part));
      if (got.kind != IoResult::Kind::kBytes) break;
      received.insert(received.end(), part.begin(), part.begin() + static_cast<std::ptrdiff_t>(got.bytes));
    }
  });
  // In parts, for waits are few.
  std::size_t written = 0;
  constexpr std::size_t kPart = 8 << 20;
  for (; written < kSize; written += kPart) {
    if (!write_last(here, std::span(sent).subspan(written, kPart), milliseconds(2000))) break;
  }
  here.close();
  reader.join();
  EXPECT_EQ(written, kSize);
  EXPECT_TRUE(sent == received);
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
