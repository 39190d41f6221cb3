// The adaptors of the seven table versions, against the memory plugin and against empty tables.
#include "bench/proxy/net_plugin.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <limits>
#include <thread>

#include "bench/proxy/plugin_error.h"
#include "tests/proxy/plugins.h"

namespace clustar::bench::proxy {
namespace {

using ::testing::HasSubstr;

TEST(NetPluginOpen, ErrorsSayWhatIsWrong) {
  const auto missing = NetPlugin::open("./no-such-plugin.so");
  ASSERT_FALSE(missing);
  EXPECT_THAT(missing.error().message, HasSubstr("no-such-plugin.so"));
  const auto word = NetPlugin::open("nosuchword");
  ASSERT_FALSE(word);
  EXPECT_THAT(word.error().message, HasSubstr("libnccl-net-nosuchword.so"));
  const auto no_tables = NetPlugin::open("libm.so.6");
  ASSERT_FALSE(no_tables);
  EXPECT_THAT(no_tables.error().message, HasSubstr("ncclNetPlugin_v12 .. ncclNetPlugin_v6"));
  EXPECT_FALSE(NetPlugin::open(""));
  EXPECT_THAT(NetPlugin::open(PROXY_TEST_EMPTY_PLUGIN, 9).error().message, HasSubstr("ncclNetPlugin_v9"));
  EXPECT_THAT(NetPlugin::open(PROXY_TEST_EMPTY_PLUGIN, 5).error().message, HasSubstr("6 to 12"));
}

TEST(NetPluginOpen, TakesTheNewestTable) {
  EXPECT_EQ(open_plugin(PROXY_TEST_MEMORY_PLUGIN)->version(), 12);
  EXPECT_EQ(open_plugin(PROXY_TEST_EMPTY_PLUGIN)->version(), 11);
  EXPECT_EQ(*NetPlugin::exported_versions(PROXY_TEST_MEMORY_PLUGIN), (std::vector<int>{12, 11, 10, 9, 8, 7, 6}));
  EXPECT_EQ(*NetPlugin::exported_versions("libm.so.6"), std::vector<int>{});
  EXPECT_FALSE(NetPlugin::exported_versions("./no-such-plugin.so"));
}

TEST(NetPluginOpen, ManyTimes) {
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(NetPlugin::open(PROXY_TEST_EMPTY_PLUGIN));
  std::vector<std::unique_ptr<NetPlugin>> open;  // more than there are log slots
  for (int i = 0; i < 100; ++i) open.push_back(open_plugin(PROXY_TEST_EMPTY_PLUGIN));
}

class EmptyTable : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Versions, EmptyTable, ::testing::Values(8, 11));

TEST_P(EmptyTable, EveryCallIsACleanError) {
  const auto plugin = open_plugin(PROXY_TEST_EMPTY_PLUGIN, GetParam());
  EXPECT_STREQ(plugin->name(), "");
  EXPECT_FALSE(plugin->has_finalize());
  EXPECT_FALSE(plugin->has_set_net_attr());
  EXPECT_FALSE(plugin->has_make_v_device());
  void* pointer = nullptr;
  int number = 0;
  std::size_t size = 0;
  Handle handle{};
  NetProperties properties;
  const int failed = nccl_abi::kInternalError;
  EXPECT_EQ(plugin->init(1, -1, &pointer), failed);
  EXPECT_THAT(plugin->last_warning(), HasSubstr("has no init"));
  EXPECT_EQ(plugin->devices(&number), failed);
  EXPECT_EQ(plugin->get_properties(0, &properties), failed);
  EXPECT_EQ(plugin->listen(nullptr, 0, &handle, &pointer), failed);
  EXPECT_EQ(plugin->connect(nullptr, 0, &handle, &pointer), failed);
  EXPECT_EQ(plugin->accept(nullptr, &pointer), failed);
  EXPECT_EQ(plugin->reg_mr(nullptr, nullptr, 1, 1, &pointer), failed);
  EXPECT_EQ(plugin->reg_mr_dma_buf(nullptr, nullptr, 1, 1, 0, 0, &pointer), failed);
  EXPECT_EQ(plugin->dereg_mr(nullptr, nullptr), failed);
  EXPECT_EQ(plugin->isend(nullptr, nullptr, 0, 0, nullptr, nullptr, &pointer), failed);
  EXPECT_EQ(plugin->irecv(nullptr, 1, &pointer, &size, &number, &pointer, nullptr, &pointer), failed);
  EXPECT_EQ(plugin->iflush(nullptr, 1, &pointer, &number, &pointer, &pointer), failed);
  EXPECT_EQ(plugin->test(nullptr, &number, &number), failed);
  EXPECT_EQ(plugin->close_send(nullptr), failed);
  EXPECT_EQ(plugin->close_recv(nullptr), failed);
  EXPECT_EQ(plugin->close_listen(nullptr), failed);
  nccl_abi::NetAttr attr{};
  EXPECT_EQ(plugin->set_net_attr(nullptr, &attr), nccl_abi::kSuccess);
  EXPECT_EQ(plugin->take_log().size(), 16u);
}

class EachVersion : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override { memory_plugin().reset(); }
};
INSTANTIATE_TEST_SUITE_P(Versions, EachVersion, ::testing::Range(6, 13));

