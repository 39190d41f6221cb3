// How connections end: what is posted after the peer closed, what the log says, and what is left when the library goes
// with connections open.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/plugin/plugin_under_test.h"
#include "tests/sanitized.h"

namespace clustar::tests {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t kLong = 1 << 20;
constexpr int kTag = 3;

class Ends : public testing::TestWithParam<const char*> {
 protected:
  Variables variables() const { return {{"CLUSTAR_TRANSPORT", GetParam()}}; }
};

// A plugin, one connection within it, and a buffer registered at both ends.
struct Pair {
  Pair() : plugin(open_plugin(11)), memory(kLong) {
    EXPECT_EQ(plugin->init(1, -1, &context), nccl_abi::kSuccess);
    connection = connect_to_self(*plugin, context);
    EXPECT_EQ(plugin->reg_mr(connection.send, memory.data(), kLong, nccl_abi::kPtrHost, &send_mr), nccl_abi::kSuccess);
    EXPECT_EQ(plugin->reg_mr(connection.recv, memory.data(), kLong, nccl_abi::kPtrHost, &recv_mr), nccl_abi::kSuccess);
  }
  ~Pair() {
    close_recv();
    close_send();
    EXPECT_EQ(plugin->finalize(context), nccl_abi::kSuccess);
  }

  void close_send() {
    if (connection.send == nullptr) return;
    EXPECT_EQ(plugin->dereg_mr(connection.send, send_mr), nccl_abi::kSuccess);
    EXPECT_EQ(plugin->close_send(std::exchange(connection.send, nullptr)), nccl_abi::kSuccess);
  }
  void close_recv() {
    if (connection.recv == nullptr) return;
    EXPECT_EQ(plugin->dereg_mr(connection.recv, recv_mr), nccl_abi::kSuccess);
    EXPECT_EQ(plugin->close_recv(std::exchange(connection.recv, nullptr)), nccl_abi::kSuccess);
  }
  // Post until there is a request or `most` calls gave none. A call must succeed.
  void* send(std::size_t size = kLong) {
    void* request = nullptr;
    EXPECT_EQ(plugin->isend(connection.send, memory.data(), size, kTag, send_mr, nullptr, &request),
              nccl_abi::kSuccess);
    return request;
  }
  void* recv() {
    void* data = memory.data();
    std::size_t size = kLong;
    int tag = kTag;
    void* request = nullptr;
    EXPECT_EQ(plugin->irecv(connection.recv, 1, &data, &size, &tag, &recv_mr, nullptr, &request), nccl_abi::kSuccess);
    return request;
  }
  int result_of(void* request) {
    int result = nccl_abi::kSuccess;
    EXPECT_TRUE(poll_until([&] {
      int done = 0;
      result = plugin->test(request, &done, nullptr);
      EXPECT_EQ(done, 0);
      return result != nccl_abi::kSuccess;
    }));
    return result;
  }
  std::vector<std::string> warnings() {
    std::vector<std::string> texts;
    for (const auto& line : plugin->take_log()) {
      if (line.level == nccl_abi::kLogWarn) texts.push_back(line.text);
    }
    return texts;
  }

