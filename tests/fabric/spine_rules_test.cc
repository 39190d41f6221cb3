// The switch program in fabrics of several switches: rules by the names of links and switches, on real packets.
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>

#include "bench/fabric/places.h"
#include "bench/fabric/render.h"
#include "bench/fabric/running.h"
#include "bench/fabric/state.h"
#include "tests/fabric/fabric_under_test.h"
#include "tests/fabric/ping.h"

namespace clustar::bench::fabric {
namespace {

constexpr int kFlows = 32;
constexpr int kPackets = 4;  // of each flow
constexpr std::uint16_t kFirstPort = 40'000;

Result<void> kill_port(PortRules& rules) {
  rules.to_host.dead = true;
  return {};
}

class SpineRulesTest : public FabricTest {
 protected:
  void SetUp() override {
    FabricTest::SetUp();
    if (IsSkipped()) return;
    UpReport report;
    must_up(tiers(), &report);
    if (!report.note.empty()) GTEST_SKIP() << report.note;
  }

  FabricSpec tiers() const {
    FabricSpec wanted = spec(4, 0);
    wanted.spines = 2;
    return wanted;
  }

  // The program's counters of each port.
  std::map<std::string, PortCounters> counters() const {
    std::map<std::string, PortCounters> all;
    const auto status = Fabric::status_of(name_);
    EXPECT_TRUE(status) << status.error().message;
    for (const SwitchStatus& one : status->switches) {
      for (const SwitchPortStatus& port : one.ports) {
        EXPECT_TRUE(port.program) << one.name << " " << port.peer;
        if (port.program) all[port_place(one.name, port.peer)] = port.program->counters;
      }
    }
    return all;
  }

  // Sends kPackets of each flow from host 0 to host 3; returns how many arrived, by source port. The switches have
  // seen all when the last has come or been counted as lost.
  static std::map<std::uint16_t, int> flows(const Fabric& fabric) {
    const int receiver = udp_receiver(fabric, 3, 4791);
    on_host(fabric, 0, [&] {
      for (int i = 0; i < kFlows * kPackets; ++i) {
        const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        const sockaddr_in own = address_of_host(0, static_cast<std::uint16_t>(kFirstPort + i % kFlows));
        const sockaddr_in to = address_of_host(3, 4791);
        ASSERT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&own), sizeof(own)), 0);
        ASSERT_EQ(sendto(fd, "x", 1, 0, reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 1);
        close(fd);
      }
    });
    std::map<std::uint16_t, int> arrived;
    const auto lost = [&] {
      std::uint64_t sum = 0;
      const auto status = fabric.status();
      EXPECT_TRUE(status);
      for (const SwitchStatus& one : status->switches) {
        for (const SwitchPortStatus& port : one.ports) sum += port.program->counters.to_host().dropped_loss;
      }
      return sum;
    };
    std::uint64_t came = 0;
    while (came + lost() < kFlows * kPackets) {
      char byte = 0;
      sockaddr_in from{};
      socklen_t length = sizeof(from);
      if (recvfrom(receiver, &byte, 1, 0, reinterpret_cast<sockaddr*>(&from), &length) != 1) break;
      ++arrived[ntohs(from.sin_port)];
      ++came;
    }
    close(receiver);
    EXPECT_EQ(came + lost(), static_cast<std::uint64_t>(kFlows * kPackets)) << "each is delivered or counted as lost";
    return arrived;
  }
};

