// Several communicators on one engine, each driven by threads of its own, as NCCL's proxies are: run it under TSan.
#include <atomic>
#include <random>
#include <thread>

#include "tests/conformance/mlt_bed.h"
#include "tests/sanitized.h"

namespace clustar::transport::conformance {
namespace {

constexpr unsigned kPairs = 4;
constexpr std::size_t kMax = 300000;
constexpr int kRounds = tests::kSanitized ? 3 : 12;

class MltThreads : public MltBed, public ::testing::WithParamInterface<const char*> {};

// Messages of all kinds at once: staged, scheduled, empty, grouped; every second one into memory of its own.
void exchange(Connection& connection, unsigned seed) {
  std::mt19937 random(seed);
  SendBuffer from(*connection.send, kMax, seed);
  std::vector<std::unique_ptr<RecvBuffer>> buffers;
  std::vector<std::size_t> sizes;
  std::vector<Request*> requests;
  for (int i = 0; i < 8; ++i) {
    static constexpr std::size_t kScale[] = {1, 100, 9000, kMax};
    sizes.push_back(random() % kScale[i % 4]);
    buffers.push_back(std::make_unique<RecvBuffer>(*connection.recv, kMax));
    const auto receive = [&] {
      requests.push_back(must_recv(
          *connection.recv, {{buffers.back()->mr.get(), 0, kMax, i % 2}, {buffers.back()->mr.get(), 0, 0, 100 + i}}));
    };
    const auto send = [&] {
      requests.push_back(must_send(*connection.send, *from.mr, 0, sizes.back(), i % 2));
      requests.push_back(must_send(*connection.send, *from.mr, 0, 0, 100 + i));
    };
    if (random() % 2 == 0) {
      receive();
      send();
    } else {
      send();
      receive();
    }
  }
  finish(requests);
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    const auto& got = buffers[i]->bytes;
    ASSERT_TRUE(std::equal(from.bytes.begin(), from.bytes.begin() + static_cast<long>(sizes[i]), got.begin()));
    ASSERT_TRUE(std::all_of(got.begin() + static_cast<long>(sizes[i]), got.end(),
                            [](std::byte byte) { return byte == std::byte{0xee}; }));
  }
}

// As after an abort: requests in flight, memory taken back, ends closed, in every order.
void abandon(Connection connection, unsigned round) {
  auto from = std::make_unique<SendBuffer>(*connection.send, kMax, round);
  auto to = std::make_unique<RecvBuffer>(*connection.recv, kMax);
  for (int i = 0; i < 4; ++i) {
    Request* receive = must_recv(*connection.recv, {{to->mr.get(), 0, kMax, 0}});
    static_cast<void>(must_send(*connection.send, *from->mr, 0, kMax)->test());
    static_cast<void>(receive->test());
  }
  if (round % 2 == 0) from.reset();
  if (round % 3 == 0) to.reset();
  if (round % 4 < 2) connection.send.reset();
  connection.recv.reset();
}

TEST_P(MltThreads, FourCommunicatorsTransferRegisterAndCloseAtOnce) {
  const auto transport = create({.engine = GetParam()});
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kPairs; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < kRounds && !HasFailure(); ++round) {
        Connection connection = connect(*transport, *transport);
        const auto seed = t * 1000 + static_cast<unsigned>(round);
        exchange(connection, seed);
        exchange(connection, seed + 500);
        if (round % 2 == 1) abandon(std::move(connection), static_cast<unsigned>(round) / 2 + t);
      }
    });
  }
  std::thread watcher([&] {  // as a job's log asks, at any time
    while (!over) {
      EXPECT_NE(transport->summary().find("sent"), std::string::npos);
      std::this_thread::yield();
    }
  });
  for (std::thread& thread : threads) thread.join();
  over = true;
  watcher.join();
}

// NCCL's service thread registers on the very connection that the progress thread uses; and the two ends of a pair
// belong to different threads.
TEST_P(MltThreads, EachEndHasItsOwnThreadAndAnotherRegistersOnIt) {
  const auto transport = create({.engine = GetParam()});
  constexpr std::size_t kSize = 50000;
  constexpr int kMessages = 10 * kRounds;
  std::vector<Connection> pairs;
  for (unsigned t = 0; t < kPairs; ++t) pairs.push_back(connect(*transport, *transport));
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kPairs; ++t) {
    threads.emplace_back([&, t] {
      SendBuffer from(*pairs[t].send, kSize, t);
      for (int i = 0; i < kMessages; ++i) finish({must_send(*pairs[t].send, *from.mr, 0, kSize, i % 3)});
    });
    threads.emplace_back([&, t] {
      std::vector<std::byte> expected(kSize);
      std::mt19937 random(t);
      for (std::byte& byte : expected) byte = static_cast<std::byte>(random());
      for (int i = 0; i < kMessages; ++i) {
        RecvBuffer to(*pairs[t].recv, kSize);
        finish({must_recv(*pairs[t].recv, {{to.mr.get(), 0, kSize, i % 3}})});
        EXPECT_TRUE(to.bytes == expected) << "pair " << t << ", message " << i;
      }
    });
  }
  std::thread service([&] {
    std::vector<std::byte> memory(4096);
    while (!over) {
      for (Connection& pair : pairs) {
        EXPECT_TRUE(pair.send->reg_mr(gdr::MemoryRef::host(memory.data(), memory.size())));
        EXPECT_TRUE(pair.recv->reg_mr(gdr::MemoryRef::host(memory.data(), memory.size())));
      }
    }
  });
  for (std::thread& thread : threads) thread.join();
  over = true;
  service.join();
  EXPECT_NE(transport->summary().find(" 0 bytes missing"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Engines, MltThreads, ::testing::Values("inline", "thread", "auto"),
                         [](const auto& suite) { return std::string(suite.param); });

}  // namespace
}  // namespace clustar::transport::conformance
