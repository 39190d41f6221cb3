// CLUSTAR_INJECT_FAULTS through the registry, as the plugin uses it: packets are lost, messages are not, and everybody
// is told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "mlt/compare/settings.h"
#include "mlt/driver/settings.h"
#include "tests/conformance/transport_under_test.h"
#include "transport/api/settings.h"
#include "transport/base/system_clock.h"
#include "transport/io/decorators/settings.h"
#include "transport/net/settings.h"
#include "transport/registry.h"

namespace clustar::transport::conformance {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class InjectedFaults : public ::testing::Test {
 protected:
  Result<Selection> select(const std::string& faults, const std::string& transport = "mlt",
                           const std::string& engine = "auto") {
    Config config;
    config.edit<TransportSettings>()->transport = transport;
    config.edit<NetworkSettings>()->interfaces = "=lo";
    config.edit<NetworkSettings>()->family_name = "ipv4";
    config.edit<MltSettings>()->engine = engine;
    config.edit<FaultSettings>()->inject = faults;
    config.edit<CompareSettings>()->static_deadline = static_deadline_;
    return select_transport({config, clock_, Log([this](LogLevel level, const std::string& text) {
                               const std::lock_guard lock(mutex_);
                               if (level == LogLevel::kWarn) warnings_ += text + "\n";
                             })});
  }
  static void transfer(Connection& connection, std::size_t size) {
    SendBuffer from(*connection.send, size, 1);
    RecvBuffer to(*connection.recv, size);
    finish({must_recv(*connection.recv, {{to.mr.get(), 0, size, 0}}), must_send(*connection.send, *from.mr, 0, size)});
    ASSERT_EQ(from.bytes, to.bytes);
  }

  Duration static_deadline_{0};
  SystemClock clock_;
  std::mutex mutex_;
  std::string warnings_;
};

TEST_F(InjectedFaults, PacketsAreLostAndMessagesAreNot) {
  for (const char* engine : {"auto", "inline", "thread"}) {
    const auto selected = select("loss=0.2", "mlt", engine);
    ASSERT_TRUE(selected) << selected.error().message;
    EXPECT_THAT(warnings_, AllOf(HasSubstr("CLUSTAR_INJECT_FAULTS=loss=0.2"), HasSubstr("on purpose")));
    Connection connection = connect(*selected->transport, *selected->transport);
    for (int i = 0; i < 5; ++i) transfer(connection, 4 << 20);
    EXPECT_THAT(selected->transport->summary(),
                AllOf(HasSubstr("faults injected on purpose (loss=0.2)"),
                      ContainsRegex(": [1-9][0-9]* of [1-9][0-9]* packets lost"),
                      ContainsRegex("packets sent, [1-9][0-9]* of them again"), HasSubstr(" 0 bytes missing")))
        << engine;
  }
}

// Held packets leave inside of the device's calls, also of an engine that sleeps.
TEST_F(InjectedFaults, PacketsThatAreHeldBackLeave) {
  for (const char* engine : {"auto", "inline", "thread"}) {
    const auto selected = select("delay=2ms,jitter=1ms,reorder=0.2/5,duplicate=0.1", "mlt", engine);
    ASSERT_TRUE(selected) << selected.error().message;
    Connection connection = connect(*selected->transport, *selected->transport);
    for (int i = 0; i < 5; ++i) transfer(connection, 1 << 20);
    EXPECT_THAT(selected->transport->summary(),
                AllOf(ContainsRegex(" [1-9][0-9]* reordered"), ContainsRegex(" [1-9][0-9]* duplicated"),
                      ContainsRegex(" [1-9][0-9]* delayed")))
        << engine;
  }
}

TEST_F(InjectedFaults, WithoutThemNothingIsSaid) {
  const auto selected = select("");
  ASSERT_TRUE(selected) << selected.error().message;
  Connection connection = connect(*selected->transport, *selected->transport);
  transfer(connection, 1000);
  EXPECT_EQ(warnings_, "");
  EXPECT_THAT(selected->transport->summary(), Not(HasSubstr("faults")));
}

TEST_F(InjectedFaults, NoTransportButMltTakesThem) {
  for (const char* transport : {"tcp", "auto", "verbs"}) {
    const auto refused = select("loss=0.01", transport);
    ASSERT_FALSE(refused) << transport;
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(refused.error().message, AllOf(HasSubstr("mlt only"), HasSubstr("CLUSTAR_TRANSPORT=mlt"))) << transport;
  }
}

TEST_F(InjectedFaults, WhatIsNoFaultIsNamed) {
  const auto refused = select("lose=0.01");
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message,
              AllOf(HasSubstr("CLUSTAR_INJECT_FAULTS"), HasSubstr("'lose'"), HasSubstr("loss, burst")));
}

// CLUSTAR_STATIC_DEADLINE comes from a module, too.
TEST_F(InjectedFaults, WithAStaticDeadlineTheyCostBytesAndThatIsTold) {
  static_deadline_ = std::chrono::milliseconds(2);
  const auto selected = select("loss=0.2");
  ASSERT_TRUE(selected) << selected.error().message;
  EXPECT_THAT(warnings_, HasSubstr("CLUSTAR_STATIC_DEADLINE: messages end at a fixed time"));
  Connection connection = connect(*selected->transport, *selected->transport);
  SendBuffer from(*connection.send, 1 << 20, 1);
  RecvBuffer to(*connection.recv, 1 << 20);
  Request* receive = must_recv(*connection.recv, {{to.mr.get(), 0, 1 << 20, 0}});
  Request* send = must_send(*connection.send, *from.mr, 0, 1 << 20);
  std::size_t missing = 0;
  ASSERT_TRUE(poll_until([&] {
    if (send != nullptr && send->test().value().done) send = nullptr;
    if (receive == nullptr) return send == nullptr;
    const Progress progress = receive->test().value();
    if (!progress.done) return false;
    receive = nullptr;
    missing = progress.missing.size();
    return send == nullptr;
  }));
  EXPECT_GT(missing, 0u);
  EXPECT_THAT(selected->transport->summary(), ContainsRegex(" [1-9][0-9]* bytes missing"));
}

}  // namespace
}  // namespace clustar::transport::conformance
