// Direct all-reduces over real plugins, bit for bit against a sequential reference, also where a fake tells of losses.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <thread>
#include <tuple>

#include "bench/proxy/direct_blocks.h"
#include "nccl_plugin/abi/profiler.h"
#include "tests/proxy/collectives.h"
#include "tests/proxy/plugins.h"
#include "tests/proxy/ranks.h"
#include "tests/proxy/recorder.h"

namespace clustar::bench::proxy {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using tests::Call;
using tests::Record;

// Says what the network lost: by sender, receiver and number. The bytes arrive all the same, so that a test sees that
// the communicator takes them for missing.
class FakeLosses final : public LossReports {
 public:
  using Book = std::map<std::tuple<int, int, std::uint64_t>, std::vector<LostBytes>>;
  FakeLosses(const Book& book, int rank) : book_(book), rank_(rank) {}
  Result<std::vector<LostBytes>> missing_from(std::uint64_t, int sender, std::uint64_t number) override {
    return look_up({sender, rank_, number});
  }
  Result<std::vector<LostBytes>> lost_to(std::uint64_t, int receiver, std::uint64_t number) override {
    return look_up({rank_, receiver, number});
  }

 private:
  std::vector<LostBytes> look_up(const Book::key_type& key) const {
    const auto found = book_.find(key);
    return found != book_.end() ? found->second : std::vector<LostBytes>{};
  }
  const Book& book_;
  int rank_;
};

CommunicatorOptions direct_options(int channels = 1) {
  CommunicatorOptions options;
  options.direct = true;
  options.channels = channels;
  options.comm_id = 0x77;
  options.stall_timeout = std::chrono::seconds(40);
  return options;
}

// What `number`-th exchange of `count` elements makes of the ranks' inputs; `missing` elements of each (from, to).
template <class T>
struct Reference {
  std::vector<T> sums;
  std::vector<std::vector<T>> residuals;  // by rank
  std::vector<std::uint64_t> missing;     // by rank
};

template <class T>
Reference<T> reference(int size, std::size_t count, Missing policy, const FakeLosses::Book& book,
                       std::uint64_t number) {
  Reference<T> result{std::vector<T>(count), std::vector<std::vector<T>>(static_cast<std::size_t>(size)), {}};
  for (auto& residual : result.residuals) residual.resize(count);
  result.missing.resize(static_cast<std::size_t>(size));
  for (int to = 0; to < size; ++to) {
    const Block block = direct_block(to, size, count, sizeof(T));
    std::vector<int> contributions(block.count, size);
    for (int from = 0; from < size; ++from) {
      std::vector<char> lost(block.count);
      if (const auto found = book.find({from, to, number}); from != to && found != book.end()) {
        const std::size_t bytes = block.count * sizeof(T);
        for (const LostBytes& part : found->second) {
          const std::size_t begin = part.transfer * p2p_chunk_bytes(bytes) + part.offset;
          for (std::size_t b = begin; b < begin + part.bytes && b < bytes; ++b) lost[b / sizeof(T)] = 1;
        }
      }
      for (std::size_t i = 0; i < block.count; ++i) {
        const T mine = value_of<T>(from, block.begin + i);
        T& sum = result.sums[block.begin + i];
        const T given = lost[i] != 0 ? T{0} : mine;
        sum = from == 0 ? given : sum + given;
        if (lost[i] == 0) continue;
        --contributions[i];
        ++result.missing[static_cast<std::size_t>(to)];
        result.residuals[static_cast<std::size_t>(from)][block.begin + i] = mine;
      }
    }
    for (std::size_t i = 0; i < block.count && policy == Missing::kRescale; ++i) {
      T& sum = result.sums[block.begin + i];
      if (contributions[i] < size) sum = static_cast<T>(static_cast<double>(sum) * size / contributions[i]);
    }
  }
  return result;
}

template <class T>
void check_direct(Communicator& comm, std::size_t count, Missing policy = Missing::kRescale,
                  const FakeLosses::Book& book = {}, std::uint64_t number = 0) {
  auto data = input_of<T>(comm.rank(), count);
  std::vector<T> residual(count, T{42});
  const auto stats = comm.all_reduce_direct(data.data(), count, type_of<T>(), policy,
                                            policy == Missing::kResidual ? residual.data() : nullptr)
                         ->wait();
  ASSERT_TRUE(stats) << stats.error().message;
  const auto expected = reference<T>(comm.size(), count, policy, book, number);
  const auto rank = static_cast<std::size_t>(comm.rank());
  ASSERT_TRUE(same_bits(data, expected.sums)) << "rank " << comm.rank();
  EXPECT_EQ(stats->missing_contributions, expected.missing[rank]);
  EXPECT_EQ(stats->expected_contributions,
            direct_block(comm.rank(), comm.size(), count, sizeof(T)).count * static_cast<std::size_t>(comm.size() - 1));
  if (policy != Missing::kResidual) return;
  ASSERT_TRUE(same_bits(residual, expected.residuals[rank])) << "rank " << comm.rank();
}

class Direct : public ::testing::TestWithParam<TestedPlugin> {
 protected:
  void SetUp() override { memory_plugin().reset(); }
  void TearDown() override { EXPECT_STREQ(memory_plugin().violations(), ""); }

