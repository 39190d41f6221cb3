// Labels of plots.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/report/plot.h"

namespace clustar::bench::report {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string repeated(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

TEST(PlotLabels, AreCutBetweenCharacters) {
  const std::string euro = "\xe2\x82\xac";
  const auto bars = [](const std::string& label) { return bar_chart("t", "s", {{label, {{"part", "a", 1}}}}); };
  EXPECT_THAT(bars(repeated(euro, 20)), HasSubstr(">" + repeated(euro, 20) + "<")) << "20 characters, 60 bytes";
  EXPECT_THAT(bars(repeated(euro, 21)), HasSubstr(">" + repeated(euro, 18) + "..<"));
  EXPECT_THAT(bars("ab" + repeated(euro, 30)), HasSubstr(">ab" + repeated(euro, 16) + "..<"));
  EXPECT_THAT(bars("aaaaaaaaaabbbbbbbbbbc"), HasSubstr(">aaaaaaaaaabbbbbbbb..<"));
  LineChart chart{.series = {{.name = repeated("\xc3\xa9", 40), .css_class = "a", .points = {{0, 1}, {1, 2}}}}};
  EXPECT_THAT(line_chart(chart), HasSubstr(">" + repeated("\xc3\xa9", 28) + "..<"));
}

TEST(PlotLevels, UprightOnesBelongToWhatIsShown) {
  LineChart chart{.series = {{.name = "one", .css_class = "a", .points = {{10, 0.5}, {100, 1}}}},
                  .x_level = 1,
                  .level_label = "here",
                  .log_x = true};
  const std::string svg = line_chart(chart);
  EXPECT_THAT(svg, HasSubstr(">here<"));
  EXPECT_THAT(svg, HasSubstr(">1</text>"));
  EXPECT_THAT(svg, HasSubstr("<line x1=\"64.0\""));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
}

TEST(IntervalChart, RingsAreASecondValueAndManyRowsAreLower) {
  const IntervalRow row{"policy", "s1", 1.5, 1.25, 1.5, 1.25};
  const std::string svg = interval_chart("t", "times", {row}, 1);
  EXPECT_THAT(svg, HasSubstr("class=\"ring line-s1\"><title>policy: 1.25</title>"));
  EXPECT_THAT(interval_chart("t", "times", {{"policy", "s1", 1.5, 1.25, 1.5}}, 1), Not(HasSubstr("ring")));
  const std::vector<IntervalRow> few(6, row), many(12, row);
  EXPECT_THAT(interval_chart("t", "times", few, 1), HasSubstr("viewBox=\"0 0 640 366\""));
  EXPECT_THAT(interval_chart("t", "times", many, 1), HasSubstr("viewBox=\"0 0 640 390\""));
}

}  // namespace
}  // namespace clustar::bench::report
