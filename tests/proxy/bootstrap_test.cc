#include "bench/proxy/bootstrap.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "bench/proxy/socket_io.h"
#include "tests/proxy/ranks.h"
#include "transport/base/file_descriptor.h"
#include "transport/rendezvous/door.h"

namespace clustar::bench::proxy {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using ::testing::HasSubstr;

Bootstrap::Options options_for(int rank, int size, const std::string& root) {
  Bootstrap::Options options;
  options.rank = rank;
  options.size = size;
  options.root = root;
  options.join_timeout = milliseconds(20000);
  options.call_timeout = milliseconds(20000);
  return options;
}

TEST(Bootstrap, GathersInRankOrder) {
  for (const int size : {1, 2, 5, 8}) {
    run_ranks(size, [size](Bootstrap& bootstrap) {
      EXPECT_EQ(bootstrap.size(), size);
      for (std::size_t bytes : {0u, 1u, 300'000u}) {
        const std::vector<std::byte> mine(bytes, static_cast<std::byte>(bootstrap.rank() + 1));
        const auto all = bootstrap.all_gather(mine);
        ASSERT_TRUE(all) << all.error().message;
        ASSERT_EQ(all->size(), bytes * static_cast<std::size_t>(size));
        for (std::size_t i = 0; i < all->size(); ++i) {
          ASSERT_EQ((*all)[i], static_cast<std::byte>(i / bytes + 1));
        }
        ASSERT_TRUE(bootstrap.barrier());
      }
    });
  }
}

TEST(Bootstrap, StrangersAreDropped) {
  const std::string root = *Bootstrap::pick_loopback_root();
  const HostPort address = *parse_host_port(root);
  std::thread rank0([&] {
    auto bootstrap = Bootstrap::join(options_for(0, 2, root));
    ASSERT_TRUE(bootstrap) << bootstrap.error().message;
    EXPECT_TRUE((*bootstrap)->barrier());
  });
  // One says nothing, one talks rubbish, one leaves at once: all before the rank that is waited for.
  std::vector<FileDescriptor> strangers;
  while (strangers.size() < 3) {
    if (auto fd = tcp_connect(address, steady_clock::now() + milliseconds(1000))) strangers.push_back(std::move(*fd));
  }
  const std::string rubbish(64, 'x');
  EXPECT_EQ(send(strangers[1].fd(), rubbish.data(), rubbish.size(), MSG_NOSIGNAL), 64);
  strangers[2].close();
  auto bootstrap = Bootstrap::join(options_for(1, 2, root));
  ASSERT_TRUE(bootstrap) << bootstrap.error().message;
  EXPECT_TRUE((*bootstrap)->barrier());
  rank0.join();
}

TEST(Bootstrap, MissingRanksAreNamedToEveryone) {
  const std::string root = *Bootstrap::pick_loopback_root();
  std::thread rank0([&] {
    auto options = options_for(0, 4, root);
    options.join_timeout = milliseconds(400);
    const auto bootstrap = Bootstrap::join(options);
    ASSERT_FALSE(bootstrap);
    EXPECT_THAT(bootstrap.error().message, HasSubstr("2, 3 did not join"));
  });
  const auto bootstrap = Bootstrap::join(options_for(1, 4, root));
  ASSERT_FALSE(bootstrap);
  EXPECT_THAT(bootstrap.error().message, HasSubstr("2, 3 did not join"));
  rank0.join();
}

TEST(Bootstrap, NobodyAtTheRoot) {
  auto options = options_for(1, 2, *Bootstrap::pick_loopback_root());
  options.join_timeout = milliseconds(200);
  const auto bootstrap = Bootstrap::join(options);
  ASSERT_FALSE(bootstrap);
  EXPECT_THAT(bootstrap.error().message, HasSubstr("rank 1 could not join rank 0 at 127.0.0.1:"));
}

TEST(Bootstrap, ContradictionsAreErrors) {
  for (const bool same_rank : {true, false}) {
    const std::string root = *Bootstrap::pick_loopback_root();
    std::thread rank0([&] {
      const auto bootstrap = Bootstrap::join(options_for(0, 3, root));
      ASSERT_FALSE(bootstrap);
      EXPECT_EQ(bootstrap.error().code, ErrorCode::kInvalidUsage);
    });
    std::thread first([&] {
      // Rank 0 may be gone before this one asks: then nobody can tell it why.
      auto options = options_for(1, 3, root);
      options.join_timeout = milliseconds(1000);
      EXPECT_FALSE(Bootstrap::join(options));
    });
    const auto second = Bootstrap::join(same_rank ? options_for(1, 3, root) : options_for(2, 4, root));
    EXPECT_FALSE(second);
    first.join();
    rank0.join();
  }
  EXPECT_FALSE(Bootstrap::join(options_for(3, 3, "127.0.0.1:1")));
  for (const char* bad : {"", "host", "host:", ":5", "host:0", "host:65536", "host:5x", "::1:5", "[]:5"}) {
    const auto bootstrap = Bootstrap::join(options_for(1, 2, bad));
    ASSERT_FALSE(bootstrap);
    EXPECT_EQ(bootstrap.error().code, ErrorCode::kInvalidArgument) << bad;
  }
}

TEST(Bootstrap, ADeadRankIsNamedToTheOthers) {
  run_ranks(4, [](Bootstrap& bootstrap) {
    ASSERT_TRUE(bootstrap.barrier());
    if (bootstrap.rank() == 2) return;  // its end closes the connection, as a dead process does
    for (int i = 0; i < 2; ++i) {
      const auto result = bootstrap.barrier();
      ASSERT_FALSE(result);
      EXPECT_EQ(result.error().code, ErrorCode::kRemote);
      EXPECT_THAT(result.error().message, HasSubstr("rank 2"));
    }
  });
}

TEST(Bootstrap, ADeadRootIsNamed) {
  run_ranks(3, [](Bootstrap& bootstrap) {
    ASSERT_TRUE(bootstrap.barrier());
    if (bootstrap.rank() == 0) return;
    const auto result = bootstrap.barrier();
    ASSERT_FALSE(result);
    EXPECT_THAT(result.error().message, HasSubstr("rank 0"));
  });
}

TEST(Bootstrap, DifferentSizesAreAnErrorForAll) {
  run_ranks(3, [](Bootstrap& bootstrap) {
    const std::vector<std::byte> mine(bootstrap.rank() == 1 ? 5 : 4);
    const auto all = bootstrap.all_gather(mine);
    ASSERT_FALSE(all);
    EXPECT_EQ(all.error().code, ErrorCode::kInvalidUsage);
    EXPECT_THAT(all.error().message, HasSubstr("rank 1 gave 5 bytes"));
  });
}

TEST(Bootstrap, ALateRankIsAnErrorInTime) {
  const std::string root = *Bootstrap::pick_loopback_root();
  const auto late = [&](int rank) {
    auto options = options_for(rank, 2, root);
    options.call_timeout = milliseconds(300);
    return Bootstrap::join(options);
  };
  std::thread rank0([&] {
    const auto bootstrap = late(0);
    ASSERT_TRUE(bootstrap);
    const auto begin = steady_clock::now();
    const auto result = (*bootstrap)->barrier();
    ASSERT_FALSE(result);
    EXPECT_THAT(result.error().message, HasSubstr("rank 1 did not reach the bootstrap call within 0.3 s"));
    EXPECT_LT(steady_clock::now() - begin, milliseconds(5000));
  });
  const auto bootstrap = late(1);
  ASSERT_TRUE(bootstrap);
  rank0.join();
}

// Of four, the last two may be missing: one never comes, one goes between two calls.
TEST(Bootstrap, WhoMayBeMissingIsZeros) {
  const std::string root = *Bootstrap::pick_loopback_root();
  const auto part = [&](int rank) {
    auto options = options_for(rank, 4, root);
    options.required = 2;
    if (rank == 0) options.join_timeout = milliseconds(2000);
    auto bootstrap = Bootstrap::join(options);
    ASSERT_TRUE(bootstrap) << bootstrap.error().message;
    const std::byte mine{static_cast<std::uint8_t>(rank + 1)};
    for (const int expected : {3, 0}) {
      if (rank == 2 && expected == 0) return;
      const auto all = (*bootstrap)->all_gather(std::span(&mine, 1));
      ASSERT_TRUE(all) << all.error().message;
      EXPECT_EQ(*all, (std::vector<std::byte>{std::byte{1}, std::byte{2}, static_cast<std::byte>(expected), {}}));
    }
    EXPECT_TRUE((*bootstrap)->barrier());
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) threads.emplace_back(part, rank);
  for (std::thread& thread : threads) thread.join();
}

TEST(Bootstrap, WhoIsNeededIsNamedEvenIfOthersMayBeMissing) {
  auto options = options_for(0, 4, *Bootstrap::pick_loopback_root());
  options.required = 2;
  options.join_timeout = milliseconds(300);
  const auto bootstrap = Bootstrap::join(options);
  ASSERT_FALSE(bootstrap);
  EXPECT_THAT(bootstrap.error().message, HasSubstr("rank(s) 1 did not join"));
}

TEST(Door, OnlyThoseThatKnockAndStayAreThere) {
  using rendezvous::Door;
  const std::string root = *Bootstrap::pick_loopback_root();
  const auto soon = [] { return steady_clock::now() + milliseconds(5000); };
  EXPECT_THAT(rendezvous::knock_at_all({root}, 1, steady_clock::now()).error().message, HasSubstr("nobody listens at"));
  const auto door = Door::at(root);
  ASSERT_TRUE(door) << door.error().message;
  EXPECT_FALSE(Door::at(root));
  const auto wait_for = [&](std::uint32_t count) {
    const auto until = soon();
    while ((*door)->waiting() != count && steady_clock::now() < until) std::this_thread::sleep_for(milliseconds(1));
    return (*door)->waiting() == count;
  };
  // One says nothing, one talks rubbish, and one of two that knock goes.
  const auto silent = tcp_connect(*parse_host_port(root), soon());
  const auto talks = tcp_connect(*parse_host_port(root), soon());
  ASSERT_TRUE(silent && talks);
  const std::string rubbish(64, 'x');
  EXPECT_EQ(send(talks->fd(), rubbish.data(), rubbish.size(), MSG_NOSIGNAL), 64);
  auto goes = rendezvous::knock(root, soon());
  ASSERT_TRUE(goes);
  ASSERT_TRUE(wait_for(1));
  const auto stays = rendezvous::knock(root, soon());
  ASSERT_TRUE(stays && wait_for(2));
  goes = fail(ErrorCode::kRemote, "it goes");
  ASSERT_TRUE(wait_for(1));
  const std::vector<std::byte> message(100'000, std::byte{7});
  std::thread hears([&] {
    EXPECT_EQ(stays->hear(message.size(), soon()).value(), message);
    EXPECT_THAT(stays->hear(10, soon()).error().message, HasSubstr("makes no sense"));
  });
  EXPECT_TRUE((*door)->line(0).say(message, soon()));
  EXPECT_TRUE((*door)->line(0).say(message, soon()));
  hears.join();
  EXPECT_THAT((*door)->line(0).hear(10, steady_clock::now() + milliseconds(20)).error().message,
              HasSubstr("does not answer"));
  (*door)->let_go(1);
  EXPECT_EQ((*door)->waiting(), 0U);
}

// A flood does not keep rank 0: one look takes so many, in their order; nor does it keep out who knocks behind it.
TEST(Door, OneLookTakesABoundedNumber) {
  using rendezvous::Door;
  const std::string root = *Bootstrap::pick_loopback_root();
  const auto soon = steady_clock::now() + std::chrono::seconds(20);
  const auto door = Door::at(root);
  ASSERT_TRUE(door) << door.error().message;
  std::vector<FileDescriptor> flood;
  for (std::size_t i = 0; i < Door::kMostWaiting + 10; ++i) {
    auto silent = tcp_connect(*parse_host_port(root), soon);
    ASSERT_TRUE(silent) << silent.error().message;
    flood.push_back(std::move(*silent));
  }
  const auto knocks = rendezvous::knock(root, soon);
  ASSERT_TRUE(knocks);
  EXPECT_EQ((*door)->waiting(), 0U);
  EXPECT_EQ((*door)->waiting(), 1U);
  // As many strangers as it keeps, and the one that waits.
  const auto open = [](const FileDescriptor& one) {
    std::byte none{};
    return recv(one.fd(), &none, 1, MSG_PEEK | MSG_DONTWAIT) < 0;
  };
  EXPECT_EQ(std::ranges::count_if(flood, open), static_cast<std::ptrdiff_t>(Door::kMostWaiting) - 1);
}

// Of several hosts one is rank 0's: of the others one listens and is silent, one is not there, one is unknown.
TEST(Door, WhoDoesNotAnswerDoesNotHoldUpTheOthers) {
  using rendezvous::Door;
  const auto soon = steady_clock::now() + std::chrono::seconds(20);
  const std::string silent_at = *Bootstrap::pick_loopback_root();
  const auto silent = tcp_listen(*parse_host_port(silent_at));
  const std::string root = *Bootstrap::pick_loopback_root();
  const auto door = Door::at(root);
  ASSERT_TRUE(silent && door);
  std::thread rank0([&] {
    while ((*door)->waiting() == 0 && steady_clock::now() < soon) std::this_thread::sleep_for(milliseconds(1));
    // Twice the same address is one newcomer.
    ASSERT_EQ((*door)->waiting(), 1U);
    EXPECT_TRUE((*door)->line(0).say(std::vector<std::byte>(3), soon));
  });
  const std::vector<std::string> all{silent_at, "127.0.0.1:1", "no-such-host.invalid:1", root, root};
  const auto answered = rendezvous::knock_at_all(all, 3, soon);
  rank0.join();
  ASSERT_TRUE(answered) << answered.error().message;
  EXPECT_EQ(answered->message.size(), 3U);
  EXPECT_EQ(rendezvous::knock_at_all({root, "nothing"}, 3, soon).error().code, ErrorCode::kInvalidArgument);
  const auto unheard = rendezvous::knock_at_all({silent_at}, 3, steady_clock::now() + milliseconds(20));
  EXPECT_THAT(unheard.error().message, HasSubstr("when all ranks call resize()"));
}

TEST(SocketIo, IpV6Address) {
  const auto address = parse_host_port("[::1]:4711");
  ASSERT_TRUE(address);
  EXPECT_EQ(address->host, "::1");
  EXPECT_EQ(address->port, "4711");
}

}  // namespace
}  // namespace clustar::bench::proxy
