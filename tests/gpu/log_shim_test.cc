// The logging shim without a GPU: one transfer through it over a real plugin, and what it wrote about it.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "bench/proxy/net_plugin.h"
#include "nccl_plugin/abi/tables.h"
#include "nccl_plugin/clustar.h"
#include "tests/temp_path.h"

namespace clustar {
namespace {

using bench::proxy::Handle;
using bench::proxy::NetPlugin;
using testing::HasSubstr;
using Rows = std::vector<std::map<std::string, std::string>>;

std::vector<std::string> split(const std::string& line) {
  std::vector<std::string> cells;
  std::istringstream in(line);
  for (std::string cell; std::getline(in, cell, ',');) cells.push_back(cell);
  return cells;
}

class LogShim : public testing::Test {
 protected:
  void SetUp() override {
    file_ = tests::temp_path("netlog", ".csv");
    wrap(SHIM_TEST_PLUGIN);
    setenv("NETLOG_FILE", file_.c_str(), 1);
  }
  void TearDown() override { unlink(file_.c_str()); }

  static void wrap(const char* plugin) { setenv("NETLOG_PLUGIN", plugin, 1); }

  Rows rows() const {
    std::ifstream in(file_);
    std::string line;
    std::getline(in, line);
    const auto names = split(line);
    Rows out;
    while (std::getline(in, line)) {
      const auto cells = split(line);
      EXPECT_EQ(cells.size(), names.size()) << line;
      auto& row = out.emplace_back();
      for (std::size_t i = 0; i < std::min(cells.size(), names.size()); ++i) row[names[i]] = cells[i];
    }
    return out;
  }
  Rows rows(const std::string& call) const {
    Rows out;
    for (auto& row : rows()) {
      if (row["call"] == call) out.push_back(row);
    }
    return out;
  }

  std::string file_;
};

// Repeats `step` until it is true; false after 10 s.
template <class Step>
bool soon(Step step) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!step()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    sched_yield();
  }
  return true;
}

