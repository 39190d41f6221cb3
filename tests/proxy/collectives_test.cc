// Collectives over every plugin of the build against a sequential reference, bit for bit.
#include "tests/proxy/collectives.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <ostream>

#include "tests/proxy/plugins.h"
#include "tests/proxy/ranks.h"

namespace clustar::bench::proxy {
namespace {

struct RingCase {
  int size = 2;
  int channels = 1;
  Protocol protocol = Protocol::kSimple;
  bool grouped = false;
  bool flush = false;
  bool gpu = false;
};

CommunicatorOptions options_of(const RingCase& setup) {
  CommunicatorOptions options;
  options.channels = setup.channels;
  options.protocol = setup.protocol;
  options.group_channels = setup.grouped;
  options.force_flush = setup.flush;
  options.gpu_memory = setup.gpu;
  options.comm_id = 0x1234;
  options.tuner_version = -1;  // the protocol of the case, also where the plugin's tuner would forbid it
  options.stall_timeout = std::chrono::seconds(40);
  return options;
}

std::string text_of(const RingCase& setup) {
  const char* protocols[] = {"Simple", "LL", "LL128"};
  return std::to_string(setup.size) + "Ranks" + std::to_string(setup.channels) + "Channels" +
         protocols[static_cast<int>(setup.protocol)] + (setup.grouped ? "Grouped" : "") + (setup.flush ? "Flush" : "");
}

void PrintTo(const RingCase& setup, std::ostream* out) { *out << text_of(setup); }

// One context per rank on a plugin that is loaded once, as in a process with several communicators.
void on_communicators(const std::string& path, int version, const RingCase& setup,
                      const std::function<void(Communicator&, Bootstrap&)>& body) {
  const auto plugin = open_plugin(path, version);
  ASSERT_TRUE(plugin);
  run_ranks(setup.size, [&](Bootstrap& bootstrap) {
    auto comm = Communicator::create(*plugin, bootstrap, options_of(setup));
    ASSERT_TRUE(comm) << comm.error().message;
    body(**comm, bootstrap);
    // Nobody closes while a neighbour still reads, as in ncclCommDestroy after the last collective.
    ASSERT_TRUE(bootstrap.barrier());
    const auto closed = (*comm)->close();
    EXPECT_TRUE(closed) << closed.error().message;
  });
}

void expect_rules_kept() {
  EXPECT_STREQ(memory_plugin().violations(), "");
  for (const char* what : {"comms", "contexts", "requests", "listeners"})
    EXPECT_EQ(memory_plugin().count(what), 0) << what;
}

template <class T>
void all_kinds(Communicator& comm, std::size_t count, const CommunicatorOptions& options) {
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax}) {
    check_all_reduce<T>(comm, count, op, options);
    check_reduce_scatter<T>(comm, count, op, op == ReduceOp::kMax);
  }
  check_all_gather<T>(comm, count, false);
  check_all_gather<T>(comm, count, true);
  check_broadcast<T>(comm, count, static_cast<int>(count) % comm.size());
}

