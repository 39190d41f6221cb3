// The parameter server of 2018 as the trainer calls it: ranks as threads, over TCP on loopback, and peers that die or
// talk rubbish.
#include "bench/trainer/ps_collective.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bench/proxy/bootstrap.h"
#include "bench/proxy/socket_io.h"
#include "bench/trainer/ps_server.h"
#include "tests/trainer/on_ranks.h"
#include "transport/base/file_descriptor.h"

namespace clustar::bench::trainer {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr std::uint64_t kToken = 0x1234567890;
constexpr milliseconds kAmple{20000};

using PsWork = std::function<Result<void>(int rank, PsCollective& collective)>;

Result<std::unique_ptr<PsCollective>> join_as(int rank, int ranks, const std::string& root) {
  auto bootstrap = proxy::Bootstrap::join({.rank = rank, .size = ranks, .root = root});
  if (!bootstrap) return tl::unexpected(bootstrap.error());
  return PsCollective::create(**bootstrap,
                              {.root = root, .token = kToken, .join_timeout = kAmple, .stall_timeout = kAmple});
}

// The errors by rank; "" where there was none.
std::vector<std::string> on_ps_ranks(int ranks, const PsWork& work) {
  const auto root = proxy::Bootstrap::pick_loopback_root();
  return tests::on_ranks(ranks, [&](int rank) -> Result<void> {
    auto collective = join_as(rank, ranks, *root);
    if (!collective) return tl::unexpected(collective.error());
    if (auto ok = work(rank, **collective); !ok) return ok;
    return (*collective)->close();
  });
}

Result<void> sum(PsCollective& collective, std::vector<float>& values) {
  const Buffer mapped = collective.map(values.data(), values.size() * sizeof(float));
  const auto outcome = collective.all_reduce(mapped, values.size(), Precision::kFloat32, {}, nullptr)->wait();
  return outcome ? Result<void>() : tl::unexpected(outcome.error());
}

std::vector<float> gradients_of(int rank, std::size_t count) {
  std::mt19937 random(static_cast<unsigned>(rank));
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

TEST(PsCollective, SumsInRankOrderWithTheSameBitsOnAllRanks) {
  for (const int ranks : {1, 2, 4}) {
    constexpr std::size_t kElements = 300'001;
    constexpr std::size_t kFirst = 1000;
    std::vector<float> expected = gradients_of(0, kElements);
    for (int rank = 1; rank < ranks; ++rank) {
      const std::vector<float> more = gradients_of(rank, kElements);
      for (std::size_t i = 0; i + 1 < kElements; ++i) expected[i] += more[i];
    }
    const auto errors = on_ps_ranks(ranks, [&](int rank, PsCollective& collective) -> Result<void> {
      std::vector<float> values = gradients_of(rank, kElements);
      const Buffer mapped = collective.map(values.data(), values.size() * sizeof(float));
      const auto left = collective.all_reduce(mapped, kFirst, Precision::kFloat32, {}, nullptr);
      const auto right = collective.all_reduce(mapped.at(kFirst * sizeof(float)), kElements - kFirst - 1,
                                               Precision::kFloat32, {}, nullptr);
      // In another order than they were started, which is the one that they run in.
      for (const auto& pending : {right.get(), left.get(), right.get()}) {
        const auto outcome = pending->wait();
        if (!outcome) return tl::unexpected(outcome.error());
        EXPECT_GT(outcome->seconds, 0);
      }
      const std::size_t summed = (kElements - 1) * sizeof(float);
      EXPECT_EQ(std::memcmp(values.data(), expected.data(), summed), 0) << "rank " << rank << " of " << ranks;
      EXPECT_EQ(values.back(), gradients_of(rank, kElements).back()) << "was of neither";
      const auto peers = static_cast<std::uint64_t>(rank == 0 ? ranks - 1 : 1);
      EXPECT_EQ(collective.traffic()->bytes_received, peers * summed);
      if (rank > 0) {
        EXPECT_EQ(collective.traffic()->bytes_sent, summed);
      }
      EXPECT_NE(collective.congestion_control(), "unknown");
      return {};
    });
    EXPECT_THAT(errors, Each(std::string()));
  }
}

TEST(PsCollective, GathersFromElsewhereAndInPlace) {
  const auto errors = on_ps_ranks(3, [](int rank, PsCollective& collective) -> Result<void> {
    constexpr std::size_t kBytes = 4099;
    const std::vector<std::byte> own(kBytes, static_cast<std::byte>(rank + 1));
    std::vector<std::byte> mine = own;
    std::vector<std::byte> all(3 * kBytes);
    const auto place = static_cast<std::size_t>(rank) * kBytes;
    for (const bool in_place : {false, true}) {
      std::fill(all.begin(), all.end(), std::byte{0});
      if (in_place) std::memcpy(all.data() + place, own.data(), kBytes);
      const Buffer from = in_place ? Buffer{all.data() + place} : Buffer{mine.data()};
      const auto outcome = collective.all_gather(from, {all.data()}, kBytes, {})->wait();
      if (!outcome) return tl::unexpected(outcome.error());
      for (std::size_t i = 0; i < all.size(); ++i) {
        if (all[i] != static_cast<std::byte>(i / kBytes + 1)) return fail(ErrorCode::kInternal, "a byte is wrong");
      }
    }
    return {};
  });
  EXPECT_THAT(errors, Each(std::string()));
}

TEST(PsCollective, MemoryOfADeviceAndTooMuchOfItAreRefused) {
  const auto errors = on_ps_ranks(2, [](int, PsCollective& collective) -> Result<void> {
    std::byte somewhere{};
    const auto device = collective.all_reduce({nullptr, &somewhere}, 1, Precision::kFloat32, {}, nullptr)->wait();
    EXPECT_THAT(device.error().message, HasSubstr("work on host memory"));
    const auto huge =
        collective.all_reduce({&somewhere}, (std::size_t{1} << 28) + 1, Precision::kFloat32, {}, nullptr)->wait();
    EXPECT_THAT(huge.error().message, HasSubstr("allowed: at most 1073741824"));
    const auto gathered = collective.all_gather({&somewhere}, {&somewhere}, (std::size_t{1} << 29) + 1, {})->wait();
    EXPECT_THAT(gathered.error().message, HasSubstr("allowed: at most 536870912"));
    std::vector<float> values(10, 1);
    return sum(collective, values);
  });
  EXPECT_THAT(errors, Each(std::string()));
}

TEST(PsCollective, AnAbortEndsTheOthersToo) {
  const auto errors = on_ps_ranks(3, [](int rank, PsCollective& collective) -> Result<void> {
    if (rank == 1) collective.abort();
    std::vector<float> values(1000);
    return sum(collective, values);
  });
  EXPECT_THAT(errors, Each(HasSubstr("rank 1")));
}

TEST(PsCollective, AWorkerThatLeavesIsNamedByTheNextCollective) {
  const auto errors = on_ps_ranks(3, [](int rank, PsCollective& collective) -> Result<void> {
    std::vector<float> values(1000, 1);
    if (auto ok = sum(collective, values); !ok || rank == 2) return ok;
    return sum(collective, values);
  });
  EXPECT_EQ(errors[2], "");
  for (const int rank : {0, 1}) {
    EXPECT_THAT(errors[static_cast<std::size_t>(rank)], HasSubstr("rank 2 closed the connection to the parameter"));
  }
}

TEST(PsCollective, AServerThatEndsIsNamedByItsRank) {
  const auto errors = on_ps_ranks(3, [](int rank, PsCollective& collective) -> Result<void> {
    std::vector<float> values(1000, 1);
    if (auto ok = sum(collective, values); !ok || rank == 0) return ok;
    return sum(collective, values);
  });
  EXPECT_EQ(errors[0], "");
  for (const std::size_t rank : {1u, 2u}) {
    EXPECT_THAT(errors[rank], testing::AnyOf(HasSubstr("rank 0, whose process is the parameter server, closed"),
                                             HasSubstr("rank 0 closed the connection")));
  }
}

// A server whose workers the test plays itself.
class PlayedWorkers {
 public:
  explicit PlayedWorkers(int ranks, milliseconds stall = kAmple, milliseconds join = kAmple) {
    auto made =
        PsServer::listen("127.0.0.1", {.ranks = ranks, .token = kToken, .join_timeout = join, .stall_timeout = stall});
    EXPECT_TRUE(made) << made.error().message;
    server_ = std::move(*made);
    server_->start();
  }
  FileDescriptor connection() const {
    auto made = proxy::tcp_connect({"127.0.0.1", std::to_string(server_->port())}, limit());
    EXPECT_TRUE(made) << made.error().message;
    return std::move(*made);
  }
  FileDescriptor worker(std::uint32_t rank) const {
    FileDescriptor fd = connection();
    say(fd, {.kind = ps::kHello, .rank = rank, .sequence = kToken});
    return fd;
  }
  static proxy::Deadline limit() { return steady_clock::now() + kAmple; }
  static void say(const FileDescriptor& fd, const ps::Header& header, const ps::Message& body = {}) {
    ps::Message whole;
    ps::serialise(header, body, whole);
    bool timed_out = false;
    EXPECT_TRUE(proxy::write_all(fd.fd(), whole, limit(), timed_out));
  }
  // The next message's header, and the text of an error.
  static std::pair<ps::Header, std::string> hear(const FileDescriptor& fd) {
    ps::Header header;
    bool timed_out = false;
    if (!proxy::read_all(fd.fd(), std::as_writable_bytes(std::span(&header, 1)), limit(), timed_out))
      return {{}, timed_out ? "nothing came" : "closed"};
    ps::Message body(header.length);
    EXPECT_TRUE(proxy::read_all(fd.fd(), body, limit(), timed_out));
    return {header, header.kind == ps::kError ? ps::parse_error(body).message : ""};
  }

 private:
  std::unique_ptr<PsServer> server_;
};

TEST(PsServer, StrangersAreRefusedAndStopNobody) {
  const PlayedWorkers workers(2);
  for (const ps::Header& hello :
       {ps::Header{.magic = 0x20544547, .kind = ps::kHello, .sequence = kToken},
        ps::Header{.kind = ps::kSum, .sequence = kToken}, ps::Header{.kind = ps::kHello, .sequence = kToken + 1},
        ps::Header{.kind = ps::kHello, .sequence = kToken, .length = 1}}) {
    const FileDescriptor stranger = workers.connection();
    PlayedWorkers::say(stranger, hello);
    EXPECT_THAT(PlayedWorkers::hear(stranger).second, HasSubstr("allowed: a hello of its ranks (magic 0x"));
    EXPECT_EQ(PlayedWorkers::hear(stranger).second, "closed");
  }
  const FileDescriptor silent = workers.connection();
  const FileDescriptor zero = workers.worker(0);
  const FileDescriptor one = workers.worker(1);
  for (const FileDescriptor* worker : {&zero, &one}) EXPECT_EQ(PlayedWorkers::hear(*worker).first.kind, ps::kWelcome);
}

TEST(PsServer, RanksThatContradictEachOtherAreNamed) {
  {
    const PlayedWorkers workers(2);
    const FileDescriptor one = workers.worker(1);
    const FileDescriptor again = workers.worker(1);
    EXPECT_EQ(PlayedWorkers::hear(again).second, "two processes say that they are rank 1");
    EXPECT_EQ(PlayedWorkers::hear(one).second, "two processes say that they are rank 1");
  }
  const PlayedWorkers workers(2);
  EXPECT_EQ(PlayedWorkers::hear(workers.worker(2)).second, "there is no rank 2; allowed: 0 to 1");
}

TEST(PsServer, AWorkerThatSendsRubbishIsNamedToAllWithWhatIsAllowed) {
  const ps::Header good{.kind = ps::kSum, .rank = 1, .sequence = 1, .length = 8};
  const auto with = [&](const std::function<void(ps::Header&)>& change) {
    ps::Header changed = good;
    change(changed);
    return changed;
  };
  const std::vector<std::pair<ps::Header, std::string>> cases{
      {with([](auto& header) { header.magic = 7; }), "begins with 0x7; allowed: 0x"},
      {with([](auto& header) { header.kind = ps::kAnswer; }), "kind 5; allowed: 3 (a sum) and 4"},
      {with([](auto& header) { header.rank = 0; }), "a message of rank 0; allowed: its own"},
      {with([](auto& header) { header.sequence = 2; }), "collective 2; allowed: the next one, 1"},
      {with([](auto& header) { header.length = 7; }), "7 bytes to add; allowed: a multiple of 4"},
      {with([](auto& header) { header.length = ~std::uint64_t{0}; }), "allowed: at most 1073741824"},
      {with([](auto& header) {
         header.kind = ps::kGather;
         header.length = (1u << 29) + 1;
       }),
       "allowed: at most 536870912"},
      {with([](auto& header) { header.length = 12; }), "allowed: the same from all"},
      {with([](auto& header) { header.kind = ps::kGather; }), "allowed: the same from all"},
  };
  for (const auto& [bad, expected] : cases) {
    const PlayedWorkers workers(2);
    const FileDescriptor zero = workers.worker(0);
    const FileDescriptor one = workers.worker(1);
    for (const FileDescriptor* worker : {&zero, &one}) EXPECT_EQ(PlayedWorkers::hear(*worker).first.kind, ps::kWelcome);
    PlayedWorkers::say(zero, {.kind = ps::kSum, .rank = 0, .sequence = 1, .length = 8}, ps::Message(8));
    PlayedWorkers::say(one, bad);
    for (const FileDescriptor* worker : {&zero, &one}) {
      const std::string said = PlayedWorkers::hear(*worker).second;
      // Either may be the first of two that differ.
      EXPECT_THAT(said, AllOf(HasSubstr("sent the parameter server"), HasSubstr("rank 1"), HasSubstr(expected)));
      EXPECT_EQ(PlayedWorkers::hear(*worker).second, "closed");
    }
  }
}

TEST(PsServer, AWorkerThatDiesInAMessageOrSaysNothingIsNamed) {
  {
    const PlayedWorkers workers(2);
    const FileDescriptor zero = workers.worker(0);
    FileDescriptor one = workers.worker(1);
    EXPECT_EQ(PlayedWorkers::hear(zero).first.kind, ps::kWelcome);
    EXPECT_EQ(PlayedWorkers::hear(one).first.kind, ps::kWelcome);
    PlayedWorkers::say(one, {.kind = ps::kSum, .rank = 1, .sequence = 1, .length = 1 << 20}, ps::Message(1000));
    one.close();
    EXPECT_THAT(PlayedWorkers::hear(zero).second, HasSubstr("rank 1 closed the connection"));
  }
  {
    const PlayedWorkers workers(3, milliseconds(300));
    const FileDescriptor zero = workers.worker(0);
    const FileDescriptor one = workers.worker(1);
    const FileDescriptor two = workers.worker(2);
    for (const FileDescriptor* each : {&zero, &one, &two})
      EXPECT_EQ(PlayedWorkers::hear(*each).first.kind, ps::kWelcome);
    PlayedWorkers::say(one, {.kind = ps::kSum, .rank = 1, .sequence = 1, .length = 8}, ps::Message(8));
    for (const FileDescriptor* each : {&zero, &one, &two}) {
      EXPECT_EQ(PlayedWorkers::hear(*each).second,
                "ranks 0, 2 sent the parameter server nothing of collective 1 for 0.3 s");
    }
  }
  const PlayedWorkers workers(2, kAmple, milliseconds(300));
  EXPECT_EQ(PlayedWorkers::hear(workers.worker(0)).second,
            "rank 1 did not connect to the parameter server within 0.3 s");
}

// Rank 1 against a server that the test plays as rank 0.
class PlayedServer {
 public:
  PlayedServer() : root_(*proxy::Bootstrap::pick_loopback_root()) {}
  // Listens, plays, and returns rank 1's error.
  std::string run(const std::function<void(const FileDescriptor& worker)>& play_before_wait,
                  const std::function<void(const FileDescriptor& worker)>& play) {
    std::string said;
    std::atomic<bool> started{false};
    std::atomic<bool> go{false};
    std::thread rank1([&] {
      auto collective = join_as(1, 2, root_);
      if (!collective) {
        said = collective.error().message;
        started = true;
        started.notify_all();
        return;
      }
      std::vector<float> values(4'000'000, 1);  // more than sockets hold
      const auto pending = (*collective)
                               ->all_reduce((*collective)->map(values.data(), values.size() * 4), values.size(),
                                            Precision::kFloat32, {}, nullptr);
      started = true;
      started.notify_all();
      go.wait(false);
      const auto outcome = pending->wait();
      if (!outcome) said = outcome.error().message;
    });
    const FileDescriptor worker = accept();
    PlayedWorkers::say(worker, {.kind = ps::kWelcome});
    EXPECT_TRUE(bootstrap_->all_gather(ps::Message(32)));
    started.wait(false);
    play_before_wait(worker);
    go = true;
    go.notify_all();
    play(worker);
    rank1.join();
    return said;
  }

 private:
  FileDescriptor accept() {
    const auto port_of_server = *proxy::Bootstrap::pick_loopback_root();
    const auto address = proxy::parse_host_port(port_of_server);
    const auto listener = proxy::tcp_listen(*address);
    EXPECT_TRUE(listener);
    auto bootstrap = proxy::Bootstrap::join({.rank = 0, .size = 2, .root = root_});
    EXPECT_TRUE(bootstrap);
    bootstrap_ = std::move(*bootstrap);
    const auto port = static_cast<std::uint32_t>(std::stoul(address->port));
    EXPECT_TRUE(bootstrap_->all_gather(std::as_bytes(std::span(&port, 1))));
    EXPECT_TRUE(proxy::wait_for(listener->fd(), POLLIN, PlayedWorkers::limit()));
    FileDescriptor worker = proxy::tcp_accept(listener->fd());
    const auto [hello, none] = PlayedWorkers::hear(worker);
    EXPECT_EQ(hello.kind, ps::kHello);
    EXPECT_EQ(hello.sequence, kToken);
    return worker;
  }
  std::string root_;
  std::unique_ptr<proxy::Bootstrap> bootstrap_;
};

TEST(PsCollective, SendsNothingBeforeItIsWaitedFor) {
  const std::string said = PlayedServer().run(
      [](const FileDescriptor& worker) { EXPECT_FALSE(proxy::wait_for(worker.fd(), POLLIN, steady_clock::now())); },
      [](const FileDescriptor& worker) {
        const auto [header, none] = PlayedWorkers::hear(worker);
        EXPECT_EQ(header.kind, ps::kSum);
        PlayedWorkers::say(worker, {.kind = ps::kAnswer, .sequence = 1, .length = header.length},
                           ps::Message(header.length));
      });
  EXPECT_EQ(said, "");
}

TEST(PsCollective, AServerThatSendsRubbishIsRefused) {
  for (const ps::Header& bad : {ps::Header{.magic = 7, .kind = ps::kAnswer, .sequence = 1, .length = 16'000'000},
                                ps::Header{.kind = ps::kSum, .sequence = 1, .length = 16'000'000},
                                ps::Header{.kind = ps::kAnswer, .sequence = 2, .length = 16'000'000},
                                ps::Header{.kind = ps::kAnswer, .sequence = 1, .length = ~std::uint64_t{0}},
                                ps::Header{.kind = ps::kError, .length = ps::kMostErrorText + 1}}) {
    const std::string said = PlayedServer().run([](const FileDescriptor&) {},
                                                [&](const FileDescriptor& worker) { PlayedWorkers::say(worker, bad); });
    EXPECT_THAT(said, HasSubstr("kind 5, collective 1, 16000000 bytes"));
  }
}

// The error is read although what the worker sends is taken by nobody.
TEST(PsCollective, AnErrorReachesAWorkerThatStillSends) {
  const std::string said =
      PlayedServer().run([](const FileDescriptor&) {},
                         [](const FileDescriptor& worker) {
                           const ps::Message error = ps::error_message({ErrorCode::kRemote, "rank 7 burst"});
                           bool timed_out = false;
                           EXPECT_TRUE(proxy::write_all(worker.fd(), error, PlayedWorkers::limit(), timed_out));
                         });
  EXPECT_EQ(said, "rank 7 burst");
}

}  // namespace
}  // namespace clustar::bench::trainer