TEST_F(SpineRulesTest, ARuleOnASpineLinkTakesOnlyWhatPassesIt) {
  const Fabric fabric = must_up(tiers());
  ASSERT_TRUE(change_rules(name_, "leaf0-spine1", kill_port));
  const auto arrived = flows(fabric);
  for (const auto& [port, packets] : arrived) EXPECT_EQ(packets, kPackets) << "flow " << port;
  auto all = counters();
  const std::uint64_t over_dead = all.at("leaf0:spine1").to_host().dropped_loss;
  const std::uint64_t over_other = all.at("leaf0:spine0").to_host().packets;
  EXPECT_GT(over_dead, 0U);
  EXPECT_EQ(over_other, arrived.size() * kPackets) << "a whole flow takes one spine";
  EXPECT_EQ(over_dead + over_other, static_cast<std::uint64_t>(kFlows * kPackets));
  for (const auto& [place, port] : all) {
    EXPECT_EQ(port.to_host().dropped(), place == "leaf0:spine1" ? over_dead : 0U) << place;
  }

  // With a chance of one half, every flow over spine0 is still whole, and those over spine1 lose.
  ASSERT_TRUE(change_rules(name_, "leaf0-spine1", [](PortRules& rules) {
    rules = {};
    rules.to_host.random = 0.5;
    return Result<void>();
  }));
  ASSERT_TRUE(reset_counters(name_));
  const auto halved = flows(fabric);
  for (const auto& [port, packets] : arrived) EXPECT_EQ(halved.at(port), packets) << "flow " << port;
  all = counters();
  EXPECT_EQ(all.at("leaf0:spine0").to_host().dropped(), 0U);
  const ClassCounters lossy = all.at("leaf0:spine1").to_host();
  EXPECT_GT(lossy.dropped_loss, 0U);
  EXPECT_GT(lossy.packets, 0U);
  EXPECT_EQ(lossy.packets + lossy.dropped_loss, over_dead);
}

TEST_F(SpineRulesTest, RulesByTheNameOfASwitch) {
  must_up(tiers());
  const auto changed = change_rules(name_, "spine1", kill_port);
  ASSERT_TRUE(changed) << changed.error().message;
  const std::set<std::string> named{"leaf0:spine1", "leaf1:spine1", "spine1:leaf0", "spine1:leaf1"};
  const auto status = Fabric::status_of(name_).value();
  std::set<std::string> dead;
  for (const SwitchStatus& one : status.switches) {
    for (const SwitchPortStatus& port : one.ports) {
      if (port.program->rules.to_host.dead) dead.insert(port_place(one.name, port.peer));
    }
  }
  EXPECT_EQ(dead, named);
  EXPECT_EQ(status.spec, *changed) << "the kernel knows them";
  EXPECT_NE(status_text(status, std::nullopt).find("rules of leaf0:spine1 leaf1:spine1"), std::string::npos);
  // The state file keeps rules and topology; the same again is nothing to do.
  EXPECT_EQ(read_state(name_), *changed);
  UpReport report;
  must_up(*changed, &report);
  EXPECT_EQ(report.change, Change::kUnchanged) << report.before;
  std::filesystem::remove(state_path(name_));
  must_up(*changed, &report);
  EXPECT_EQ(report.change, Change::kUnchanged) << "the kernel knows without the file";
  must_up(tiers(), &report);
  EXPECT_EQ(report.change, Change::kRebuilt);
  EXPECT_NE(report.before.find("port leaf0:spine1: dead instead of no rules"), std::string::npos) << report.before;
  EXPECT_EQ(change_rules(name_, "spine2", kill_port).error().code, ErrorCode::kInvalidArgument);
}

TEST_F(SpineRulesTest, EachSwitchHasOneProgramOfItsOwn) {
  FabricSpec wanted = tiers();
  wanted.rate_bps = 100'000'000;
  must_up(wanted);
  std::set<std::uint32_t> all;
  const auto before = Fabric::status_of(name_).value();
  for (const SwitchStatus& one : before.switches) {
    std::set<std::uint32_t> own;
    for (const SwitchPortStatus& port : one.ports) own.insert(port.program->program_id);
    EXPECT_EQ(own.size(), 1U) << one.name;
    all.insert(own.begin(), own.end());
  }
  EXPECT_EQ(all.size(), 4U);
  const std::string damage = "tc -n " + switch_namespace(name_, "spine1") + " qdisc del dev to-leaf0 clsact";
  ASSERT_EQ(std::system(damage.c_str()), 0);
  const auto status = Fabric::status_of(name_).value();
  ASSERT_FALSE(status.problems.empty());
  EXPECT_EQ(status.problems.front(), "spine1: its port to leaf0 has lost its switch program");
  UpReport report;
  must_up(wanted, &report);
  EXPECT_EQ(report.change, Change::kRepaired);
  counters();
}

}  // namespace
}  // namespace clustar::bench::fabric
