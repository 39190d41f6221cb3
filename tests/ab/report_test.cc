// JSON, table and page from made-up runs.
#include "bench/report/report.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <vector>

#include "bench/ab/results.h"
#include "bench/report/plot.h"
#include "bench/report/style.h"

namespace clustar::bench::ab {
namespace {

using nlohmann::json;

Run run(Role role, int round, double images_per_second, double first_loss = 2.0) {
  Run result{.role = role, .round = round, .train = {}, .network = {10, 1000, 1}, .wall_s = 1};
  result.train = {{"images_per_second", images_per_second},
                  {"train_s", 1.0},
                  {"compute_s", 0.4},
                  {"exposed_comm_s", role == Role::kCeiling ? 0.0 : 0.6},
                  {"hidden_comm_s", 0.1},
                  {"steps", 10},
                  {"images", 1000},
                  {"bytes_sent", 5000},
                  {"messages_sent", 50},
                  {"accuracy", 0.9},
                  {"loss", 0.5},
                  {"time_to_target_s", role == Role::kCandidate ? 2.0 : 3.0},
                  {"replicas_identical", role == Role::kCeiling ? json(nullptr) : json(true)},
                  {"parameters_digest", fmt::format("{}", first_loss)},
                  {"per_epoch", {{"loss", {1.0, 0.5}}, {"accuracy", {0.5, 0.9}}, {"train_s", {0.5, 0.5}}}},
                  {"curve", {{"step", {5, 10}}, {"loss", {first_loss, 0.5}}, {"train_s", {0.5, 1.0}}}},
                  {"transport", nullptr},
                  {"config", {{"epochs", 2}, {"seed", 1}, {"rate", 0.1}}},
                  {"shape", "784-10"},
                  {"data_source", "made up"},
                  {"gradient_bytes", 31400},
                  {"gemm", "by hand"}};
  return result;
}

Plan plan(int rounds = 5) {
  Plan result;
  result.baseline = {"one <socket>", {{"CLUSTAR_TCP_SOCKETS", "1"}, {"CLUSTAR_TCP_CONGESTION", "cubic"}}, "/x.so"};
  result.candidate = {"four", {{"CLUSTAR_TCP_SOCKETS", "4"}, {"CLUSTAR_TCP_CONGESTION", "cubic"}}, "/x.so"};
  result.rounds = rounds;
  result.train.model = "lr";
  return result;
}

Outcomes outcomes(int rounds = 5) {
  Outcomes result;
  for (int round = 0; round < rounds; ++round) {
    result.runs.push_back(run(Role::kBaseline, round, 100 + round));
    result.runs.push_back(run(Role::kCeiling, round, 300 + round));
    result.runs.push_back(run(Role::kCandidate, round, 200 + 2 * round));
  }
  result.kernel_congestion_control = "bbr";
  return result;
}

json result_of(const Plan& what, const Outcomes& measured) {
  const auto rates = [&](Role role) { return measured.by_round(role, "images_per_second"); };
  return to_json(what, measured, judge(rates(Role::kBaseline), rates(Role::kCandidate), rates(Role::kCeiling)),
                 std::nullopt);
}

bool warns(const json& result, const std::string& text) {
  for (const json& warning : result["warnings"]) {
    if (warning.get<std::string>().find(text) != std::string::npos) return true;
  }
  return false;
}

TEST(AbResults, HaveTheContractsKeys) {
  Plan what = plan();
  what.train.target_accuracy = 0.8;
  const json result = result_of(what, outcomes());
  EXPECT_EQ(result["model"], "lr");
  EXPECT_EQ(result["baseline"], "one <socket>");
  EXPECT_EQ(result["candidate"], "four");
  EXPECT_DOUBLE_EQ(result["images_per_second_a"], 102);
  EXPECT_DOUBLE_EQ(result["images_per_second_b"], 204);
  EXPECT_DOUBLE_EQ(result["ratio"], 2);
  EXPECT_DOUBLE_EQ(result["ratio_low"], 2);
  EXPECT_DOUBLE_EQ(result["ratio_high"], 2);
  EXPECT_DOUBLE_EQ(result["time_to_accuracy_ratio"], 1.5) << "above 1: the candidate is sooner";
  EXPECT_NEAR(result["ceiling_ratio"].get<double>(), 2.96, 0.05);
  EXPECT_EQ(result["runs"].size(), 15u);
  EXPECT_DOUBLE_EQ(result["arms"][0]["exposed_comm_ms_per_step"], 60);
  EXPECT_EQ(result["arms"][1]["switch_drops_total"], 5);
  EXPECT_TRUE(result["replicas_identical"].get<bool>());
  EXPECT_TRUE(result["warnings"].empty()) << result["warnings"];
}

TEST(AbResults, WithoutATargetThereIsNoTimeToIt) {
  EXPECT_TRUE(result_of(plan(), outcomes())["time_to_accuracy_ratio"].is_null());
}

TEST(AbResults, ATargetThatOneArmMissesIsAWarning) {
  Plan what = plan();
  what.train.target_accuracy = 0.8;
  Outcomes measured = outcomes();
  measured.runs[2].train["time_to_target_s"] = nullptr;
  const json result = result_of(what, measured);
  EXPECT_EQ(result["time_to_accuracy"]["rounds_reached"], 4);
  EXPECT_TRUE(warns(result, "only 4 of 5")) << result["warnings"];
  for (ab::Run& one : measured.runs) one.train["time_to_target_s"] = nullptr;
  EXPECT_TRUE(result_of(what, measured)["time_to_accuracy_ratio"].is_null());
}

TEST(AbResults, ArmsThatTrainedDifferentlyAreFoundOut) {
  Outcomes measured = outcomes();
  const json equal = result_of(plan(), measured);
  EXPECT_TRUE(equal["parameters_equal"].get<bool>());
  EXPECT_EQ(equal["max_loss_difference"], 0.0);
  measured.runs[5] = run(Role::kCandidate, 1, 202, 2.25);
  const json result = result_of(plan(), measured);
  EXPECT_FALSE(result["parameters_equal"].get<bool>());
  EXPECT_DOUBLE_EQ(result["max_loss_difference"], 0.25);
  EXPECT_TRUE(warns(result, "did not train the same")) << result["warnings"];
}

TEST(AbResults, HelpersThatWereLostAreAWarning) {
  Outcomes measured = outcomes();
  for (ab::Run& run : measured.runs) {
    if (run.role == Role::kCandidate) run.train["helpers"] = {{"given", 2}, {"left", 2}};
  }
  EXPECT_FALSE(warns(result_of(plan(), measured), "fewer helpers"));
  for (ab::Run& run : measured.runs) {
    if (run.role == Role::kCandidate && run.round > 2) run.train["helpers"]["left"] = 1;
  }
  EXPECT_TRUE(warns(result_of(plan(), measured), "2 runs ended with fewer helpers than given"));
}

TEST(AbResults, ArmsNameTheirCongestionControl) {
  Plan what = plan();
  what.candidate.settings.erase("CLUSTAR_TCP_CONGESTION");
  const json result = result_of(what, outcomes());
  EXPECT_EQ(result["arms"][0]["congestion_control"], "cubic");
  EXPECT_EQ(result["arms"][1]["congestion_control"], "bbr");
  EXPECT_TRUE(warns(result, "'four' leaves TCP's congestion control to the kernel (bbr)")) << result["warnings"];
}

TEST(AbResults, FewRoundsAreAWarning) { EXPECT_TRUE(warns(result_of(plan(3), outcomes(3)), "3 of at least 5 rounds")); }

TEST(AbTable, SaysWhatCountsInWords) {
  const std::string text = table(result_of(plan(), outcomes()));
  for (const char* part : {"one <socket>", "congestion control: cubic", "images/s", "2.000  (2.000 to 2.000)",
                           "ceiling", "exposed comm", "The candidate is faster"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  }
}

TEST(AbHtml, IsOnePageThatNeedsNothingElse) {
  const std::string page = html(report::envelope("ab", json::array({result_of(plan(), outcomes())})));
  EXPECT_TRUE(page.starts_with("<!DOCTYPE html>"));
  EXPECT_EQ(page.find("http"), std::string::npos);
  EXPECT_FALSE(std::regex_search(page, std::regex("(src|href)=|@import|url\\(|<script")));
  EXPECT_NE(page.find("prefers-color-scheme: dark"), std::string::npos);
  EXPECT_NE(page.find("one &lt;socket&gt;"), std::string::npos);
  EXPECT_EQ(page.find("one <socket>"), std::string::npos) << "names must be escaped";
  std::size_t svgs = 0;
  for (std::size_t at = 0; (at = page.find("<svg ", at)) != std::string::npos; ++at) ++svgs;
  EXPECT_EQ(svgs, 6u);
  EXPECT_EQ(page.find("nan"), std::string::npos);
  EXPECT_EQ(page.find("inf\""), std::string::npos);
  // The one setting that differs is marked, the equal one is not.
  EXPECT_NE(page.find("<tr class=differs><td>CLUSTAR_TCP_SOCKETS</td><td>1</td><td>4</td>"), std::string::npos);
  EXPECT_NE(page.find("<tr><td>CLUSTAR_TCP_CONGESTION</td>"), std::string::npos);
}

json document_with_command(const Plan& what, const Outcomes& measured) {
  json document = report::envelope("ab", json::array({result_of(what, measured)}));
  document["machine"]["tcp_congestion_control"] = "bbr";
  document["command_line"] = "clustar ab --hosts 4 --candidate 'A=<1>'";
  return document;
}

TEST(AbHtml, SaysHowItWasMadeInPeoplesWords) {
  const std::string page = html(document_with_command(plan(), outcomes()));
  EXPECT_NE(page.find("<pre class=command>clustar ab --hosts 4 --candidate &#39;A=&lt;1&gt;&#39;</pre>"),
            std::string::npos);
  EXPECT_NE(page.find("<td>learning rate</td><td>0.1</td>"), std::string::npos);
  EXPECT_EQ(page.find("<td>rate</td>"), std::string::npos);
  // Both arms run cubic, so the kernel's default must not look like theirs.
  EXPECT_NE(page.find("default TCP congestion control</td><td>bbr (neither arm uses it)</td>"), std::string::npos);
  Plan kernels = plan();
  kernels.candidate.settings.erase("CLUSTAR_TCP_CONGESTION");
  EXPECT_NE(html(document_with_command(kernels, outcomes())).find("default TCP congestion control</td><td>bbr</td>"),
            std::string::npos);
}

TEST(AbHtml, SharesTheLookOfAllPages) {
  const std::string page = html(document_with_command(plan(), outcomes()));
  EXPECT_NE(page.find(report::page_style()), std::string::npos);
}

// The text of the plot of that title.
std::string plot_of(const std::string& page, const std::string& title) {
  const std::size_t at = page.find("aria-label=\"" + title);
  return at == std::string::npos ? "" : page.substr(at, page.find("</svg>", at) - at);
}

bool has_tick(const std::string& plot, const std::string& tick) {
  return plot.find("text-anchor=\"end\" class=\"label\">" + tick + "</text>") != std::string::npos;
}

// A ceiling far above presses the curves together: it is named and not drawn.
TEST(AbHtml, TheCeilingDoesNotFlattenTheArms) {
  const std::string far = plot_of(html(document_with_command(plan(), outcomes())), "Images/s by round");
  EXPECT_NE(far.find("without communication: 302, above this plot"), std::string::npos) << far;
  EXPECT_EQ(far.find(">no communication<"), std::string::npos) << far;
  EXPECT_FALSE(has_tick(far, "0")) << far;
  Outcomes near = outcomes();
  for (ab::Run& one : near.runs) {
    if (one.role == Role::kCeiling) one.train["images_per_second"] = 215;
  }
  const std::string plot = plot_of(html(document_with_command(plan(), near)), "Images/s by round");
  EXPECT_NE(plot.find(">no communication<"), std::string::npos) << plot;
  EXPECT_EQ(plot.find("above this plot"), std::string::npos) << plot;
}

TEST(AbHtml, LossesAreDrawnWhereTheyAre) {
  Outcomes measured = outcomes();
  for (ab::Run& one : measured.runs) one.train["curve"]["loss"] = {2.4, 2.2};
  const std::string page = html(document_with_command(plan(), measured));
  for (const char* title : {"Training loss by step", "Training loss over time"}) {
    const std::string plot = plot_of(page, title);
    EXPECT_TRUE(has_tick(plot, "2.2")) << plot;
    EXPECT_FALSE(has_tick(plot, "0")) << plot;
  }
}

TEST(AbHtml, TheLastStepsAreLanesOfWhatHappened) {
  Outcomes measured = outcomes();
  EXPECT_EQ(html(document_with_command(plan(), measured)).find("A computes"), std::string::npos);
  for (ab::Run& one : measured.runs) {
    one.train["timeline"] = {{{"begin_s", 0.0},
                              {"backward_s", 0.010},
                              {"backward_end_s", 0.020},
                              {"end_s", 0.045},
                              {"buckets_s", {{0.012, 0.030}, {0.018, 0.045}}}}};
  }
  const std::string plot = plot_of(html(document_with_command(plan(), measured)), "The last steps of a typical run");
  for (const char* shown : {">A computes<", ">A sends<", ">B sends<", "backward: 10 to 20",
                            "waits for buckets: 20 to 45", "bucket 1: 12 to 30", "bucket 2: 18 to 45"}) {
    EXPECT_NE(plot.find(shown), std::string::npos) << shown << "\n" << plot;
  }
}

TEST(AbResults, RoundsThatWereNotDoneAreSaid) {
  Outcomes measured = outcomes(5);
  measured.ended_by = "round 6 of 8, baseline: interrupted by signal 2 (Interrupt)";
  Plan what = plan(8);
  what.train.target_accuracy = 0.8;
  const json result = result_of(what, measured);
  EXPECT_EQ(result["rounds"], 5);
  EXPECT_EQ(result["planned_rounds"], 8);
  EXPECT_EQ(result["ended_by"], measured.ended_by);
  EXPECT_EQ(result["time_to_accuracy"]["rounds_reached"], 5);
  EXPECT_TRUE(warns(result, "5 of 8 rounds were done; then: round 6 of 8, baseline: interrupted"))
      << result["warnings"];
  EXPECT_FALSE(warns(result, "reached the target")) << result["warnings"];
  EXPECT_TRUE(result_of(plan(), outcomes())["ended_by"].is_null());
}

// As in a file that was cut and mended by hand.
TEST(AbHtml, ARoundThatLacksARunHasNoRatio) {
  json document = document_with_command(plan(), outcomes());
  for (json& run : document["results"][0]["runs"]) {
    if (run["arm"] == "baseline" && run["round"] == 2) run["arm"] = "<script>";
  }
  const std::string page = html(document);
  EXPECT_EQ(page.find("<script>"), std::string::npos);
  const auto points = [](const std::string& plot) {
    std::size_t count = 0;
    for (std::size_t at = 0; (at = plot.find("<circle", at)) != std::string::npos; ++at) ++count;
    return count;
  };
  EXPECT_EQ(points(plot_of(page, "Ratio of images/s by round")), 4u);
}

TEST(AbPlot, TicksAreRoundAndCoverTheRange) {
  for (const auto& [low, high] : std::vector<std::pair<double, double>>{{0, 1}, {0, 1234}, {0.95, 1.07}, {-3, 8}}) {
    const std::vector<double> values = report::ticks(low, high, 5);
    EXPECT_LE(values.front(), low + 1e-9);
    EXPECT_GE(values.back(), high - 1e-9);
    EXPECT_GE(values.size(), 4u);
    EXPECT_LE(values.size(), 9u);
  }
}

TEST(AbPlot, EmptyAndConstantDataMakeAPlotToo) {
  report::LineChart chart;
  chart.title = "nothing";
  chart.series = {{"none", "a", {}}, {"flat", "b", {{1, 5}, {1, 5}}}};
  chart.from_zero = false;
  const std::string svg = report::line_chart(chart);
  EXPECT_EQ(svg.find("nan"), std::string::npos) << svg;
  EXPECT_EQ(svg.find("inf"), std::string::npos) << svg;
  EXPECT_NE(report::bar_chart("empty", "ms", {}).find("</svg>"), std::string::npos);
}

TEST(AbPlot, WhatIsInfiniteIsLeftOut) {
  const double far = std::numeric_limits<double>::infinity();
  report::LineChart chart;
  chart.series = {{"one", "a", {{1, far}, {2, 5}, {far, 6}, {3, -far}, {4, std::nan("")}}}};
  for (const bool whole : {false, true}) {
    chart.whole_numbers = whole;
    const std::string svg = report::line_chart(chart);
    EXPECT_NE(svg.find("<path d=\"M"), std::string::npos) << svg;
    EXPECT_EQ(svg.find("inf"), std::string::npos) << svg;
    EXPECT_EQ(svg.find("nan"), std::string::npos) << svg;
  }
}

// Their legend takes as many rows as it needs, and the plot begins below it.
TEST(AbPlot, ManySeriesDoNotCoverTheirLegend) {
  report::LineChart chart;
  for (int i = 0; i < report::kSeriesColours; ++i) {
    chart.series.push_back({.name = fmt::format("a name of thirty characters {}", i), .css_class = "s0"});
    chart.series.back().points = {{0.12, 0}, {0.19, 1}};
  }
  chart.log_x = true;
  const std::string svg = report::line_chart(chart);
  const auto last_of = [&](const std::string& pattern) {
    const std::regex expression(pattern);
    double last = 0;
    for (std::sregex_iterator it(svg.begin(), svg.end(), expression), end; it != end; ++it) last = std::stod((*it)[1]);
    return last;
  };
  const double legend = last_of("<path d=\"M[0-9.]+ ([0-9.]+)h");
  const double top = last_of("<line [^>]*y1=\"([0-9.]+)\"[^>]*class=\"grid\"");  // of y's last tick
  EXPECT_GT(legend, 80);
  EXPECT_GT(top, legend + 5);
  EXPECT_NE(svg.find(">0.14</text>"), std::string::npos) << "less than a power of 10 has ticks, too: " << svg;
}

TEST(AbPlot, NamedPlacesAndSpreads) {
  report::LineChart chart;
  chart.x_names = {"first", "<second>"};
  chart.series = {{.name = "one", .css_class = "s1", .points = {{0, 1}, {1.1, 2}}, .spread = {{0.5, 1.5}, {1, 4}}}};
  const std::string svg = report::line_chart(chart);
  EXPECT_NE(svg.find(">&lt;second&gt;</text>"), std::string::npos) << svg;
  EXPECT_NE(svg.find(">4</text>"), std::string::npos) << "a spread belongs to what is shown";
  EXPECT_EQ(svg.find(">0.5</text>"), std::string::npos) << "numbers where there are names";
}

}  // namespace
}  // namespace clustar::bench::ab