TEST_P(EachVersion, CarriesAMessage) {
  const int version = GetParam();
  const auto plugin = open_plugin(PROXY_TEST_MEMORY_PLUGIN, version);
  memory_plugin().set("busy_every", 1000);
  ASSERT_EQ(plugin->version(), version);
  EXPECT_STREQ(plugin->name(), "Memory");
  void* ctx = nullptr;
  ASSERT_EQ(plugin->init(7, 42, &ctx), 0);
  NetProperties properties;
  ASSERT_EQ(plugin->get_properties(1, &properties), 0);
  EXPECT_EQ(properties.name, "memory0");
  EXPECT_EQ(properties.pci_path, "");
  EXPECT_EQ(properties.guid, 2u);
  EXPECT_EQ(properties.speed_mbps, 40000);
  EXPECT_EQ(properties.max_recvs, 8);
  EXPECT_EQ(properties.latency_us, 2.5f);
  EXPECT_EQ(properties.reg_is_global, version >= 8);
  EXPECT_EQ(properties.force_flush, version >= 9);
  EXPECT_EQ(properties.max_p2p_bytes, version >= 9 ? std::size_t{1} << 35 : std::size_t{1} << 30);

  Handle handle{};
  void* listen_comm = nullptr;
  void* send_comm = nullptr;
  void* recv_comm = nullptr;
  ASSERT_EQ(plugin->listen(ctx, 0, &handle, &listen_comm), 0);
  for (int i = 0; i < 10 && send_comm == nullptr; ++i) ASSERT_EQ(plugin->connect(ctx, 0, &handle, &send_comm), 0);
  for (int i = 0; i < 10 && recv_comm == nullptr; ++i) ASSERT_EQ(plugin->accept(listen_comm, &recv_comm), 0);
  ASSERT_EQ(plugin->close_listen(listen_comm), 0);
  EXPECT_EQ(memory_plugin().traffic_class(), version >= 10 ? 42 : -2);

  std::array<char, 64> from{"over any version"};
  std::array<char, 64> to{};
  void* send_mr = nullptr;
  void* recv_mr = nullptr;
  ASSERT_EQ(plugin->reg_mr(send_comm, from.data(), from.size(), nccl_abi::kPtrHost, &send_mr), 0);
  ASSERT_EQ(plugin->reg_mr(recv_comm, to.data(), to.size(), nccl_abi::kPtrHost, &recv_mr), 0);
  std::thread([&] {
    nccl_abi::NetAttr attr{};
    attr.send.max_flows_per_peer = 1;
    ASSERT_EQ(plugin->set_net_attr(ctx, &attr), 0);
    void* data = to.data();
    std::size_t size = to.size();
    int tag = 5;
    void* receive = reinterpret_cast<void*>(nccl_abi::kOptionalRecvCompletion);
    ASSERT_EQ(plugin->irecv(recv_comm, 1, &data, &size, &tag, &recv_mr, nullptr, &receive), 0);
    void* send = nullptr;
    ASSERT_EQ(plugin->isend(send_comm, from.data(), from.size(), 5, send_mr, nullptr, &send), 0);
    int done = 0;
    int got = 0;
    for (int i = 0; i < 10 && done == 0; ++i) ASSERT_EQ(plugin->test(receive, &done, &got), 0);
    EXPECT_EQ(got, 64);
    EXPECT_EQ(to, from);
  }).join();
  EXPECT_EQ(memory_plugin().count("optional_receives"), version >= 9 ? 1 : 0);
  ASSERT_EQ(plugin->dereg_mr(send_comm, send_mr), 0);
  ASSERT_EQ(plugin->dereg_mr(recv_comm, recv_mr), 0);
  ASSERT_EQ(plugin->close_send(send_comm), 0);
  ASSERT_EQ(plugin->close_recv(recv_comm), 0);
  ASSERT_EQ(plugin->finalize(ctx), 0);
  EXPECT_STREQ(memory_plugin().violations(), "");
}