// One message of 100,000 bytes with tag 7 from the plugin to itself.
void transfer(NetPlugin& plugin) {
  void* ctx = nullptr;
  ASSERT_EQ(plugin.init(1, -1, &ctx), 0);
  int devices = 0;
  ASSERT_EQ(plugin.devices(&devices), 0);
  ASSERT_GT(devices, 0);
  Handle handle{};
  void *listener = nullptr, *sender = nullptr, *receiver = nullptr;
  ASSERT_EQ(plugin.listen(ctx, 0, &handle, &listener), 0);
  ASSERT_TRUE(soon([&] {
    if (sender == nullptr) {
      EXPECT_EQ(plugin.connect(ctx, 0, &handle, &sender), 0);
    }
    if (receiver == nullptr) {
      EXPECT_EQ(plugin.accept(listener, &receiver), 0);
    }
    return sender != nullptr && receiver != nullptr;
  }));

  std::vector<char> out(100'000, 'x'), in(200'000);
  void *out_mr = nullptr, *in_mr = nullptr;
  ASSERT_EQ(plugin.reg_mr(sender, out.data(), out.size(), nccl_abi::kPtrHost, &out_mr), 0);
  ASSERT_EQ(plugin.reg_mr(receiver, in.data(), in.size(), nccl_abi::kPtrHost, &in_mr), 0);
  if (plugin.has_set_net_attr()) {
    nccl_abi::NetAttr attr{};
    attr.op = 1u << nccl_abi::kAllReduce;
    attr.algo = 1u << nccl_abi::kRing;
    attr.proto = 1u << nccl_abi::kSimple;
    ASSERT_EQ(plugin.set_net_attr(ctx, &attr), 0);
  }
  void *send = nullptr, *receive = nullptr;
  void* data = in.data();
  std::size_t posted = in.size();
  int tag = 7;
  ASSERT_TRUE(soon([&] {
    if (receive == nullptr) {
      EXPECT_EQ(plugin.irecv(receiver, 1, &data, &posted, &tag, &in_mr, nullptr, &receive), 0);
    }
    if (send == nullptr) {
      EXPECT_EQ(plugin.isend(sender, out.data(), out.size(), tag, out_mr, nullptr, &send), 0);
    }
    return receive != nullptr && send != nullptr;
  }));
  int sent = 0, received = 0, size = 0, ignored = 0;
  ASSERT_TRUE(soon([&] {
    if (sent == 0) {
      EXPECT_EQ(plugin.test(send, &sent, &ignored), 0);
    }
    if (received == 0) {
      EXPECT_EQ(plugin.test(receive, &received, &size), 0);
    }
    return sent != 0 && received != 0;
  }));
  EXPECT_EQ(size, 100'000);
  EXPECT_EQ(std::string(in.data(), 100'000), std::string(out.data(), out.size()));

  EXPECT_EQ(plugin.dereg_mr(sender, out_mr), 0);
  EXPECT_EQ(plugin.dereg_mr(receiver, in_mr), 0);
  EXPECT_EQ(plugin.close_send(sender), 0);
  EXPECT_EQ(plugin.close_recv(receiver), 0);
  EXPECT_EQ(plugin.close_listen(listener), 0);
  EXPECT_EQ(plugin.finalize(ctx), 0);
}

TEST_F(LogShim, WritesWhatATransferAsked) {
  const auto versions = NetPlugin::exported_versions(SHIM_TEST_PLUGIN);
  ASSERT_TRUE(versions) << versions.error().message;
  int tried = 0;
  for (const int version : *versions) {
    if (version < 10) continue;
    SCOPED_TRACE("v" + std::to_string(version));
    ++tried;
    unlink(file_.c_str());
    bool with_attributes = false;
    {
      auto wrapped = NetPlugin::open(SHIM_TEST_PLUGIN, version);
      auto plugin = NetPlugin::open(SHIM_LIBRARY, version);
      ASSERT_TRUE(plugin) << plugin.error().message;
      ASSERT_TRUE(wrapped) << wrapped.error().message;
      EXPECT_STREQ((*plugin)->name(), (*wrapped)->name()) << "NCCL_NET must select the shim as it would the plugin";
      EXPECT_EQ((*plugin)->has_make_v_device(), (*wrapped)->has_make_v_device());
      with_attributes = (*plugin)->has_set_net_attr();
      EXPECT_EQ(with_attributes, (*wrapped)->has_set_net_attr());
      transfer(**plugin);
    }
    const auto sends = rows("isend");
    ASSERT_EQ(sends.size(), 1u);
    EXPECT_EQ(sends[0].at("tag"), "7");
    EXPECT_EQ(sends[0].at("bytes"), "100000");
    EXPECT_EQ(sends[0].at("result"), "0");
    EXPECT_EQ(sends[0].at("op"), with_attributes ? "AllReduce" : "-");
    EXPECT_EQ(sends[0].at("algo"), with_attributes ? "Ring" : "-");
    EXPECT_EQ(sends[0].at("proto"), with_attributes ? "Simple" : "-");
    const auto receives = rows("irecv");
    ASSERT_EQ(receives.size(), 1u);
    EXPECT_EQ(receives[0].at("bytes"), "200000") << "what was posted";
    std::map<std::string, std::string> done;
    for (const auto& row : rows("test")) done[row.at("request")] = row.at("bytes");
    EXPECT_EQ(done.at(receives[0].at("request")), "100000") << "what arrived";
    EXPECT_TRUE(done.contains(sends[0].at("request")));
    for (const char* call : {"init", "listen", "connect", "accept", "closeSend", "closeRecv", "closeListen"}) {
      EXPECT_EQ(rows(call).size(), 1u) << call;
    }
    EXPECT_EQ(rows("regMr").size(), 2u);
  }
  EXPECT_GT(tried, 0) << "the wrapped plugin exports none of v10, v11, v12";
}

// The columns of a row from `func` on, joined as in the file.
std::string identity(const std::map<std::string, std::string>& row) {
  std::string out;
  for (const char* name : {"func", "number", "local_number", "channel", "transfer", "transfers", "loop", "stage",
                           "slice", "reducing", "total_bytes", "comm", "ranks", "coll_algo", "coll_proto"}) {
    out += (out.empty() ? "" : ",") + row.at(name);
  }
  return out;
}

int g_asked;
// Stands for NCCL's callback: `phandle` is the answer.
int answer(void**, int, void* phandle, std::int64_t, void* data) {
  ++g_asked;
  if (phandle == nullptr) return nccl_abi::kInternalError;
  *static_cast<clustarMessage_v1*>(data) = *static_cast<clustarMessage_v1*>(phandle);
  return 0;
}

int init(const nccl_abi::TableV10& table, void**, nccl_abi::ProfilerCallback callback) {
  return table.init(nullptr, callback);
}
template <class Table>
int init(const Table& table, void** ctx, nccl_abi::ProfilerCallback callback) {
  return table.init(ctx, 1, nullptr, nullptr, callback);
}

// Sends of `messages` (null: not identified; of `busy`: not taken) through the shim over the plugin that identifies.
template <class Table>
void send_all(const char* symbol, const std::vector<clustarMessage_v1*>& messages, nccl_abi::ProfilerCallback callback,
              std::size_t busy = 0) {
  void* const library = dlopen(SHIM_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  const auto* const table = static_cast<const Table*>(dlsym(library, symbol));
  ASSERT_NE(table, nullptr);
  void* ctx = nullptr;
  ASSERT_EQ(init(*table, &ctx, callback), 0);
  for (clustarMessage_v1* message : messages) {
    void* request = nullptr;
    for (std::size_t i = 0; i < busy; ++i)
      EXPECT_EQ(table->isend(nullptr, nullptr, 0, 3, nullptr, message, &request), 0);
    EXPECT_EQ(table->isend(nullptr, nullptr, 4096, 3, nullptr, message, &request), 0);
    EXPECT_NE(request, nullptr);
  }
  EXPECT_EQ(table->closeSend(nullptr), 0);
  dlclose(library);
}

clustarMessage_v1 reduce_scatter_step() {
  clustarMessage_v1 message{};
  message.size = sizeof message;
  message.comm_id = 0xabcdef;
  message.number = 41;
  message.total_bytes = 1u << 26;
  message.ranks = 3;
  message.channel = 1;
  message.transfer = 9;
  message.transfers = 16;
  message.loop = 1;
  message.slice = 1;
  message.function = nccl_abi::kAllReduce;
  message.algorithm = nccl_abi::kRing;
  message.protocol = nccl_abi::kSimple;
  message.has_phase = 1;
  message.reducing = 1;
  return message;
}

TEST_F(LogShim, WritesWhichCollectiveEachSendIs) {
  wrap(SHIM_IDENTIFYING_PLUGIN);
  clustarMessage_v1 step = reduce_scatter_step();
  clustarMessage_v1 point_to_point = step;
  point_to_point.function = nccl_abi::kSend;
  point_to_point.algorithm = point_to_point.protocol = 255;
  point_to_point.local_number = 1;
  point_to_point.has_phase = 0;
  const std::vector<clustarMessage_v1*> messages = {&step, &point_to_point, nullptr};
  g_asked = 0;
  send_all<nccl_abi::TableV10>("ncclNetPlugin_v10", messages, answer);
  send_all<nccl_abi::TableV11>("ncclNetPlugin_v11", messages, answer, 5);
  send_all<nccl_abi::TableV12>("ncclNetPlugin_v12", messages, answer);
  EXPECT_EQ(g_asked, 9) << "sends that were not taken are not asked about";
  const auto sends = rows("isend");
  ASSERT_EQ(sends.size(), 9u);
  for (std::size_t i = 0; i < sends.size(); i += 3) {
    EXPECT_EQ(identity(sends[i]), "AllReduce,41,0,1,9,16,1,0,1,1,67108864,0000000000abcdef,3,Ring,Simple");
    EXPECT_EQ(identity(sends[i + 1]), "Send,41,1,1,9,16,-,-,-,-,67108864,0000000000abcdef,3,-,-");
    EXPECT_EQ(identity(sends[i + 2]), "-,-,-,-,-,-,-,-,-,-,-,-,-,-,-");
  }
  for (const auto& row : rows("init")) EXPECT_EQ(identity(row), "-,-,-,-,-,-,-,-,-,-,-,-,-,-,-");
}

TEST_F(LogShim, AsksNobodyWithoutNcclsCallback) {
  wrap(SHIM_IDENTIFYING_PLUGIN);
  clustarMessage_v1 step = reduce_scatter_step();
  send_all<nccl_abi::TableV11>("ncclNetPlugin_v11", {&step}, nullptr);
  ASSERT_EQ(rows("isend").size(), 1u);
  EXPECT_EQ(rows("isend")[0].at("func"), "-");
}

TEST_F(LogShim, AMissingPluginIsAnErrorOfInit) {
  wrap("/nonexistent/plugin.so");
  auto plugin = NetPlugin::open(SHIM_LIBRARY);
  ASSERT_TRUE(plugin) << plugin.error().message;
  void* ctx = nullptr;
  EXPECT_EQ((*plugin)->init(1, -1, &ctx), nccl_abi::kInvalidUsage);
  std::string text;
  for (const auto& line : (*plugin)->take_log()) text += line.text;
  EXPECT_THAT(text, HasSubstr("cannot open NETLOG_PLUGIN"));
}

TEST_F(LogShim, AnUnwritableFileIsAnErrorOfInit) {
  setenv("NETLOG_FILE", "/nonexistent/log.csv", 1);
  auto plugin = NetPlugin::open(SHIM_LIBRARY);
  ASSERT_TRUE(plugin) << plugin.error().message;
  void* ctx = nullptr;
  EXPECT_EQ((*plugin)->init(1, -1, &ctx), nccl_abi::kInvalidUsage);
}

}  // namespace
}  // namespace clustar
