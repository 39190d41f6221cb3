// What all pages share: head, foot and look.
#include "bench/report/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "bench/report/report.h"
#include "bench/report/style.h"

namespace clustar::bench::report {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// The part of the style sheet in the braces behind `query`.
std::string rules_of(const std::string& query) {
  const std::string style = page_style();
  const std::size_t at = style.find(query);
  if (at == std::string::npos) return {};
  std::size_t end = style.find('{', at);
  for (int depth = 0; end < style.size(); ++end) {
    depth += style[end] == '{' ? 1 : style[end] == '}' ? -1 : 0;
    if (depth == 0) break;
  }
  return style.substr(at, end - at);
}

TEST(PageStyle, FollowsTheSchemeOnScreensAndIsLightOnPaper) {
  const std::string style = page_style();
  EXPECT_THAT(style, HasSubstr("@media screen and (prefers-color-scheme: dark)"));
  EXPECT_THAT(style, Not(HasSubstr("@media (prefers-color-scheme"))) << "that would be dark paper";
  // Each colour has one of either scheme.
  const std::string dark = rules_of("@media screen and (prefers-color-scheme: dark)");
  const std::string light = style.substr(0, style.find("@media"));
  int colours = 0;
  for (std::size_t at = light.find("--"); at != std::string::npos; at = light.find("--", at + 2)) {
    const std::string name = light.substr(at, light.find(':', at) + 1 - at);
    EXPECT_THAT(dark, HasSubstr(name));
    ++colours;
  }
  EXPECT_GE(colours, 10 + kSeriesColours);
}

TEST(PageStyle, NarrowWindowsAndPaper) {
  EXPECT_THAT(rules_of("@media (max-width: 500px)"), HasSubstr("body"));
  EXPECT_THAT(rules_of("@media print"), AllOf(HasSubstr("overflow: visible"), HasSubstr("break-inside: avoid")));
  // What is wider than the window scrolls in itself.
  EXPECT_THAT(page_style(),
              AllOf(HasSubstr(".scroll { overflow-x: auto"), HasSubstr("overflow-x: auto; }\nfigure svg")));
}

TEST(Page, HasTitleCommandAndMachine) {
  nlohmann::json document = envelope("x", nlohmann::json::array());
  document["command_line"] = "clustar x --name '<y>'";
  const std::string page = page_head("a <title>") + page_title(document, "A <heading>", "a <b>lead</b>") +
                           page_end(document, {{"place", "here & there"}});
  EXPECT_THAT(page, AllOf(HasSubstr("<title>a &lt;title&gt;</title>"), HasSubstr("<h1>A &lt;heading&gt;</h1>"),
                          HasSubstr("<p>a <b>lead</b></p>"),
                          HasSubstr("<pre class=command>clustar x --name &#39;&lt;y&gt;&#39;</pre>"),
                          HasSubstr("<td>place</td><td>here &amp; there</td>"), HasSubstr("<td>CPU cores</td>")));
  EXPECT_TRUE(page.ends_with("</body></html>\n"));
  EXPECT_THAT(page_title(nlohmann::json::object(), "h", ""), Not(HasSubstr("<pre"))) << "no command is known";
  EXPECT_THAT(page_end(nlohmann::json("of another form")), HasSubstr("</html>"));
}

TEST(CommandLine, WordsAreQuotedForAShell) {
  EXPECT_EQ(shell_word("A=1,B=/x/y.so"), "A=1,B=/x/y.so");
  EXPECT_EQ(shell_word("two words"), "'two words'");
  EXPECT_EQ(shell_word("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_word("$(x)"), "'$(x)'");
  EXPECT_EQ(shell_word(""), "''");
}

}  // namespace
}  // namespace clustar::bench::report