  void on_ranks(int size, const CommunicatorOptions& options,
                const std::function<void(Communicator&, Bootstrap&)>& body, const FakeLosses::Book* book = nullptr) {
    const auto plugin = open_plugin(GetParam().path);
    run_ranks(size, [&](Bootstrap& bootstrap) {
      std::optional<FakeLosses> losses;
      CommunicatorOptions mine = options;
      if (book != nullptr) mine.losses = &losses.emplace(*book, bootstrap.rank());
      auto comm = Communicator::create(*plugin, bootstrap, mine);
      ASSERT_TRUE(comm) << comm.error().message;
      body(**comm, bootstrap);
      ASSERT_TRUE(bootstrap.barrier());
      const auto closed = (*comm)->close();
      EXPECT_TRUE(closed) << closed.error().message;
    });
  }
};
INSTANTIATE_TEST_SUITE_P(Plugins, Direct, ::testing::ValuesIn(tested_plugins()),
                         [](const auto& test) { return test.param.name; });

TEST_P(Direct, SumsInRankOrder) {
  for (const int size : {1, 2, 3, 4, 5, 8}) {
    on_ranks(size, direct_options(size % 2 + 1), [](Communicator& comm, Bootstrap&) {
      for (const std::size_t count : {0u, 1u, 3u, 5u, 17u, 1000u, 300'001u}) check_direct<float>(comm, count);
      check_direct<double>(comm, 4'097);
      check_direct<clustar::tests::Float16>(comm, 5'003);
      check_direct<clustar::tests::Bfloat16>(comm, 5'003);
      check_direct<float>(comm, 33, Missing::kResidual);
    });
  }
}

// Chunks of 128 KiB, more of them than may be in flight.
TEST_P(Direct, LargeBlocks) {
  on_ranks(2, direct_options(), [](Communicator& comm, Bootstrap&) { check_direct<float>(comm, 1'500'001); });
}

TEST_P(Direct, QueuedBetweenRingsAllEndInOrder) {
  on_ranks(3, direct_options(2), [](Communicator& comm, Bootstrap&) {
    constexpr std::size_t kCount = 120'003;
    constexpr int kRounds = 4;
    std::vector<std::vector<float>> direct(kRounds);
    std::vector<std::vector<float>> ring(kRounds);
    std::vector<std::unique_ptr<Pending>> pending;
    for (std::size_t i = 0; i < kRounds; ++i) {
      direct[i] = ring[i] = input_of<float>(comm.rank(), kCount);
      pending.push_back(comm.all_reduce_direct(direct[i].data(), kCount, DataType::kFloat32, Missing::kZero, nullptr));
      pending.push_back(comm.all_reduce(ring[i].data(), kCount, DataType::kFloat32, ReduceOp::kSum));
      if (i % 2 == 1) continue;
      pending.push_back(comm.all_reduce_direct(ring[i].data(), 0, DataType::kFloat32, Missing::kZero, nullptr));
    }
    for (std::size_t i = pending.size(); i-- > 0;) {
      const auto stats = pending[i]->wait();
      ASSERT_TRUE(stats) << stats.error().message;
      for (std::size_t before = 0; before < i; ++before) EXPECT_TRUE(pending[before]->done());
    }
    const auto expected = reference<float>(comm.size(), kCount, Missing::kZero, {}, 0).sums;
    for (std::size_t i = 0; i < kRounds; ++i) {
      EXPECT_TRUE(same_bits(direct[i], expected));
      EXPECT_TRUE(same_bits(ring[i], ring[0]));
    }
    check_all_reduce<float>(comm, kCount, ReduceOp::kSum, direct_options(2));
  });
}

TEST_P(Direct, TwoCommunicatorsAtOnce) {
  const auto plugin = open_plugin(GetParam().path);
  run_ranks(3, [&](Bootstrap& bootstrap) {
    std::vector<std::unique_ptr<Communicator>> comms;
    for (int i = 0; i < 2; ++i) {
      auto comm = Communicator::create(*plugin, bootstrap, direct_options());
      ASSERT_TRUE(comm) << comm.error().message;
      comms.push_back(std::move(*comm));
    }
    std::vector<std::thread> users;
    for (auto& comm : comms) {
      users.emplace_back([&comm] {
        for (int i = 0; i < 3; ++i) check_direct<float>(*comm, 50'001);
      });
    }
    for (std::thread& user : users) user.join();
    ASSERT_TRUE(bootstrap.barrier());
  });
}

// 70,001 floats each: two transfers of 64 KiB and more of them, for each pair another one.
FakeLosses::Book some_losses() {
  FakeLosses::Book book;
  for (int from = 0; from < 4; ++from) {
    for (int to = 0; to < 4; ++to) {
      const auto place = static_cast<std::uint64_t>(4 * from + to);
      if (from != to) book[{from, to, 0}] = {{1, 1000 * place, 1500}, {0, 64 * 1024 - 1408, 1408}, {4, 7, 2}};
    }
  }
  book[{1, 2, 2}] = {{0, 0, 64 * 1024}};
  return book;
}

TEST_P(Direct, MissingContributionsByElement) {
  const FakeLosses::Book book = some_losses();
  for (const Missing policy : {Missing::kZero, Missing::kRescale, Missing::kResidual}) {
    const auto body = [&](Communicator& comm, Bootstrap&) {
      for (std::uint64_t number = 0; number < 3; ++number) check_direct<float>(comm, 280'004, policy, book, number);
    };
    on_ranks(4, direct_options(), body, &book);
  }
  const auto other_types = [&](Communicator& comm, Bootstrap&) {
    check_direct<double>(comm, 140'003, Missing::kRescale, book, 0);
    check_direct<clustar::tests::Bfloat16>(comm, 560'003, Missing::kRescale, book, 1);  // 1 has no losses
    check_direct<clustar::tests::Float16>(comm, 560'003, Missing::kRescale, book, 2);
  };
  on_ranks(4, direct_options(), other_types, &book);
}

TEST_P(Direct, AbortInFlight) {
  on_ranks(3, direct_options(), [](Communicator& comm, Bootstrap& bootstrap) {
    std::vector<float> data(1'000'000);
    if (bootstrap.rank() != 0) return;
    const auto first = comm.all_reduce_direct(data.data(), data.size(), DataType::kFloat32, Missing::kZero, nullptr);
    const auto second = comm.all_reduce_direct(data.data(), data.size(), DataType::kFloat32, Missing::kZero, nullptr);
    while (comm.totals().idle_yields < 20) std::this_thread::yield();
    EXPECT_FALSE(first->done());
    comm.abort();
    const auto stats = first->wait();
    ASSERT_FALSE(stats);
    EXPECT_THAT(stats.error().message, HasSubstr("aborted"));
    EXPECT_FALSE(second->wait());
  });
}

TEST_P(Direct, AStallNamesThePeer) {
  auto options = direct_options();
  options.stall_timeout = std::chrono::milliseconds(300);
  on_ranks(3, options, [](Communicator& comm, Bootstrap& bootstrap) {
    std::vector<float> data(1'000);
    if (bootstrap.rank() == 1) return;
    const auto stats =
        comm.all_reduce_direct(data.data(), data.size(), DataType::kFloat32, Missing::kZero, nullptr)->wait();
    ASSERT_FALSE(stats);
    EXPECT_THAT(stats.error().message, AllOf(HasSubstr("direct all-reduce of 1000 elements"),
                                             HasSubstr("from rank 1 0 of 1 transfers received")));
  });
}

// Rank 1 ends; the others learn of it from their connections with it.
TEST_P(Direct, APeerThatLeavesIsNamed) {
  const auto plugin = open_plugin(GetParam().path);
  run_ranks(3, [&](Bootstrap& bootstrap) {
    auto comm = Communicator::create(*plugin, bootstrap, direct_options());
    ASSERT_TRUE(comm) << comm.error().message;
    check_direct<float>(**comm, 1000);
    if (bootstrap.rank() != 1) {
      std::vector<float> data(1'000'000);
      const auto stats =
          (*comm)->all_reduce_direct(data.data(), data.size(), DataType::kFloat32, Missing::kZero, nullptr)->wait();
      ASSERT_FALSE(stats);
      EXPECT_THAT(stats.error().message, HasSubstr("peer rank "));
      EXPECT_EQ(stats.error().code, ErrorCode::kRemote) << stats.error().message;
    } else {
      comm->reset();
    }
    ASSERT_TRUE(bootstrap.barrier());
  });
}

// Blocks of any size, empty ones among them, between ring collectives and direct all-reduces; and one after another
// without waiting.
void check_all_to_all(Communicator& comm, std::size_t unit) {
  const auto ranks = static_cast<std::size_t>(comm.size());
  const auto self = static_cast<std::size_t>(comm.rank());
  const auto bytes = [&](std::size_t from, std::size_t to) {
    return (from + 2 * to) % 3 * unit + (from == to ? 5 : 0);
  };
  const auto byte = [](std::size_t from, std::size_t to, std::size_t i, int round) {
    return static_cast<std::uint8_t>(31 * from + 7 * to + i + i / 256 + 101 * static_cast<std::size_t>(round));
  };
  constexpr int kRounds = 3;
  std::vector<std::vector<std::uint8_t>> sent(kRounds);
  std::vector<std::vector<std::uint8_t>> received(kRounds);
  std::vector<std::unique_ptr<Pending>> pending;
  std::vector<std::size_t> send_bytes;
  std::vector<std::size_t> recv_bytes;
  for (std::size_t peer = 0; peer < ranks; ++peer) {
    send_bytes.push_back(bytes(self, peer));
    recv_bytes.push_back(bytes(peer, self));
  }
  for (int round = 0; round < kRounds; ++round) {
    auto& out = sent[static_cast<std::size_t>(round)];
    for (std::size_t to = 0; to < ranks; ++to) {
      for (std::size_t i = 0; i < send_bytes[to]; ++i) out.push_back(byte(self, to, i, round));
    }
    auto& in = received[static_cast<std::size_t>(round)];
    in.assign(std::accumulate(recv_bytes.begin(), recv_bytes.end(), std::size_t{0}), 0);
    pending.push_back(comm.all_to_all(out.data(), in.data(), send_bytes, recv_bytes));
  }
  for (int round = 0; round < kRounds; ++round) {
    const auto stats = pending[static_cast<std::size_t>(round)]->wait();
    ASSERT_TRUE(stats) << stats.error().message;
    EXPECT_EQ(stats->bytes_sent, sent[0].size() - send_bytes[self]);
    EXPECT_EQ(stats->bytes_received, received[0].size() - recv_bytes[self]);
    std::vector<std::uint8_t> expected;
    for (std::size_t from = 0; from < ranks; ++from) {
      for (std::size_t i = 0; i < recv_bytes[from]; ++i) expected.push_back(byte(from, self, i, round));
    }
    EXPECT_EQ(received[static_cast<std::size_t>(round)], expected);
  }
}

TEST_P(Direct, AllToAllBringsEachRankItsBlocks) {
  for (const int size : {1, 2, 3, 4}) {
    on_ranks(size, direct_options(), [](Communicator& comm, Bootstrap&) {
      for (const std::size_t unit : {0u, 1u, 1000u, 300'001u}) {
        check_all_to_all(comm, unit);
        check_direct<float>(comm, unit);
        check_all_reduce<float>(comm, unit, ReduceOp::kSum, direct_options());
      }
    });
  }
}

TEST_P(Direct, AllToAllsThatCannotBeAreErrors) {
  on_ranks(2, direct_options(), [](Communicator& comm, Bootstrap&) {
    std::vector<std::uint8_t> data(10);
    const auto message = [&](void* memory, const std::vector<std::size_t>& send, const std::vector<std::size_t>& recv) {
      const auto stats = comm.all_to_all(memory, data.data(), send, recv)->wait();
      return stats ? std::string("no error") : stats.error().message;
    };
    EXPECT_THAT(message(data.data(), {1}, {1, 1}), HasSubstr("one per rank, 2"));
    EXPECT_THAT(message(nullptr, {1, 1}, {1, 1}), HasSubstr("null"));
    EXPECT_THAT(message(data.data(), {1, 1}, {2, 2}), HasSubstr("allowed: the same"));
    check_all_to_all(comm, 10);
  });
  on_ranks(2, {}, [](Communicator& comm, Bootstrap&) {
    const std::vector<std::size_t> none(2);
    const auto stats = comm.all_to_all(nullptr, nullptr, none, none)->wait();
    ASSERT_FALSE(stats);
    EXPECT_THAT(stats.error().message, HasSubstr("CommunicatorOptions::direct"));
  });
}

TEST_P(Direct, WrongUseIsAnErrorWithTheFix) {
  on_ranks(2, direct_options(), [](Communicator& comm, Bootstrap&) {
    std::vector<float> data(10);
    const auto message = [&](void* memory, DataType type, Missing missing, void* residual) {
      const auto stats = comm.all_reduce_direct(memory, data.size(), type, missing, residual)->wait();
      return stats ? std::string("no error") : stats.error().message;
    };
    EXPECT_THAT(message(data.data(), DataType::kInt32, Missing::kZero, nullptr), HasSubstr("kFloat64"));
    EXPECT_THAT(message(data.data(), DataType::kFloat32, Missing::kZero, data.data()), HasSubstr("kResidual"));
    EXPECT_THAT(message(nullptr, DataType::kFloat32, Missing::kZero, nullptr), HasSubstr("null"));
    check_direct<float>(comm, 10);
  });
  on_ranks(2, {}, [](Communicator& comm, Bootstrap&) {
    float x = 0;
    const auto stats = comm.all_reduce_direct(&x, 1, DataType::kFloat32, Missing::kZero, nullptr)->wait();
    ASSERT_FALSE(stats);
    EXPECT_THAT(stats.error().message, HasSubstr("CommunicatorOptions::direct"));
  });
}

// Of one rank, in the order of their starts.
std::vector<Record> starts(const std::vector<Record>& records, std::uint64_t type, int rank) {
  std::vector<Record> found;
  for (const Record& record : records) {
    if (record.call == Call::kStart && record.type == type && record.comm_rank == rank) found.push_back(record);
  }
  return found;
}

// The group's events as NCCL 2.28.9 raises them (src/enqueue.cc p2pTaskAppend, src/plugin/profiler.cc).
TEST(DirectEvents, AreThoseOfAGroupOfSendsAndReceives) {
  using namespace nccl_abi;  // NOLINT: the records are in its numbers
  recorder().reset();
  recorder().set_mask(kEventGroup | kEventColl | kEventP2p | kEventProxyOp | kEventProxyStep | kEventNetPlugin |
                      kEventGroupApi | kEventCollApi | kEventP2pApi | kEventKernelLaunch);
  constexpr int kSize = 4;
  constexpr std::size_t kCount = 4 * 70'000;  // 280,000 bytes a block: 5 transfers of 64 KiB
  const auto plugin = open_plugin(PROXY_TEST_RECORDING_PLUGIN);
  run_ranks(kSize, [&](Bootstrap& bootstrap) {
    auto comm = Communicator::create(*plugin, bootstrap, direct_options());
    ASSERT_TRUE(comm) << comm.error().message;
    for (int i = 0; i < 2; ++i) check_direct<float>(**comm, kCount);
    ASSERT_TRUE(bootstrap.barrier());
    ASSERT_TRUE((*comm)->close());
  });
  EXPECT_STREQ(recorder().violations(), "");
  const auto records = recorder().records();
  for (int rank = 0; rank < kSize; ++rank) {
    const auto tasks = starts(records, kEventP2p, rank);
    ASSERT_EQ(tasks.size(), 2u * 2 * (kSize - 1));
    const auto schedule = p2p_schedule(rank, kSize);
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      const P2pRound& round = schedule[i / 2 % schedule.size()];
      EXPECT_EQ(tasks[i].text, i % 2 == 0 ? "Send" : "Recv");
      EXPECT_EQ(tasks[i].peer, i % 2 == 0 ? round.send_peer : round.recv_peer);
      EXPECT_EQ(tasks[i].count, 70'000u);
      EXPECT_EQ(tasks[i].datatype, "ncclFloat32");
      EXPECT_EQ(tasks[i].channels, 1);
      const Record& api = records[tasks[i].parent - 1];
      EXPECT_EQ(api.type, kEventP2pApi);
      EXPECT_EQ(api.text, tasks[i].text);
      EXPECT_EQ(records[api.parent - 1].type, kEventGroupApi);
      EXPECT_EQ(records[tasks[i].group - 1].type, kEventGroup);
    }
    std::size_t of_tasks = 0;
    for (const Record& op : starts(records, kEventProxyOp, rank)) {
      const Record& task = records[op.parent - 1];
      if (task.type != kEventP2p) continue;
      ++of_tasks;
      EXPECT_EQ(op.is_send, task.text == "Send");
      EXPECT_EQ(op.peer, task.peer);
      EXPECT_EQ(op.steps, 5);
    }
    EXPECT_EQ(of_tasks, tasks.size());
    // The sums go round as a collective, which has numbers of its own.
    const auto sums = starts(records, kEventColl, rank);
    ASSERT_EQ(sums.size(), 2u);
    EXPECT_EQ(sums[0].text, "AllGather");
    EXPECT_EQ(sums[1].number, sums[0].number + 1);
  }
}

}  // namespace
}  // namespace clustar::bench::proxy