  std::unique_ptr<NetPlugin> plugin;
  void* context = nullptr;
  PluginConnection connection;
  std::vector<unsigned char> memory;
  void* send_mr = nullptr;
  void* recv_mr = nullptr;
};

void let_threads_look() { std::this_thread::sleep_for(std::chrono::milliseconds(150)); }

// As NCCL's Socket transport does: requests, whose test tells. More than may be outstanding at a time, so that they are
// seen to be given back.
void expect_requests_that_fail(Pair& pair, const std::function<void*()>& post) {
  for (int round = 0; round < 4; ++round) {
    std::set<void*> open;
    void* request = post();
    for (; request != nullptr && open.size() < 4096; request = post()) EXPECT_TRUE(open.insert(request).second);
    EXPECT_GE(open.size(), 32u);
    EXPECT_LE(open.size(), 1024u) << "requests that failed count as requests";
    for (void* each : open) EXPECT_EQ(pair.result_of(each), nccl_abi::kRemoteError);
  }
}

TEST_P(Ends, WhatIsSentAfterTheReceiverClosedFailsWhenItIsTested) {
  const Environment environment(variables());
  Pair pair;
  // Fills what may be outstanding: requests that are never given back must not be in the way of those that fail.
  std::vector<void*> before;
  poll_until([&] {
    void* const request = pair.send();
    if (request != nullptr) before.push_back(request);
    return request == nullptr && before.size() >= 32;
  });
  pair.close_recv();
  EXPECT_EQ(pair.result_of(before.back()), nccl_abi::kRemoteError);
  expect_requests_that_fail(pair, [&] { return pair.send(); });
}

TEST_P(Ends, WhatIsReceivedAfterTheSenderClosedFailsWhenItIsTested) {
  const Environment environment(variables());
  Pair pair;
  void* const before = pair.recv();
  pair.close_send();
  EXPECT_EQ(pair.result_of(before), nccl_abi::kRemoteError);
  expect_requests_that_fail(pair, [&] { return pair.recv(); });
}

TEST_P(Ends, AWrongArgumentIsAnErrorAtOnceAlsoThen) {
  const Environment environment(variables());
  Pair pair;
  void* const before = pair.send();
  pair.close_recv();
  EXPECT_EQ(pair.result_of(before), nccl_abi::kRemoteError);
  void* request = nullptr;
  EXPECT_EQ(
      pair.plugin->isend(pair.connection.send, pair.memory.data(), kLong + 1, kTag, pair.send_mr, nullptr, &request),
      nccl_abi::kInvalidArgument);
  EXPECT_EQ(request, nullptr);
}

TEST_P(Ends, AnOrderlyEndWarnsOfNothing) {
  const Environment environment(variables());
  Pair pair;
  for (const std::size_t size : {std::size_t{0}, std::size_t{100}, kLong}) {
    transfer(*pair.plugin, pair.connection, size);
  }
  pair.close_recv();
  let_threads_look();
  pair.close_send();
  EXPECT_THAT(pair.warnings(), ::testing::IsEmpty());
}

TEST_P(Ends, APeerThatIsLostWarnsOnceWhereSomebodyWaitsOrAsks) {
  const Environment environment(variables());
  for (const bool waits : {true, false}) {
    Pair pair;
    void* waiting = waits ? pair.send() : nullptr;
    pair.close_recv();
    let_threads_look();
    if (!waits) waiting = pair.send();
    EXPECT_EQ(pair.result_of(waiting), nccl_abi::kRemoteError);
    EXPECT_EQ(pair.result_of(pair.send()), nccl_abi::kRemoteError);
    const auto warnings = pair.warnings();
    ASSERT_EQ(warnings.size(), 1u) << (waits ? "with a send that waits" : "with none");
    EXPECT_THAT(warnings[0], HasSubstr("sending to"));
  }
}

std::size_t thread_count() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<std::size_t>(std::distance(begin(tasks), end(tasks)));
}

// NCCL unloads the plugin when it has finalized its last communicator, whatever is still open.
TEST_P(Ends, NoThreadOutlivesTheLibrary) {
  if (kSanitized) GTEST_SKIP() << "sanitizers keep libraries loaded, and what is left open is a leak to them";
  const Environment environment(variables());
  const std::size_t threads = thread_count();
  for (int cycle = 0; cycle < 20; ++cycle) {
    const auto plugin = open_plugin(11);
    void* context = nullptr;
    ASSERT_EQ(plugin->init(1, -1, &context), nccl_abi::kSuccess);
    const PluginConnection connection = connect_to_self(*plugin, context);
    transfer(*plugin, connection, kLong);
    ASSERT_EQ(plugin->finalize(context), nccl_abi::kSuccess);
  }
  let_threads_look();  // a thread without its code ends the process here
  EXPECT_EQ(thread_count(), threads);
}

INSTANTIATE_TEST_SUITE_P(Each, Ends, testing::Values("tcp", "mlt"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace clustar::tests
