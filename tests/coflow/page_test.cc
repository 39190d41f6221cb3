// The pages of `clustar coflow`, and the curves that they show.
#include "bench/coflow/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <numeric>
#include <regex>

#include "bench/coflow/cdf.h"
#include "bench/coflow/render.h"
#include "bench/coflow/sweep.h"
#include "bench/report/report.h"
#include "bench/report/style.h"

namespace clustar::bench::coflow {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

Summary made_up(const std::string& policy, double factor, std::size_t coflows) {
  Replay replayed;
  for (std::size_t i = 0; i < coflows; ++i) {
    CoflowResult one;
    one.label = i;
    one.ended = TimePoint(Duration(static_cast<Duration::rep>(1e6 * factor * static_cast<double>(i))));
    one.isolated_s = 1e-3;
    one.flows = i % 100;  // none of some
    one.longest_flow = 1e6 * static_cast<double>(i % 7);
    replayed.coflows.push_back(one);
  }
  Summary summary = summarize(policy, "exact", replayed);
  summary.each = replayed.coflows;
  return summary;
}

json replay_document() {
  Comparison comparison{.workload = "a <b>bold</b> trace & \"more\"",
                        .ports = 150,
                        .port_gbps = 1,
                        .load = {0.95, 0.5},
                        .rules = "exact",
                        .policies = {}};
  comparison.policies = {made_up("maxmin", 3, 400), made_up("match:<i>", 1.5, 400), made_up("sebf", 2, 3)};
  json document = report::envelope("coflow replay", to_json(comparison));
  document["workload"] = workload_json(comparison);
  document["command_line"] = "clustar coflow replay <file>";
  return json::parse(document.dump());
}

TEST(CoflowCdf, KeepsEndsAndGrows) {
  std::vector<double> values(1000);
  std::iota(values.begin(), values.end(), 1.0);
  for (const std::size_t most : {2, 3, 200, 999, 1000, 5000}) {
    const auto curve = cdf(values, most);
    EXPECT_EQ(curve.size(), std::min<std::size_t>(most, 1000));
    EXPECT_THAT(curve.front(), Pair(1, 0.001));
    EXPECT_THAT(curve.back(), Pair(1000, 1));
    for (std::size_t i = 1; i < curve.size(); ++i) {
      EXPECT_GT(curve[i].first, curve[i - 1].first);
      EXPECT_GT(curve[i].second, curve[i - 1].second);
    }
    for (const auto& [value, share] : curve) EXPECT_DOUBLE_EQ(share, value / 1000);
  }
}

TEST(CoflowCdf, EqualValuesAreOneStep) {
  EXPECT_THAT(cdf({2, 2, 2, 5}), ElementsAre(Pair(2, 0.75), Pair(5, 1)));
  EXPECT_THAT(cdf({7}), ElementsAre(Pair(7, 1)));
  EXPECT_TRUE(cdf({}).empty());
  EXPECT_THAT(cdf({1, 3, 3, 3, 3, 3, 3, 9}, 3), ElementsAre(Pair(1, 0.125), Pair(3, 0.875), Pair(9, 1)));
}

TEST(CoflowPage, ShowsEachPolicyAndEscapesNames) {
  const json document = replay_document();
  ASSERT_TRUE(can_draw(document));
  const auto html = page(document);
  ASSERT_TRUE(html) << html.error().message;
  EXPECT_THAT(*html, HasSubstr("a &lt;b&gt;bold&lt;/b&gt; trace &amp; &quot;more&quot;"));
  EXPECT_THAT(*html, Not(HasSubstr("<b>")));
  EXPECT_THAT(*html, Not(HasSubstr("<i>")));
  for (const char* name : {">maxmin<", ">match:&lt;i&gt;<", ">sebf<", "clustar coflow replay &lt;file&gt;"}) {
    EXPECT_THAT(*html, HasSubstr(name));
  }
  EXPECT_THAT(*html, HasSubstr("load 0.95 at the busiest port"));
  EXPECT_THAT(*html, HasSubstr("shortest under sebf"));
  EXPECT_THAT(*html, HasSubstr("Completion times, cumulative"));
  EXPECT_THAT(*html, HasSubstr("Slowdowns, cumulative"));
}

TEST(CoflowPage, HasNumbersOnlyAndNothingOutside) {
  const std::string html = page(replay_document()).value();
  EXPECT_THAT(html, HasSubstr(report::page_style())) << "the look of all pages";
  EXPECT_FALSE(std::regex_search(html, std::regex("[\">( -](nan|inf)\\b"))) << html;
  for (const char* outside : {"<script", "http://", "https://", "src=", "@import", "url("}) {
    EXPECT_THAT(html, Not(HasSubstr(outside)));
  }
}

TEST(CoflowPage, OfOnePolicyAndOfNoCoflow) {
  json document = replay_document();
  document["results"].erase(1);
  document["results"].erase(1);
  EXPECT_THAT(page(document).value(), HasSubstr("Under maxmin a coflow takes 0.599 s on average."));
  Comparison nothing;
  nothing.policies = {made_up("match", 1, 0)};
  json empty = report::envelope("coflow replay", to_json(nothing));
  empty["workload"] = workload_json(nothing);
  EXPECT_THAT(page(empty).value(), HasSubstr("No coflow ended"));
}

TEST(CoflowPage, DrawsFilesWithoutCurvesAndRefusesOthers) {
  json document = replay_document();
  for (json& row : document["results"]) {
    row.erase("cdf_cct_s");
    row.erase("cdf_slowdown");
  }
  const auto html = page(document);
  ASSERT_TRUE(html) << html.error().message;
  EXPECT_THAT(*html, Not(HasSubstr("cumulative")));
  document["results"][0].erase("average_cct_s");
  const auto refused = page(document);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("average_cct_s"));
  for (const json& other : {json(), json::array({1}), json{{"command", "perf"}, {"results", {1}}}, json{{"command", 7}},
                            json{{"command", "coflow replay"}}}) {
    EXPECT_FALSE(can_draw(other)) << other;
  }
}

