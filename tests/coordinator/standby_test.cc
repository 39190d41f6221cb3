// Two coordinators: the standby takes over when the primary is gone, and gives back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <memory>

#include "tests/coordinator/daemon_process.h"
#include "tests/coordinator/test_agent.h"

namespace clustar::tests {
namespace {

using namespace coflow::control;
using ::testing::HasSubstr;

const auto kInCharge = [](const nlohmann::json& state) { return state["in_charge"].get<bool>(); };
const auto kWaits = [](const nlohmann::json& state) {
  return !state["in_charge"].get<bool>() && state["hears_primary"].get<bool>();
};

TEST(Standby, TakesOverAndStepsDown) {
  auto primary = std::make_unique<DaemonProcess>();
  ASSERT_TRUE(primary->listens()) << primary->log();
  const std::string address = primary->address();
  const Words of_standby{"--standby-of", address, "--lease-intervals", "40"};
  DaemonProcess standby(of_standby);
  ASSERT_TRUE(standby.listens()) << standby.log();
  ASSERT_TRUE(kWaits(standby.wait_for_state(kWaits))) << standby.log();
  EXPECT_EQ(http_get(standby.http_port(), "/healthz").status, 200);

  // As long as the primary lives, it sends agents there.
  TestAgent early(standby.port());
  early.send(hello_of(1, 1));
  const auto elsewhere = early.next_of<Refusal>();
  ASSERT_TRUE(elsewhere);
  EXPECT_EQ(elsewhere->reason, RefusalReason::kStandby);
  EXPECT_EQ(elsewhere->address, address);
  TestAgent of_primary(primary->port());
  of_primary.send(hello_of(1, 1));
  const auto first = of_primary.next_of<Welcome>();
  ASSERT_TRUE(first);

  primary->signal(SIGKILL);
  EXPECT_EQ(primary->wait(), -SIGKILL);
  ASSERT_TRUE(kInCharge(standby.wait_for_state(kInCharge))) << standby.log();
  EXPECT_THAT(http_get(standby.http_port(), "/healthz").body, HasSubstr("in charge"));
  TestAgent agent(standby.port());
  Hello again = hello_of(1, 1);
  again.seen = {first->term, 5};
  agent.send(again);
  const auto second = agent.next_of<Welcome>();
  ASSERT_TRUE(second);
  EXPECT_GT(second->term, first->term);

  primary = std::make_unique<DaemonProcess>(Words{"--listen", address});
  ASSERT_TRUE(primary->listens()) << primary->log();
  const auto back = agent.next_of<Refusal>();
  ASSERT_TRUE(back);
  EXPECT_EQ(back->reason, RefusalReason::kStandby);
  EXPECT_EQ(back->address, address);
  EXPECT_TRUE(agent.closes());
  ASSERT_TRUE(kWaits(standby.wait_for_state(kWaits))) << standby.log();
  TestAgent home(primary->port());
  again.seen = {second->term, 5};
  home.send(again);
  const auto third = home.next_of<Welcome>();
  ASSERT_TRUE(third);
  EXPECT_GT(third->term, second->term);
}

TEST(Standby, IsNotWellWhileItsPrimaryIsSilent) {
  // A lease of 1000 s: it is not in charge for as long.
  DaemonProcess standby({"--standby-of", "127.0.0.1:1", "--interval", "10000ms", "--lease-intervals", "100"});
  ASSERT_TRUE(standby.listens()) << standby.log();
  const HttpAnswer health = http_get(standby.http_port(), "/healthz");
  EXPECT_EQ(health.status, 503);
  EXPECT_EQ(health.body, "standby, 127.0.0.1:1 is silent\n");
}

TEST(Standby, AnUnknownHostIsNamed) {
  DaemonProcess standby({"--standby-of", "no-such-host.invalid:7480"});
  EXPECT_FALSE(standby.listens());
  EXPECT_EQ(standby.wait(), 1);
  EXPECT_THAT(standby.log(), HasSubstr("--standby-of: the host 'no-such-host.invalid' is not known"));
}

}  // namespace
}  // namespace clustar::tests
