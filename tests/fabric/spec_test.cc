// Numbers and names of a fabric: no kernel, no root.
#include "bench/fabric/spec.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "bench/fabric/namespaces.h"
#include "bench/fabric/owner.h"
#include "bench/fabric/ports.h"

namespace clustar::bench::fabric {
namespace {

TEST(FabricSpec, ReadsRates) {
  const std::pair<const char*, std::uint64_t> rates[] = {
      {"200M", 200'000'000},        {"1G", 1'000'000'000},    {"10gbit", 10'000'000'000}, {"2.5g", 2'500'000'000},
      {"200Mbit/s", 200'000'000},   {"1500000", 1'500'000},   {"1000k", 1'000'000},       {"off", 0},
      {"400G", 400'000'000'000ULL}, {"0.5Gbit", 500'000'000},
  };
  for (const auto& [text, bps] : rates) {
    const auto rate = parse_rate(text);
    ASSERT_TRUE(rate) << text;
    EXPECT_EQ(*rate, bps) << text;
    EXPECT_EQ(parse_rate(rate_text(bps)).value(), bps) << rate_text(bps);
  }
}

TEST(FabricSpec, RefusesOtherRatesAndNamesWhatIsAllowed) {
  for (const char* text : {"", "fast", "200", "0", "-1G", "1T", "401G", "1e12", "1 G", "10GB", "nan", "inf", "1Gbps"}) {
    const auto rate = parse_rate(text);
    ASSERT_FALSE(rate) << text;
    EXPECT_EQ(rate.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(rate.error().message.find("200M, 1G, 2.5G, 10gbit"), std::string::npos) << rate.error().message;
  }
}

TEST(FabricSpec, ReadsSizes) {
  EXPECT_EQ(parse_size("125000").value(), 125'000U);
  EXPECT_EQ(parse_size("100k").value(), 100'000U);
  EXPECT_EQ(parse_size("64KiB").value(), 65'536U);
  EXPECT_EQ(parse_size("1.5MB").value(), 1'500'000U);
  for (const char* text : {"", "k", "10x", "-5", "10ib", "1e30", "9999999999G"}) EXPECT_FALSE(parse_size(text)) << text;
}

TEST(FabricSpec, FillsInTheBufferAndRefusesWhatCannotBe) {
  EXPECT_EQ(checked({.rate_bps = 200'000'000})->buffer_bytes, 125'000U);
  EXPECT_EQ(checked({.rate_bps = 1'000'000})->buffer_bytes, 100'000U);
  EXPECT_EQ(checked({.rate_bps = 0})->buffer_bytes, 0U);
  EXPECT_FALSE(checked({.rate_bps = 0, .buffer_bytes = 100'000}));
  EXPECT_FALSE(checked({.buffer_bytes = 1513}));
  EXPECT_TRUE(checked({.buffer_bytes = 1514}));
  EXPECT_FALSE(checked({.hosts = 1}));
  EXPECT_FALSE(checked({.hosts = 251}));
  EXPECT_FALSE(checked({.mtu = 1279}));
  EXPECT_FALSE(checked({.mtu = 9217}));
  for (const char* name : {"", "-a", "a-", "A", "a_b", "a/b", "a b", "123456789012345678901234567890123"}) {
    EXPECT_FALSE(check_name(name)) << name;
  }
}

TEST(FabricSpec, TheBucketHoldsTenFrames) {
  EXPECT_EQ(burst_bytes(200'000'000, 1500), 15'140U);
  EXPECT_EQ(burst_bytes(200'000'000, 9000), 90'140U);
  EXPECT_EQ(burst_bytes(10'000'000'000, 1500), 62'500U);
  const FabricSpec spec = checked({.rate_bps = 200'000'000}).value();
  const std::string lines = queue_lines(topology_of(spec).links.front().ends[1], spec.mtu);
  EXPECT_NE(lines.find("rate 200000000bit burst 15140 limit 125000"), std::string::npos) << lines;
  EXPECT_NE(lines.find("bfifo limit 125000"), std::string::npos) << lines;
}

TEST(FabricSpec, KnowsItsNamespacesAndNobodyElses) {
  EXPECT_EQ(parse_namespace("clustar-clustar-h0")->host, 0);
  EXPECT_EQ(parse_namespace("clustar-a-b-h17")->fabric, "a-b");
  EXPECT_EQ(parse_namespace("clustar-x-sw")->host, -1);
  for (const char* name : {"clustar-test-77-0", "clustar-test-77-2", "clustar--h0", "clustar-x-h", "clustar-x-h01",
                           "clustar-x-h250", "clustar-x-h-1", "clustar-x-sw2", "clustar-sw", "clustar-h0", "x", ""}) {
    EXPECT_FALSE(parse_namespace(name)) << name;
  }
}

// The file may have been changed by hand: `down` must still work.
TEST(FabricOwner, WhatIsNoOwnerIsNone) {
  for (const char* text :
       {"{}", "[]", R"({"owner": 5})", R"({"owner": {"name": "a"}})", R"({"owner": {"uid": "0"}})"}) {
    EXPECT_FALSE(owner_from_json(nlohmann::json::parse(text))) << text;
  }
  const auto unnamed = owner_from_json(nlohmann::json::parse(R"({"owner": {"uid": 0, "name": 5}})"));
  ASSERT_TRUE(unnamed);
  EXPECT_EQ(unnamed->name, "root");
}

}  // namespace
}  // namespace clustar::bench::fabric
