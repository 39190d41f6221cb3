// Rules of a switch port as text, values and JSON: no kernel, no root.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "bench/fabric/places.h"
#include "bench/fabric/ports.h"
#include "bench/fabric/switch/rules.h"
#include "bench/fabric/switch/rules_text.h"

namespace clustar::bench::fabric {
namespace {

constexpr PortLine kLine{200'000'000, 125'000};

TEST(SwitchRules, ReadsProbabilitiesAndDurations) {
  EXPECT_DOUBLE_EQ(parse_probability("1%").value(), 0.01);
  EXPECT_DOUBLE_EQ(parse_probability("0.5").value(), 0.5);
  EXPECT_DOUBLE_EQ(parse_probability("0.01%").value(), 0.0001);
  EXPECT_EQ(parse_probability("none").value(), 0);
  for (const char* text : {"", "x", "-1%", "101%", "1.5", "nan", "1%%", "1 %", "1e-3"}) {
    ASSERT_FALSE(parse_probability(text)) << text;
    EXPECT_NE(parse_probability(text).error().message.find("0% to 100%"), std::string::npos);
  }
  EXPECT_EQ(parse_duration_ns("200ms").value(), 200'000'000U);
  EXPECT_EQ(parse_duration_ns("1.5s").value(), 1'500'000'000U);
  EXPECT_EQ(parse_duration_ns("7us").value(), 7'000U);
  for (const char* text : {"", "20", "20m", "-1s", "1h", "9999999999s"}) EXPECT_FALSE(parse_duration_ns(text)) << text;
}

TEST(SwitchRules, ReadsLosses) {
  LossRules rules;
  ASSERT_TRUE(set_loss(rules, "1%"));
  ASSERT_TRUE(set_loss_model(rules, "ge:1%,25%,0,50%"));
  ASSERT_TRUE(set_bursts(rules, "every=200ms,length=20ms,loss=75%"));
  ASSERT_TRUE(set_dead(rules, "on"));
  EXPECT_DOUBLE_EQ(rules.random, 0.01);
  EXPECT_EQ(rules.gilbert_elliott, (GilbertElliott{true, 0.01, 0.25, 0, 0.5}));
  EXPECT_NEAR(rules.gilbert_elliott.mean_loss(), 0.019231, 1e-6);
  EXPECT_EQ(rules.bursts, (Bursts{200'000'000, 20'000'000, 0.75}));
  EXPECT_TRUE(rules.dead);
  for (const char* text : {"", "1%,25%,0,50%", "ge:", "ge:1%,25%,0", "ge:1%,25%,0,50%,1", "ge:1%,25%,0,200%"}) {
    ASSERT_FALSE(set_loss_model(rules, text)) << text;
    EXPECT_NE(set_loss_model(rules, text).error().message.find("ge:P,R,G,B"), std::string::npos) << text;
  }
  for (const char* text :
       {"", "every=1s", "every=1s,length=1ms", "every=1s,length=1ms,loss=75%,x=1", "every=1",
        "every=1s-2s,length=1ms,loss=75%", "every=1s,length=1ms-2ms-3ms,loss=75%", "every=1s,length=1ms-,loss=75%"}) {
    EXPECT_FALSE(set_bursts(rules, text)) << text;
  }
  EXPECT_FALSE(set_dead(rules, "yes"));
  ASSERT_TRUE(set_bursts(rules, "every=400ms,length=5ms-50ms,loss=60%-90%,jitter=200ms"));
  EXPECT_EQ(rules.bursts, (Bursts{400'000'000, 5'000'000, 0.6, 50'000'000, 0.9, 200'000'000}));
  ASSERT_TRUE(set_loss(rules, "none") && set_loss_model(rules, "none") && set_bursts(rules, "none"));
  ASSERT_TRUE(set_dead(rules, "off"));
  EXPECT_EQ(rules, LossRules());
}

TEST(SwitchRules, ReadsWhatIsSaidOfClasses) {
  PortRules rules;
  ASSERT_TRUE(set_marking(rules, "65000:65000:1"));
  ASSERT_TRUE(set_marking(rules, "3=30k:90k:0.1"));
  ASSERT_TRUE(set_drop_above(rules, "0-1,4=20k"));
  ASSERT_TRUE(set_trim(rules, "1"));
  EXPECT_EQ(rules.classes[0], (ClassRules{65'000, 65'000, 1, 20'000, false}));
  EXPECT_EQ(rules.classes[1], (ClassRules{65'000, 65'000, 1, 20'000, true}));
  EXPECT_EQ(rules.classes[3], (ClassRules{30'000, 90'000, 0.1, kNeverDrop, false}));
  EXPECT_EQ(rules.classes[4].drop_above_bytes, 20'000U);
  for (const char* text : {"", "65000", "1:2", "8=1:2:1", "1=1:2:0", "x=1:2:1", "3-1=1:2:1", "1:2:3:4", "a:b:1"}) {
    EXPECT_FALSE(set_marking(rules, text)) << text;
  }
  for (const char* text : {"", "20k", "1=", "1=x", "9=20k", "1=2=3"}) EXPECT_FALSE(set_drop_above(rules, text)) << text;
  for (const char* text : {"", "8", "1,", "-", "yes"}) EXPECT_FALSE(set_trim(rules, text)) << text;
  ASSERT_TRUE(set_marking(rules, "none") && set_drop_above(rules, "none") && set_trim(rules, "none"));
  EXPECT_EQ(rules, PortRules());
}

std::string refusal(const PortRules& rules, const PortLine& line = kLine) {
  const auto done = checked(rules, line);
  return done ? "" : done.error().message;
}

TEST(SwitchRules, RefusesWhatCannotBeAndNamesWhatIsAllowed) {
  PortRules rules;
  EXPECT_EQ(refusal(rules, {0, 0}), "");
  rules.classes[2] = {1000, 1000, 1, kNeverDrop, false};
  EXPECT_EQ(refusal(rules), "");
  EXPECT_NE(refusal(rules, {0, 0}).find("need a rate"), std::string::npos);
  rules.classes[2] = {1000, 1000, 0.5, kNeverDrop, false};
  EXPECT_NE(refusal(rules).find("Pmax = 1"), std::string::npos);
  rules.classes[2] = {2000, 1000, 1, kNeverDrop, false};
  EXPECT_NE(refusal(rules).find("Kmin <= Kmax <= the buffer, 125000"), std::string::npos);
  rules.classes[2] = {0, 125'001, 1, kNeverDrop, false};
  EXPECT_NE(refusal(rules).find("class 2"), std::string::npos);
  rules.classes[2] = {0, 0, 0, 125'001, false};
  EXPECT_NE(refusal(rules).find("allowed: 0 to the buffer"), std::string::npos);
  rules = {};
  rules.to_host.random = 1.01;
  EXPECT_NE(refusal(rules).find("0% to 100%"), std::string::npos);
  rules = {};
  rules.from_host.bursts = {999'999, 1, 1};
  EXPECT_NE(refusal(rules).find("1ms to 3600s"), std::string::npos);
  rules.from_host.bursts = {1'000'000, 1'000'001, 1};
  EXPECT_NE(refusal(rules).find("length"), std::string::npos);
  rules.from_host.bursts = {2'000'000, 500'000, 0.5, 400'000};
  EXPECT_NE(refusal(rules).find("from the least to the most"), std::string::npos);
  rules.from_host.bursts = {2'000'000, 500'000, 0.5, 0, 0.4};
  EXPECT_NE(refusal(rules).find("from the least to the most"), std::string::npos);
  rules.from_host.bursts = {2'000'000, 500'000, 0.5, 1'000'000, 0, 1'000'001};
  EXPECT_NE(refusal(rules).find("1000001 ns late"), std::string::npos);
  rules = {};
  rules.to_host.gilbert_elliott = {true, 0, 1, 0, 1};
  EXPECT_NE(refusal(rules).find("never becomes bad"), std::string::npos);
}

TEST(SwitchRules, EqualRulesHaveOneForm) {
  const Topology three = topology_of(checked(FabricSpec{.hosts = 3, .rate_bps = 200'000'000}).value());
  SwitchRules by_all, by_host;
  by_all.all.to_host.random = 0.01;
  for (const char* host : {"h0", "h1", "h2"}) by_host.ports[host] = by_all.all;
  by_host.all.to_host.dead = true;
  const auto a = checked(by_all, three);
  const auto b = checked(by_host, three);
  ASSERT_TRUE(a && b);
  EXPECT_EQ(*a, *b);
  EXPECT_EQ(checked(*a, three).value(), *a);
  SwitchRules nothing;
  nothing.all.seed = 7;
  EXPECT_EQ(checked(nothing, three).value(), SwitchRules());
  nothing.ports["h3"] = {};
  EXPECT_FALSE(checked(nothing, three));
}

TEST(SwitchRules, JsonTakesThemThereAndBack) {
  PortRules rules;
  ASSERT_TRUE(set_marking(rules, "3=30k:90k:0.1"));
  ASSERT_TRUE(set_drop_above(rules, "1=20k"));
  ASSERT_TRUE(set_trim(rules, "1,2"));
  ASSERT_TRUE(set_loss_model(rules.to_host, "ge:1%,25%,0,50%"));
  ASSERT_TRUE(set_bursts(rules.from_host, "every=200ms,length=20ms,loss=75%"));
  ASSERT_TRUE(set_bursts(rules.to_host, "every=400ms,length=5ms-50ms,loss=60%-90%,jitter=200ms"));
  rules.seed = 99;
  rules = checked(rules, kLine).value();
  EXPECT_EQ(rules_from_json(nlohmann::json::parse(to_json(rules).dump())).value(), rules);
  EXPECT_EQ(rules_from_json(to_json(PortRules())).value(), PortRules());
  for (const char* text : {"null", "[]", "{}", R"({"classes": [], "to_host": {}, "from_host": {}})"}) {
    EXPECT_FALSE(rules_from_json(nlohmann::json::parse(text))) << text;
  }
}

TEST(SwitchRules, SaysWhatBurstsAre) {
  PortRules rules;
  ASSERT_TRUE(set_bursts(rules.to_host, "every=200ms,length=20ms,loss=75%"));
  EXPECT_EQ(describe(rules), "bursts of 20 ms every 200 ms with 75% loss");
  ASSERT_TRUE(set_bursts(rules.to_host, "every=400ms,length=5ms-50ms,loss=60%-90%,jitter=200ms"));
  EXPECT_EQ(describe(rules), "bursts of 5 to 50 ms every 400 ms and up to 200 ms later with 60% to 90% loss");
}

TEST(SwitchRules, SaysWhatTheyAre) {
  PortRules rules;
  EXPECT_EQ(describe(rules), "");
  ASSERT_TRUE(set_loss(rules.to_host, "1%"));
  rules.from_host.dead = true;
  ASSERT_TRUE(set_drop_above(rules, "1=20k"));
  EXPECT_EQ(describe(rules), "loss 1%, dead inwards, class 1 dropped above 20000 B");
  ASSERT_TRUE(set_marking(rules, "65k:65k:1"));
  ASSERT_TRUE(set_trim(rules, "0-1,3"));
  rules.to_host = rules.from_host = {};
  EXPECT_EQ(describe(rules),
            "all classes marked above 65000 B, class 1 dropped above 20000 B, classes 0-1 trimmed, class 3 trimmed");
}

TEST(SwitchRules, EightStrictClassesAndABackstop) {
  const std::string lines =
      class_queue_lines(topology_of(*checked(FabricSpec{.rate_bps = 200'000'000})).links.front().ends[1], 1500);
  EXPECT_NE(lines.find("classid 1:17 htb rate 8kbit ceil 200000000bit burst 1600 cburst 15140 prio 0"),
            std::string::npos)
      << lines;
  EXPECT_NE(lines.find("parent 1:10 handle 10: bfifo limit 500000"), std::string::npos) << lines;
}

}  // namespace
}  // namespace clustar::bench::fabric
