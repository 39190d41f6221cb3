// Which ports a name means, and rules by names: no kernel, no root.
#include "bench/fabric/places.h"

#include <gtest/gtest.h>

#include "bench/fabric/topology_file.h"

namespace clustar::bench::fabric {
namespace {

FabricSpec tiers() {
  FabricSpec spec;
  spec.hosts = 4;
  spec.spines = 2;
  return checked(spec).value();
}

std::vector<std::string> places(const FabricSpec& spec, const std::string& place) {
  std::vector<std::string> names;
  const auto ports = ports_at(topology_of(spec), place);
  if (!ports) return {ports.error().message};
  for (const SwitchPort& port : *ports) names.push_back(port_place(port));
  return names;
}

using Names = std::vector<std::string>;

TEST(Places, NamePorts) {
  const FabricSpec spec = tiers();
  EXPECT_EQ(places(spec, "").size(), 12U);
  EXPECT_EQ(places(spec, "h3"), Names{"h3"});
  EXPECT_EQ(places(spec, "3"), Names{"h3"});
  EXPECT_EQ(places(spec, "leaf1-h3"), Names{"h3"});
  EXPECT_EQ(places(spec, "leaf0:spine1"), Names{"leaf0:spine1"});
  EXPECT_EQ(places(spec, "leaf0-spine1"), (Names{"leaf0:spine1", "spine1:leaf0"}));
  EXPECT_EQ(places(spec, "spine1-leaf0"), (Names{"leaf0:spine1", "spine1:leaf0"}));
  EXPECT_EQ(places(spec, "spine1"), (Names{"leaf0:spine1", "leaf1:spine1", "spine1:leaf0", "spine1:leaf1"}));
  EXPECT_EQ(places(spec, "leaf0").size(), 6U);
  EXPECT_EQ(places(checked({.hosts = 3}).value(), "sw"), (Names{"h0", "h1", "h2"}));
}

TEST(Places, ErrorsSayWhatIsThere) {
  for (const char* name : {"h4", "4", "spine2", "spine0-spine1", "leaf0>spine1", "x"}) {
    const auto ports = ports_at(topology_of(tiers()), name);
    ASSERT_FALSE(ports) << name;
    EXPECT_EQ(ports.error().code, ErrorCode::kInvalidArgument);
    for (const char* said : {name, "h0 to h3", "leaf0, leaf1, spine0, spine1", "leaf1-spine1"}) {
      EXPECT_NE(ports.error().message.find(said), std::string::npos) << ports.error().message;
    }
  }
}

TEST(Places, RulesHaveOneForm) {
  const auto lossy = [](PortRules& rules) {
    rules.to_host.random = 0.5;
    return Result<void>();
  };
  FabricSpec by_place = tiers(), by_all = tiers();
  ASSERT_TRUE(edit_rules(by_place, "", lossy));
  by_all.rules.all.to_host.random = 0.5;
  EXPECT_EQ(checked(by_place).value(), checked(by_all).value());
  EXPECT_EQ(checked(by_place)->rules.ports.size(), 12U);
  EXPECT_EQ(difference(checked(by_place).value(), checked(by_all).value()), "");

  FabricSpec one = tiers();
  ASSERT_TRUE(edit_rules(one, "leaf0:spine1", lossy));
  EXPECT_EQ(difference(tiers(), checked(one).value()), "port leaf0:spine1: no rules instead of loss 50%");
  EXPECT_NE(describe(one).find("loss 50% at leaf0:spine1"), std::string::npos) << describe(one);
  one.rules.ports["spine1"] = {};
  EXPECT_NE(checked(one).error().message.find("one port by its own name"), std::string::npos);
  one.rules.ports.erase("spine1");
  one.rules.ports["spine7:leaf0"] = {};
  EXPECT_NE(checked(one).error().message.find("there is no 'spine7:leaf0'"), std::string::npos);
}

TEST(Places, EachPortsRulesFitItsOwnLine) {
  FabricSpec spec;
  spec.hosts = 4;
  spec.rate_bps = 100'000'000;
  spec.buffer_bytes = 200'000;
  spec.spines = 2;
  spec.uplink_buffer_bytes = 100'000;
  spec = checked(spec).value();
  const auto marking = [](PortRules& rules) {
    rules.classes[0] = {150'000, 150'000, 1, kNeverDrop, false};
    return Result<void>();
  };
  FabricSpec hosts = spec;
  ASSERT_TRUE(edit_rules(hosts, "h2", marking));
  EXPECT_TRUE(checked(hosts)) << checked(hosts).error().message;
  ASSERT_TRUE(edit_rules(spec, "", marking));
  const auto refused = checked(spec);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("port leaf0:spine0: class 0"), std::string::npos) << refused.error().message;
}

constexpr const char* kFile = R"(
hosts = 2
switches = ["leaf0", "leaf1", "spine0"]
[[links]]
between = ["h0", "leaf0"]
[[links]]
between = ["h1", "leaf1"]
[[links]]
between = ["leaf0", "spine0"]
[[links]]
between = ["leaf1", "spine0"]
)";

TEST(Places, RulesInAFile) {
  const std::string rules = R"(
[[rules]]
loss = "1%"
seed = 7
[[rules]]
at = "leaf1-spine0"
dead = true
direction = "in"
ecn = ["1=20k:20k:1", "2=30k:30k:1"]
)";
  const auto spec = parse_topology(kFile + rules, "x.toml", "t");
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_NEAR(spec->rules.of("h0").to_host.random, 0.01, 1e-9);
  EXPECT_EQ(spec->rules.of("h0").seed, 7U);
  EXPECT_FALSE(spec->rules.of("leaf0:spine0").from_host.dead);
  for (const char* port : {"leaf1:spine0", "spine0:leaf1"}) {
    const PortRules& own = spec->rules.of(port);
    EXPECT_TRUE(own.from_host.dead && !own.to_host.dead) << port;
    EXPECT_NEAR(own.to_host.random, 0.01, 1e-9) << "the rules before stay";
    EXPECT_EQ(own.classes[2].mark_max_bytes, 30'000U);
  }
}

TEST(Places, WrongRulesInAFileAreToldWithTheirLine) {
  const std::pair<const char*, const char*> wrong[] = {
      {"[[rules]]\nat = \"spine7\"\n", "there is no 'spine7'"},
      {"[[rules]]\nloss = \"2\"\n", "loss: '2' is not a probability"},
      {"[[rules]]\nlos = \"1%\"\n", "unknown key 'los'; allowed: at, loss"},
      {"[[rules]]\nloss = 1\n", "loss: must be a text"},
      {"[[rules]]\ndirection = \"up\"\nloss = \"1%\"\n", "allowed: to, out, from, in, both"},
  };
  for (const auto& [text, expected] : wrong) {
    const auto spec = parse_topology(std::string(kFile) + text, "x.toml", "t");
    ASSERT_FALSE(spec) << text;
    EXPECT_NE(spec.error().message.find("x.toml:1"), std::string::npos) << spec.error().message;
    EXPECT_NE(spec.error().message.find(expected), std::string::npos) << spec.error().message;
  }
}

}  // namespace
}  // namespace clustar::bench::fabric
