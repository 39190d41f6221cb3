#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "nccl_plugin/abi/types.h"
#include "nccl_plugin/loss/loss_rules.h"
#include "transport/base/rng.h"

namespace clustar::nccl_plugin {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<LossRule> rules_of(std::string_view text) {
  auto rules = parse_loss_rules(text, 10'000);
  EXPECT_TRUE(rules) << text << ": " << (rules ? "" : rules.error().message);
  return rules.value_or(std::vector<LossRule>{});
}

TEST(LossRules, ReadsEveryKey) {
  LossRule expected;
  expected.comm = "dp*";
  expected.ranks = {4, 64};
  expected.bytes = {std::uint64_t{1} << 20, ~std::uint64_t{0}};
  expected.traffic_class = {160, 167};
  expected.any_class = false;
  expected.function = nccl_abi::kAllReduce;
  expected.tolerance_ppm = 50'000;
  EXPECT_EQ(rules_of("comm=dp*,ranks=4-64,bytes=1M-,class=160-167,func=allreduce,p=0.05"), std::vector{expected});
  EXPECT_EQ(rules_of("\t p = 0.05 ,func= allreduce,class =160 - 167,bytes = 1 M - ,ranks=4-64 , comm = dp* \n"),
            std::vector{expected});
}

TEST(LossRules, WhatIsLeftOutFitsEverything) {
  LossRule any;
  any.tolerance_ppm = 10'000;
  EXPECT_EQ(rules_of("comm=*"), std::vector{any});
  EXPECT_EQ(rules_of("func=any"), std::vector{any});
  EXPECT_EQ(rules_of("bytes=0-"), std::vector{any});
  EXPECT_EQ(rules_of(""), std::vector<LossRule>{});
  EXPECT_EQ(rules_of(" \t"), std::vector<LossRule>{});
}

TEST(LossRules, RangesAndSizes) {
  EXPECT_EQ(rules_of("bytes=65536")[0].bytes, (LossRule::Range<std::uint64_t>{65536, 65536}));
  EXPECT_EQ(rules_of("bytes=64k-2G")[0].bytes, (LossRule::Range<std::uint64_t>{65536, 2ull << 30}));
  EXPECT_EQ(rules_of("bytes=-1M")[0].bytes, (LossRule::Range<std::uint64_t>{0, 1 << 20}));
  EXPECT_EQ(rules_of("bytes=18446744073709551615")[0].bytes.low, ~std::uint64_t{0});
  EXPECT_EQ(rules_of("ranks=2-")[0].ranks, (LossRule::Range<std::uint32_t>{2, 0xffffffff}));
  EXPECT_EQ(rules_of("class=0-")[0].traffic_class, (LossRule::Range<int>{0, 0x7fffffff}));
  EXPECT_EQ(rules_of("func=reducescatter")[0].function, nccl_abi::kReduceScatter);
  EXPECT_EQ(rules_of("func=sendrecv")[0].function, nccl_abi::kSendRecv);
  EXPECT_EQ(rules_of("p=0.1")[0].tolerance_ppm, 100'000u);
  EXPECT_EQ(rules_of("p=1e-6")[0].tolerance_ppm, 1u);
  EXPECT_EQ(rules_of("p=0")[0].tolerance_ppm, 0u);
  EXPECT_EQ(rules_of("comm=")[0].comm, "");
  EXPECT_EQ(rules_of("comm=a b=c")[0].comm, "a b=c");
  const auto several = rules_of("comm=tp*,p=0; comm=*");
  ASSERT_EQ(several.size(), 2u);
  EXPECT_EQ(several[0].comm, "tp*");
  EXPECT_EQ(several[1].tolerance_ppm, 10'000u);
}

TEST(LossRules, ErrorsNameTheRuleTheKeyAndWhatIsAllowed) {
  const struct {
    const char* text;
    const char* rule;
    const char* problem;
    const char* allowed;
  } kBad[] = {
      {"p=0.11", "rule 1 ('p=0.11')", "p = '0.11'", "0.000001 to 0.1"},
      {"p=0.1000002", "rule 1", "p = '0.1000002'", "0.000001 to 0.1"},
      {"p=-0.01", "rule 1", "p = '-0.01'", "0.000001 to 0.1"},
      {"p=nan", "rule 1", "p = 'nan'", "0.000001 to 0.1"},
      {"p=1%", "rule 1", "p = '1%'", "0.000001 to 0.1"},
      {"p=", "rule 1", "p = ''", "0.000001 to 0.1"},
      {"p", "rule 1", "'p' has no value", "0.000001 to 0.1"},
      {"comm=a;p=0.01;prob=0.1", "rule 3 ('prob=0.1')", "unknown key 'prob'", "comm, ranks, bytes, class, func, p"},
      {"P=0.01", "rule 1", "unknown key 'P'", "comm, ranks"},
      {"=3", "rule 1", "unknown key ''", "comm, ranks"},
      {"p=0.01,", "rule 1", "unknown key ''", "comm, ranks"},
      {"p=0.01,,comm=a", "rule 1", "unknown key ''", "comm, ranks"},
      {"p=0.01;", "rule 2 ('')", "is empty", "remove its ';'"},
      {";p=0.01", "rule 1 ('')", "is empty", "comm, ranks"},
      {"p=0.01;;p=0.02", "rule 2", "is empty", "comm, ranks"},
      {"p=0.01,p=0.01", "rule 1", "'p' is allowed once", "second rule"},
      {"ranks=64-4", "rule 1", "ranks = '64-4'", "N-M"},
      {"ranks=4294967296", "rule 1", "ranks", "4294967295"},
      {"ranks=4K", "rule 1", "ranks = '4K'", "numbers"},
      {"ranks=", "rule 1", "ranks = ''", "N-M"},
      {"ranks=-", "rule 1", "ranks = '-'", "N-M"},
      {"ranks=1-2-3", "rule 1", "ranks = '1-2-3'", "N-M"},
      {"ranks=+4", "rule 1", "ranks = '+4'", "N-M"},
      {"bytes=1T", "rule 1", "bytes = '1T'", "64K, 1M, 2G"},
      {"bytes=K", "rule 1", "bytes = 'K'", "64K"},
      {"bytes=1.5M", "rule 1", "bytes = '1.5M'", "64K"},
      {"bytes=17179869184G", "rule 1", "bytes", "64K"},
      {"bytes=18446744073709551616", "rule 1", "bytes", "64K"},
      {"class=any", "rule 1", "class = 'any'", "2147483647"},
      {"class=2147483648", "rule 1", "class", "2147483647"},
      {"func=AllReduce", "rule 1", "func = 'AllReduce'", "allreduce, reducescatter, any (of these two) or sendrecv"},
      {"func=allgather", "rule 1", "func = 'allgather'", "allreduce, reducescatter, any (of these two) or sendrecv"},
  };
  for (const auto& bad : kBad) {
    const auto rules = parse_loss_rules(bad.text, 10'000);
    ASSERT_FALSE(rules) << bad.text;
    EXPECT_EQ(rules.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(rules.error().message, AllOf(HasSubstr("CLUSTAR_LOSS_RULES"), HasSubstr(bad.rule),
                                             HasSubstr(bad.problem), HasSubstr(bad.allowed)));
  }
}

TEST(TrafficClasses, EachRangeIsARule) {
  const auto rules = parse_traffic_classes(" 160 - 167 ,200, 250-", 20'000).value();
  ASSERT_EQ(rules.size(), 3u);
  LossRule expected;
  expected.any_class = false;
  expected.tolerance_ppm = 20'000;
  expected.traffic_class = {160, 167};
  EXPECT_EQ(rules[0], expected);
  expected.traffic_class = {200, 200};
  EXPECT_EQ(rules[1], expected);
  EXPECT_EQ(rules[2].traffic_class.high, 0x7fffffff);
  EXPECT_TRUE(parse_traffic_classes(" ", 1).value().empty());
  for (const char* bad : {"160;161", "a", "-1", "-1-", "160,", ",", "167-160", "2147483648", "160 167", "1K"}) {
    const auto refused = parse_traffic_classes(bad, 1);
    ASSERT_FALSE(refused) << bad;
    EXPECT_THAT(refused.error().message,
                AllOf(HasSubstr("CLUSTAR_LOSS_TRAFFIC_CLASSES: range"), HasSubstr("0 to 2147483647")));
  }
}

// By the definition of * and ?.
bool naive_match(std::string_view pattern, std::string_view text) {
  if (pattern.empty()) return text.empty();
  if (pattern[0] == '*') {
    return naive_match(pattern.substr(1), text) || (!text.empty() && naive_match(pattern, text.substr(1)));
  }
  return !text.empty() && (pattern[0] == '?' || pattern[0] == text[0]) &&
         naive_match(pattern.substr(1), text.substr(1));
}

std::string random_text(Rng& rng, std::string_view alphabet, std::size_t longest) {
  std::string text(rng.below(longest + 1), '\0');
  for (char& c : text) c = alphabet[rng.below(alphabet.size())];
  return text;
}

TEST(Glob, IsItsDefinition) {
  Rng rng(1);
  int matches = 0;
  for (int i = 0; i < 200'000; ++i) {
    const std::string pattern = random_text(rng, "ab*?", 7);
    const std::string text = random_text(rng, "ab", 8);
    ASSERT_EQ(glob_matches(pattern, text), naive_match(pattern, text)) << pattern << " " << text;
    matches += glob_matches(pattern, text);
  }
  EXPECT_GT(matches, 10'000);
  // What backtracks forever in a naive matcher.
  EXPECT_FALSE(glob_matches(std::string(200, '*') + "b", std::string(10'000, 'a')));
  EXPECT_FALSE(glob_matches("a*a*a*a*a*a*a*a*a*a*a*a*a*b", std::string(1'000, 'a')));
}

// Whatever the text: an answer, and what it accepts is within bounds.
TEST(LossRules, AnyTextIsReadOrRefused) {
  constexpr std::string_view kWords[] = {
      "comm",  "ranks", "bytes", "class", "func", "p", "=", ",", ";", "-",   "*",         "?",
      "0",     "1",     "64",    "0.01",  "0.1",  "K", "M", "G", " ", "any", "allreduce", "99999999999999999999",
      "1e300", "\t"};
  Rng rng(2);
  int accepted = 0;
  for (int i = 0; i < 300'000; ++i) {
    std::string text;
    if (i % 4 == 0) {
      text = random_text(rng, std::string_view("\0\xff;,=-pcomrankbytes0123.KMGe*? \n", 31), 40);
    } else if (i % 4 == 1) {
      for (std::uint64_t n = rng.below(16); n > 0; --n) text += kWords[rng.below(std::size(kWords))];
    } else {  // well formed, mostly
      for (std::uint64_t n = 1 + rng.below(4); n > 0; --n) {
        text += kWords[rng.below(6)];
        text += "=";
        text += kWords[9 + rng.below(std::size(kWords) - 9)];
        if (n > 1) text += rng.chance(0.5) ? "," : ";";
      }
    }
    if (const auto rules = parse_loss_rules(text, 10'000)) {
      accepted += !rules->empty();
      for (const LossRule& rule : *rules) {
        ASSERT_LE(rule.tolerance_ppm, kMaxTolerancePpm) << text;
        ASSERT_LE(rule.bytes.low, rule.bytes.high) << text;
        ASSERT_LE(rule.ranks.low, rule.ranks.high) << text;
        ASSERT_LE(rule.traffic_class.low, rule.traffic_class.high) << text;
        ASSERT_TRUE(rule.function == -1 || rule.function == nccl_abi::kAllReduce ||
                    rule.function == nccl_abi::kReduceScatter || rule.function == nccl_abi::kSendRecv);
      }
    } else {
      ASSERT_THAT(rules.error().message, HasSubstr("CLUSTAR_LOSS_RULES: rule ")) << text;
    }
    if (const auto classes = parse_traffic_classes(text, 10'000)) {
      for (const LossRule& rule : *classes) ASSERT_FALSE(rule.any_class) << text;
    }
  }
  EXPECT_GT(accepted, 1'000);
}

}  // namespace
}  // namespace clustar::nccl_plugin