class Collectives : public ::testing::TestWithParam<std::tuple<TestedPlugin, RingCase>> {
 protected:
  void SetUp() override { memory_plugin().reset(); }
  void TearDown() override { expect_rules_kept(); }
  const std::string& path() const { return std::get<0>(GetParam()).path; }
  const RingCase& setup() const { return std::get<1>(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(
    Plugins, Collectives,
    ::testing::Combine(::testing::ValuesIn(tested_plugins()),
                       ::testing::Values(RingCase{2}, RingCase{3}, RingCase{4}, RingCase{5}, RingCase{6}, RingCase{7},
                                         RingCase{8}, RingCase{2, 4}, RingCase{3, 3}, RingCase{2, 1, Protocol::kLL},
                                         RingCase{3, 2, Protocol::kLL}, RingCase{4, 2, Protocol::kLL128},
                                         RingCase{2, 4, Protocol::kSimple, true},
                                         RingCase{3, 10, Protocol::kSimple, true}, RingCase{3, 3, Protocol::kLL, true},
                                         RingCase{2, 2, Protocol::kLL128, true},
                                         RingCase{3, 2, Protocol::kSimple, false, true},
                                         RingCase{2, 3, Protocol::kSimple, true, true})),
    [](const auto& test) { return std::get<0>(test.param).name + text_of(std::get<1>(test.param)); });

TEST_P(Collectives, EqualTheReference) {
  const CommunicatorOptions options = options_of(setup());
  on_communicators(path(), 0, setup(), [&](Communicator& comm, Bootstrap&) {
    for (const std::size_t count : {0u, 1u, 7u, 1023u}) {
      all_kinds<float>(comm, count, options);
      all_kinds<double>(comm, count, options);
      all_kinds<std::int32_t>(comm, count, options);
      all_kinds<std::uint8_t>(comm, count, options);
      all_kinds<clustar::tests::Float16>(comm, count, options);
      all_kinds<clustar::tests::Bfloat16>(comm, count, options);
    }
    all_kinds<float>(comm, 30'001, options);
    check_all_reduce<std::uint8_t>(comm, (1u << 20) + 3, ReduceOp::kSum, options);
    check_broadcast<std::uint8_t>(comm, (1u << 20) + 3, comm.size() - 1);
  });
}

// Several loops of full chunks, and work queued before anything completed.
TEST_P(Collectives, QueuedInOrder) {
  const CommunicatorOptions options = options_of(setup());
  on_communicators(path(), 0, setup(), [&](Communicator& comm, Bootstrap&) {
    constexpr std::size_t kCount = 50'003;
    std::vector<std::vector<std::int32_t>> reduced;
    std::vector<std::vector<std::int32_t>> sent;
    std::vector<std::unique_ptr<Pending>> pending;
    for (int i = 0; i < 6; ++i) {
      reduced.push_back(input_of<std::int32_t>(comm.rank(), kCount));
      sent.push_back(input_of<std::int32_t>(comm.rank() + i, 33));
    }
    for (std::size_t i = 0; i < reduced.size(); ++i) {
      pending.push_back(comm.all_reduce(reduced[i].data(), kCount, DataType::kInt32, ReduceOp::kSum));
      pending.push_back(comm.broadcast(sent[i].data(), 33, DataType::kInt32, 0));
    }
    for (const auto& p : pending) {
      const auto stats = p->wait();
      ASSERT_TRUE(stats) << stats.error().message;
      EXPECT_TRUE(p->done());
    }
    for (std::size_t i = 0; i < reduced.size(); ++i) {
      ASSERT_EQ(reduced[i], reduced[0]);
      ASSERT_EQ(sent[i], input_of<std::int32_t>(static_cast<int>(i), 33));
    }
    EXPECT_EQ(reduced[0][5], ring_reduce<std::int32_t>(0, comm.size(), 5, ReduceOp::kSum));
    check_all_reduce<float>(comm, 3'000'001 / static_cast<std::size_t>(comm.size()), ReduceOp::kSum, options);
  });
}

class TableVersions : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Versions, TableVersions, ::testing::Range(6, 13));

TEST_P(TableVersions, CarryCollectives) {
  for (const RingCase& setup :
       {RingCase{3, 2}, RingCase{2, 1, Protocol::kLL}, RingCase{3, 4, Protocol::kLL128, true}}) {
    memory_plugin().reset();
    on_communicators(PROXY_TEST_MEMORY_PLUGIN, GetParam(), setup,
                     [&](Communicator& comm, Bootstrap&) { all_kinds<float>(comm, 40'001, options_of(setup)); });
    expect_rules_kept();
    // The marker is for single receives of LL and LL128, in the tables that know it.
    const bool optional = GetParam() >= 9 && setup.protocol != Protocol::kSimple && !setup.grouped;
    EXPECT_EQ(memory_plugin().count("optional_receives") > 0, optional);
    EXPECT_EQ(memory_plugin().count("max_group"), setup.grouped ? 4 : 1);
    EXPECT_EQ(memory_plugin().count("setNetAttr") > 0, GetParam() >= 11);
  }
}

TEST(OneCommunicator, StatsAndTotals) {
  memory_plugin().reset();
  on_communicators(PROXY_TEST_MEMORY_PLUGIN, 0, RingCase{4, 1}, [](Communicator& comm, Bootstrap&) {
    comm.record_steps(true);
    std::vector<float> data(1 << 20, 1.0f);
    const auto stats = comm.all_reduce(data.data(), data.size(), DataType::kFloat32, ReduceOp::kSum)->wait();
    ASSERT_TRUE(stats);
    // 2(n-1)/n of the buffer, in 2(n-1) chunks of 2 slices.
    EXPECT_EQ(stats->bytes_sent, 6u << 20);
    EXPECT_EQ(stats->bytes_received, 6u << 20);
    EXPECT_EQ(stats->steps, 12u);
    EXPECT_EQ(stats->step_seconds.size(), 12u);
    EXPECT_GT(stats->seconds, 0.0);
    const auto totals = comm.totals();
    EXPECT_EQ(totals.bytes_sent, 6u << 20);
    EXPECT_EQ(totals.messages_sent, 12u);
    EXPECT_EQ(totals.messages_received, 12u);
    EXPECT_GT(totals.send_retries, 0u);
    comm.record_steps(false);
    EXPECT_TRUE(comm.all_reduce(data.data(), 10, DataType::kFloat32, ReduceOp::kSum)->wait()->step_seconds.empty());
  });
  expect_rules_kept();
}

TEST(OneCommunicator, GroupsKeepToMaxRecvs) {
  memory_plugin().reset();
  memory_plugin().set("max_recvs", 3);
  const RingCase setup{3, 7, Protocol::kSimple, true};
  on_communicators(PROXY_TEST_MEMORY_PLUGIN, 0, setup, [&](Communicator& comm, Bootstrap&) {
    check_all_reduce<float>(comm, 400'001, ReduceOp::kSum, options_of(setup));
  });
  EXPECT_EQ(memory_plugin().count("max_group"), 3);
  expect_rules_kept();
}

TEST(OneCommunicator, AloneThereIsNoNetwork) {
  memory_plugin().reset();
  on_communicators(PROXY_TEST_MEMORY_PLUGIN, 0, RingCase{1, 2}, [](Communicator& comm, Bootstrap&) {
    all_kinds<float>(comm, 1000, CommunicatorOptions{});
    EXPECT_EQ(comm.totals().messages_sent, 0u);
  });
  EXPECT_EQ(memory_plugin().count("listen"), 0);
  EXPECT_EQ(memory_plugin().count("finalize"), 1);
  expect_rules_kept();
}

TEST(OneCommunicator, BadArgumentsAreErrors) {
  memory_plugin().reset();
  on_communicators(PROXY_TEST_MEMORY_PLUGIN, 0, RingCase{2, 1}, [](Communicator& comm, Bootstrap&) {
    float x = 0;
    EXPECT_FALSE(comm.all_reduce(nullptr, 1, DataType::kFloat32, ReduceOp::kSum)->wait());
    EXPECT_FALSE(comm.broadcast(&x, 1, DataType::kFloat32, 2)->wait());
    EXPECT_FALSE(comm.broadcast(&x, 1, DataType::kFloat32, -1)->wait());
    EXPECT_FALSE(comm.all_gather(&x, &x, ~std::size_t{0} / 4, DataType::kFloat32)->wait());
    EXPECT_TRUE(comm.all_reduce(nullptr, 0, DataType::kFloat32, ReduceOp::kSum)->wait());
    check_broadcast<float>(comm, 3, 1);  // and the communicator still works
  });
  expect_rules_kept();
}

// Step buffers in GPU memory, which host memory plays: dma-bufs with the sample, CUDA pointers or dma-bufs with ours.
void all_reduce_in_gpu_memory(const std::string& path) {
  for (const RingCase& setup :
       {RingCase{3, 2, Protocol::kSimple, false, true, true}, RingCase{2, 3, Protocol::kSimple, true, true, true},
        RingCase{2, 1, Protocol::kLL, false, false, true}, RingCase{2, 1, Protocol::kLL128, false, false, true}}) {
    on_communicators(path, 11, setup, [&](Communicator& comm, Bootstrap&) {
      check_all_reduce<float>(comm, 400'001, ReduceOp::kSum, options_of(setup));
      check_broadcast<float>(comm, 100'003, 1);
    });
  }
}

#ifdef PROXY_TEST_SAMPLE_PLUGIN
TEST(GpuMemory, CollectivesOverDmaBufs) { all_reduce_in_gpu_memory(PROXY_TEST_SAMPLE_PLUGIN); }
#endif

#ifdef PROXY_TEST_CLUSTAR_PLUGIN
TEST(GpuMemory, CollectivesOverOurEmulation) {
  for (const char* transport : {"tcp", "mlt"}) {
    setenv("CLUSTAR_GDR_EMULATE", "1", 1);
    setenv("CLUSTAR_TRANSPORT", transport, 1);
    setenv("CLUSTAR_SOCKET_IFNAME", "lo", 0);
    all_reduce_in_gpu_memory(PROXY_TEST_CLUSTAR_PLUGIN);
  }
  unsetenv("CLUSTAR_GDR_EMULATE");
  unsetenv("CLUSTAR_TRANSPORT");
}
#endif

TEST(GpuMemory, ADeviceThatTakesNoneIsAnError) {
  memory_plugin().reset();
  const auto plugin = open_plugin(PROXY_TEST_MEMORY_PLUGIN);
  ASSERT_TRUE(plugin);
  run_ranks(2, [&](Bootstrap& bootstrap) {
    const auto comm =
        Communicator::create(*plugin, bootstrap, options_of({2, 1, Protocol::kSimple, false, true, true}));
    ASSERT_FALSE(comm);
    EXPECT_THAT(comm.error().message, ::testing::HasSubstr("takes no GPU memory (ptrSupport 0x1)"));
  });
}

}  // namespace
}  // namespace clustar::bench::proxy