TEST_P(EachVersion, InitIsOncePerCommunicatorFromV11) {
  const auto plugin = open_plugin(PROXY_TEST_MEMORY_PLUGIN, GetParam());
  std::array<void*, 3> contexts{};
  for (void*& ctx : contexts) ASSERT_EQ(plugin->init(1, -1, &ctx), 0);
  EXPECT_EQ(memory_plugin().count("init"), GetParam() >= 11 ? 3 : 1);
  for (void* ctx : contexts) EXPECT_EQ(plugin->finalize(ctx), 0);
  EXPECT_EQ(memory_plugin().count("contexts"), 0);
  void* again = nullptr;
  ASSERT_EQ(plugin->init(1, -1, &again), 0);
  EXPECT_EQ(memory_plugin().count("init"), GetParam() >= 11 ? 4 : 2);
  EXPECT_EQ(plugin->finalize(again), 0);
  if (GetParam() < 11) {
    EXPECT_EQ(plugin->finalize(again), nccl_abi::kInvalidArgument);
  }
}

TEST_P(EachVersion, SizesBeyondTheTableDoNotReachThePlugin) {
  const auto plugin = open_plugin(PROXY_TEST_MEMORY_PLUGIN, GetParam());
  void* request = nullptr;
  std::size_t size = (std::size_t{1} << 30) + 1;
  int tag = 0;
  void* data = nullptr;
  if (GetParam() <= 8) {
    EXPECT_EQ(plugin->isend(nullptr, nullptr, size, 0, nullptr, nullptr, &request), nccl_abi::kInternalError);
    EXPECT_THAT(plugin->last_warning(), HasSubstr("at most 1073741824"));
    EXPECT_EQ(plugin->irecv(nullptr, 1, &data, &size, &tag, &data, nullptr, &request), nccl_abi::kInternalError);
    EXPECT_EQ(memory_plugin().count("isend") + memory_plugin().count("irecv"), 0);
  }
  if (GetParam() <= 7) {
    EXPECT_EQ(plugin->reg_mr(nullptr, nullptr, std::size_t{1} << 31, 1, &data), nccl_abi::kInternalError);
    EXPECT_EQ(memory_plugin().count("regMr"), 0);
  }
  std::array<void*, 65> many{};
  std::array<std::size_t, 65> sizes{};
  std::array<int, 65> tags{};
  EXPECT_EQ(plugin->irecv(nullptr, 65, many.data(), sizes.data(), tags.data(), many.data(), nullptr, &request),
            nccl_abi::kInvalidArgument);
}

TEST_P(EachVersion, AFailedInitIsPassedOn) {
  const auto plugin = open_plugin(PROXY_TEST_MEMORY_PLUGIN, GetParam());
  memory_plugin().fail("init", 0, nccl_abi::kSystemError);
  void* ctx = nullptr;
  EXPECT_EQ(plugin->init(1, -1, &ctx), nccl_abi::kSystemError);
  EXPECT_EQ(plugin->last_warning(), "init was told to fail");
}

TEST(NetPluginLog, KeepsTheNewestLines) {
  memory_plugin().reset();
  const auto plugin = open_plugin(PROXY_TEST_MEMORY_PLUGIN);
  void* ctx = nullptr;
  ASSERT_EQ(plugin->init(1, -1, &ctx), 0);
  memory_plugin().set("log_lines", 5000);
  const auto lines = plugin->take_log();
  ASSERT_EQ(lines.size(), 4096u);
  EXPECT_EQ(lines.back().text, "line 4999");
  EXPECT_EQ(lines.back().level, nccl_abi::kLogInfo);
  EXPECT_EQ(lines.back().flags, nccl_abi::kLogNet);
  EXPECT_TRUE(plugin->take_log().empty());
  EXPECT_EQ(plugin->last_warning(), "");
  std::thread reader([&] {
    for (int i = 0; i < 100; ++i) plugin->take_log();
  });
  memory_plugin().set("log_lines", 1000);
  reader.join();
  EXPECT_EQ(plugin->finalize(ctx), 0);
}

TEST(PluginError, NamesTheResultAndTheWarning) {
  memory_plugin().reset();
  const auto plugin = open_plugin(PROXY_TEST_MEMORY_PLUGIN, 8);
  const Error silent = plugin_error(*plugin, "isend", nccl_abi::kRemoteError);
  EXPECT_EQ(silent.code, ErrorCode::kRemote);
  EXPECT_EQ(silent.message, "isend returned ncclRemoteError (6); the plugin logged no warning");
  memory_plugin().fail("init", 0, nccl_abi::kSystemError);
  void* ctx = nullptr;
  plugin->init(1, -1, &ctx);
  EXPECT_THAT(plugin_error(*plugin, "init", 2).message, HasSubstr("ncclSystemError (2)"));
  EXPECT_THAT(plugin_error(*plugin, "init", 2).message, HasSubstr("init was told to fail"));
  EXPECT_THAT(plugin_error(*plugin, "init", 77).message, HasSubstr("unknown ncclResult_t"));
}

}  // namespace
}  // namespace clustar::bench::proxy
