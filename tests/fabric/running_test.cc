// Several commands at one fabric at once, and changes that cannot be finished.
#include "bench/fabric/running.h"

#include <signal.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <random>
#include <thread>

#include "bench/fabric/state.h"
#include "tests/fabric/command_under_test.h"
#include "tests/fabric/switch_under_test.h"

namespace clustar::bench::fabric {
namespace {

using trainer::Command;
using trainer::Outcome;

Result<void> lose_everything(PortRules& rules) {
  rules.to_host.random = 1;
  return {};
}

class RunningFabric : public SwitchTest {
 protected:
  std::vector<std::string> with_name(std::vector<std::string> arguments) const {
    return fabric_arguments(name_, std::move(arguments));
  }
};

TEST_F(RunningFabric, AChangeThatCannotBeFinishedIsTakenBack) {
  const Fabric fabric = must_switch(200'000'000, 0, {}, 3);
  // The last step, when all ports have changed: the state file cannot be written.
  const std::string in_the_way = state_path(name_) + ".new";
  ASSERT_EQ(mkdir(in_the_way.c_str(), 0700), 0);
  const auto changed = change_rules(name_, "", lose_everything);
  std::filesystem::remove(in_the_way);
  ASSERT_FALSE(changed);
  EXPECT_TRUE(contains(changed.error().message, state_path(name_))) << changed.error().message;
  EXPECT_EQ(fabric.status()->spec.rules, SwitchRules());
  ASSERT_TRUE(change_rules(name_, "", lose_everything));
  EXPECT_EQ(fabric.status()->spec.rules.of("h2").to_host.random, 1);
}

TEST_F(RunningFabric, SetUpAndDownAtOnceAreDoneOneAfterAnother) {
  must_switch(200'000'000, 0, {});
  const std::vector<std::vector<std::string>> all{{"set", "--loss", "1%"},
                                                  {"down"},
                                                  {"up", "--hosts", "2", "--rate", "200M"},
                                                  {"set", "h0", "--loss", "2%"},
                                                  {"up", "--hosts", "3", "--rate", "off"},
                                                  {"status", "--no-probe"},
                                                  {"set", "--clear"},
                                                  {"down"}};
  std::vector<std::unique_ptr<Command>> commands;
  for (const auto& one : all) commands.push_back(std::make_unique<Command>(with_name(one)));
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Outcome outcome = commands[i]->wait(std::chrono::seconds(60));
    EXPECT_TRUE(outcome.status == 0 || outcome.status == 1) << outcome.status << outcome.err;
    // Before or after another's change, and never between its steps.
    EXPECT_FALSE(contains(outcome.err + outcome.out, "not whole")) << outcome.err;
    EXPECT_FALSE(contains(outcome.err + outcome.out, "PROBLEM")) << outcome.out;
  }
  const auto there = Fabric::status_of(name_);
  EXPECT_TRUE(!there || there->problems.empty()) << there->problems.front();
}

TEST_F(RunningFabric, TwoThatMakeOneNameMakeItOnce) {
  Command first(with_name({"up", "--hosts", "3", "--rate", "200M"}));
  Command second(with_name({"up", "--hosts", "3", "--rate", "200M"}));
  const Outcome one = first.wait(), other = second.wait();
  EXPECT_EQ(one.status, 0) << one.err;
  EXPECT_EQ(other.status, 0) << other.err;
  EXPECT_EQ(contains(one.out, " made in"), !contains(other.out, " made in")) << one.out << other.out;
  EXPECT_EQ(contains(one.out, "unchanged"), !contains(other.out, "unchanged")) << one.out << other.out;
}

TEST_F(RunningFabric, RulesChangeWhilePacketsPassAndLinksAreTakenAway) {
  const Fabric fabric = must_switch(200'000'000, 0, {}, 3);
  const Receiver receiver(fabric);
  std::thread changes([&] {
    for (int i = 0; i < 30; ++i)
      EXPECT_TRUE(change_rules(name_, "h0", [&](PortRules& rules) {
        rules.classes[0].drop_above_bytes = 50'000 + static_cast<std::uint64_t>(i);
        return Result<void>();
      }));
  });
  send(fabric, receiver, 0, 3000, 100);
  changes.join();
  EXPECT_EQ(receiver.take(3000).size(), 3000U) << "a change loses nothing";

  shell("ip -n " + switch_namespace(name_) + " link del port2");
  const auto changed = change_rules(name_, "", lose_everything);
  ASSERT_FALSE(changed);
  EXPECT_EQ(changed.error().code, ErrorCode::kUnavailable);
  EXPECT_TRUE(contains(changed.error().message, "clustar fabric up")) << changed.error().message;
  EXPECT_FALSE(Fabric::status_of(name_)->problems.empty());
}

}  // namespace
}  // namespace clustar::bench::fabric