TEST(CoflowJson, HasThinnedCurvesAndEachCoflowIfAskedFor) {
  const json row = replay_document()["results"][0];
  EXPECT_EQ(row["cdf_cct_s"].size(), kCdfPoints);
  EXPECT_EQ(row["cdf_cct_s"].back()[1], 1.0);
  EXPECT_EQ(row["cdf_cct_s"].back()[0], row["max_cct_s"]);
  EXPECT_LE(row["cdf_slowdown"].size(), kCdfPoints);
  ASSERT_EQ(row["per_coflow"].size(), 400u);
  EXPECT_EQ(row["per_coflow"][399]["label"], 399);
  EXPECT_NEAR(row["per_coflow"][399]["cct_s"].get<double>(), 1.197, 1e-9);
  EXPECT_NEAR(row["per_coflow"][399]["slowdown"].get<double>(), 1197, 1e-6);
  EXPECT_TRUE(row["per_coflow"][0]["slowdown"].is_null()) << "it has no flow";
}

TEST(CoflowPage, OfASweepSaysWhoIsWorse) {
  Sweep swept{.ports = 8, .coflows = 10, .seeds = 1, .port_gbps = 1, .loads = {0.5}, .policies = {"one", "<two>"}};
  swept.runs = {{.load = 0.5, .seed = 1, .policy = "maxmin", .average_s = 2, .p95_s = 4, .p99_s = 5, .slowdown = 3},
                {.load = 0.5, .seed = 1, .policy = "one", .average_s = 1, .p95_s = 4, .p99_s = 4, .slowdown = 1.5},
                {.load = 0.5, .seed = 1, .policy = "<two>", .average_s = 4, .p95_s = 2, .p99_s = 6, .slowdown = 1}};
  json document = report::envelope("coflow sweep", to_json(swept));
  document.update(context_json(swept));
  ASSERT_TRUE(can_draw(document));
  const auto html = page(document);
  ASSERT_TRUE(html) << html.error().message;
  EXPECT_THAT(*html, HasSubstr("Never worse than max-min fair sharing in the average completion time: one (worst run: "
                               "2.000 times better). Worse in it: &lt;two&gt; in 1 of 1 runs (worst: 0.500). Worse by "
                               "another figure: &lt;two&gt; by p99 in 1 of 1 runs."));
  EXPECT_THAT(*html, HasSubstr("<td class=worse>1 of 1 (0.500)</td>"));
  EXPECT_THAT(*html, Not(HasSubstr("<two>")));
  EXPECT_FALSE(std::regex_search(*html, std::regex("[\">( -](nan|inf)\\b")));
}

}  // namespace
}  // namespace clustar::bench::coflow
