#include "nccl_plugin/net/urgency_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "nccl_plugin/abi/types.h"

namespace clustar::nccl_plugin {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using transport::MessageIdentity;
using transport::Urgency;

Urgency urgency(const std::string& rules, const std::string& communicator, int function) {
  const auto parsed = UrgencyRules::create(rules);
  EXPECT_TRUE(parsed) << parsed.error().message;
  return parsed->of(communicator).of(static_cast<std::uint8_t>(function));
}

TEST(UrgencyRules, WithoutRulesSendsBlockAndGathersArePrefetched) {
  EXPECT_EQ(urgency("", "", nccl_abi::kSendRecv), Urgency::kBlocking);
  EXPECT_EQ(urgency("", "", nccl_abi::kAllGather), Urgency::kPrefetch);
  EXPECT_EQ(urgency("", "", nccl_abi::kAllReduce), Urgency::kGradient);
  EXPECT_EQ(urgency("  ", "", MessageIdentity::kUnknown), Urgency::kGradient);
}

TEST(UrgencyRules, TheFirstThatFitsCounts) {
  const std::string rules = "comm=tp*, blocking; func=broadcast,background ;comm=,func=allreduce,prefetch";
  EXPECT_EQ(urgency(rules, "tp0", nccl_abi::kAllReduce), Urgency::kBlocking);
  EXPECT_EQ(urgency(rules, "tp0", nccl_abi::kBroadcast), Urgency::kBlocking);
  EXPECT_EQ(urgency(rules, "tp0", MessageIdentity::kUnknown), Urgency::kBlocking);
  EXPECT_EQ(urgency(rules, "dp", nccl_abi::kBroadcast), Urgency::kBackground);
  EXPECT_EQ(urgency(rules, "dp", nccl_abi::kAllReduce), Urgency::kGradient);
  EXPECT_EQ(urgency(rules, "", nccl_abi::kAllReduce), Urgency::kPrefetch);
}

TEST(UrgencyRules, OneWordMakesAJobAlike) {
  for (const int function : {int{nccl_abi::kSendRecv}, int{nccl_abi::kAllGather}, int{MessageIdentity::kUnknown}}) {
    EXPECT_EQ(urgency("background", "any", function), Urgency::kBackground);
  }
}

TEST(UrgencyRules, WhatIsWrongIsNamedWithWhatIsAllowed) {
  for (const auto& [text, problem] : {std::pair{"urgent", "'urgent' is no urgency"},
                                      {"comm=tp", "has no urgency"},
                                      {"blocking;", "rule 2 (''): '' is no urgency"},
                                      {"func=allreduce,func=reduce,blocking", "two functions"},
                                      {"comm=a,comm=b,blocking", "two names"},
                                      {"blocking,background", "two urgencies"},
                                      {"func=alltoall,blocking", "'alltoall' is no function"},
                                      {"name=tp,blocking", "unknown key 'name'"}}) {
    const auto rules = UrgencyRules::create(text);
    ASSERT_FALSE(rules) << text;
    EXPECT_THAT(rules.error().message, AllOf(HasSubstr("CLUSTAR_SEND_URGENCY"), HasSubstr(problem),
                                             HasSubstr("blocking|prefetch|gradient|background")));
  }
}

}  // namespace
}  // namespace clustar::nccl_plugin
