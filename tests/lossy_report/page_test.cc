// The page from documents that are whole, have holes, or mean harm; and what becomes of gnuplot's failures.
#include "bench/lossy/report/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/report/style.h"
#include "tests/lossy_report/fixture.h"
#include "tests/trainer/command.h"

namespace clustar::bench::lossy_report {
namespace {

using nlohmann::json;
using testing::Each;
using testing::HasSubstr;
using testing::Not;
using trainer::TemporaryDirectory;

const GnuplotOptions kNoGnuplot{.program = "no-such-gnuplot"};

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++found;
  return found;
}

bool have_gnuplot() { return run_gnuplot("", {}).has_value(); }

// "" or the first tag that does not fit: of the plots, which are XML within HTML.
std::string misfit(const std::string& html) {
  for (std::size_t begin = 0; (begin = html.find("<svg class=\"plot\"", begin)) != std::string::npos;) {
    const std::size_t end = html.find("</svg>", begin) + 6;
    std::vector<std::string> open;
    for (std::size_t at = begin; (at = html.find('<', at)) < end;) {
      const std::size_t close = html.find('>', at);
      const std::string tag = html.substr(at, close - at + 1);
      at = close;
      const std::string name = tag.substr(1, tag.find_first_of(" />", 2) - 1);
      if (count(tag, "\"") % 2 != 0 || count(tag, "'") % 2 != 0) return tag;
      if (tag[1] == '/') {
        if (open.empty() || "/" + open.back() != "/" + tag.substr(2, tag.size() - 3)) return tag;
        open.pop_back();
      } else if (tag[tag.size() - 2] != '/') {
        open.push_back(name);
      }
    }
    if (!open.empty()) return open.back() + " is not closed";
    begin = end;
  }
  return "";
}

TEST(Page, OfAWholeDocumentHasEverything) {
  if (!have_gnuplot()) GTEST_SKIP() << "gnuplot is missing; scripts/setup installs it (package gnuplot-nox)";
  const Page page = make_page(made_up_document());
  EXPECT_THAT(page.html, HasSubstr(report::page_style())) << "the look of all pages";
  EXPECT_THAT(page.problems, testing::IsEmpty());
  EXPECT_EQ(page.plots, kPlotsInIt);
  EXPECT_EQ(count(page.html, "<svg class=\"plot\""), static_cast<std::size_t>(kPlotsInIt));
  EXPECT_EQ(misfit(page.html), "");
  EXPECT_THAT(page.html, HasSubstr("6 of 24 bars met, 6 missed, 6 not measured, 6 void."));
  EXPECT_THAT(page.html, HasSubstr("clustar perf --suite lossy --scenario micro-bursts --arms "));
  EXPECT_THAT(page.html, HasSubstr("made up: the kernel has no MPTCP"));
  EXPECT_THAT(page.html, HasSubstr("0.12 of 2 cores"));
}

// A transport that may leave bytes out is no rival of those that deliver all.
TEST(Page, TheBestIsAmongTheReliable) {
  const auto page = make_page(json::parse(R"({"results":{"scenarios":[{"name":"s","ideal_ms":10,"arms":[
    {"name":"mlt-p1","p99_ms":10,"eligible_bytes":1000,"missing_bytes":5},
    {"name":"mlt-p0","p99_ms":12,"eligible_bytes":0,"missing_bytes":0,"indicative":true},
    {"name":"tcp","p99_ms":13,"eligible_bytes":0,"missing_bytes":0}]}]}})"));
  EXPECT_THAT(page.html, HasSubstr("<td class=best>1.20</td>"));
  EXPECT_EQ(count(page.html, "class=best"), 1U);
  EXPECT_THAT(page.html, HasSubstr("percentiles are indicative"));
}

TEST(Page, SaysThatItEndedEarlyAndWhatIsVoid) {
  json document = made_up_document();
  document["results"]["ended_by"] = "interrupted";
  document["results"]["unfinished"] = {"incast", "cpu"};
  const Page page = make_page(document, kNoGnuplot);
  EXPECT_THAT(page.html, HasSubstr("Ended early: interrupted; not measured: incast, cpu."));
  EXPECT_THAT(page.html, HasSubstr("<span class=badge>void</span><span class=reason>indicative</span>"));
  EXPECT_THAT(page.html, HasSubstr("<span class=reason>2 packets were dropped behind the switch program"));
}

TEST(Page, RefersToNothingOutside) {
  const Page page = make_page(made_up_document());
  for (const char* outside : {"http:", "https:", "src=", "<script", "<link", "@import", "url("}) {
    EXPECT_THAT(page.html, Not(HasSubstr(outside)));
  }
}

TEST(Page, ColoursOfPlotsFollowTheScheme) {
  if (!have_gnuplot()) GTEST_SKIP() << "gnuplot is missing; scripts/setup installs it (package gnuplot-nox)";
  const Page page = make_page(made_up_document());
  EXPECT_THAT(page.html, Not(HasSubstr("rgb(")));
  EXPECT_THAT(page.html, Not(HasSubstr("\"black\"")));
  EXPECT_THAT(page.html, HasSubstr("stroke='var(--s0)'"));
}

TEST(Page, WithoutGnuplotHasItsTablesAndTheFix) {
  const Page page = make_page(made_up_document(), kNoGnuplot);
  EXPECT_EQ(page.plots, 0);
  ASSERT_EQ(page.problems.size(), 1U) << "asked for once";
  EXPECT_THAT(page.html, HasSubstr("install the package gnuplot-nox"));
  EXPECT_THAT(page.html, HasSubstr("clustar report FILE.json -o FILE.html"));
  EXPECT_EQ(count(page.html, "<table class=arms>"), 6U);
}

// Every key of every object, one at a time: gone, null, and of another type.
void break_each(json& document, json& place, const std::function<void()>& look) {
  for (auto& item : place.items()) {
    const json kept = item.value();
    for (const json& broken :
         {json(), json("<b>"), json(-1.5), json::array({json::array({nullptr})}), json::object()}) {
      item.value() = broken;
      look();
    }
    item.value() = kept;
    // One arm and one bar stand for all.
    if (item.value().is_object()) break_each(document, item.value(), look);
    if (item.value().is_array() && !item.value().empty() && item.value()[0].is_object()) {
      break_each(document, item.value()[0], look);
    }
  }
}

TEST(Page, AnyKeyMayBeMissing) {
  json document = made_up_document();
  json& scenarios = document["results"]["scenarios"];
  scenarios = json::array({scenarios[4]});  // has jobs
  int pages = 0;
  break_each(document, document, [&] {
    const Page page = make_page(document, kNoGnuplot);
    ++pages;
    EXPECT_TRUE(page.html.ends_with("</html>\n"));
    EXPECT_THAT(page.html, Not(HasSubstr("<b>")));
  });
  EXPECT_GT(pages, 200);
}

TEST(Page, HolesAreDashes) {
  for (const char* text :
       {"null", "[]", "{}", R"({"results":{"scenarios":[null, 3, {}, {"arms":[{}], "bars":[{}]}]}})"}) {
    const Page page = make_page(json::parse(text));
    EXPECT_EQ(page.plots, 0);
    EXPECT_THAT(page.problems, testing::IsEmpty());
  }
  const Page page = make_page(json::parse(R"({"results":{"scenarios":[{"arms":[{"name":"x"}], "bars":[{}]}]}})"));
  EXPECT_THAT(page.html, HasSubstr("<td>-</td>"));
  EXPECT_THAT(page.html, HasSubstr("not measured"));
}

TEST(Page, OddFiguresHarmNoPlot) {
  if (!have_gnuplot()) GTEST_SKIP() << "gnuplot is missing; scripts/setup installs it (package gnuplot-nox)";
  json document = made_up_document();
  json& scenarios = document["results"]["scenarios"];
  scenarios = json::array({scenarios[0]});
  json& arms = scenarios[0]["arms"];
  arms[0]["cdf"] = {{0, 0.5}, {0, 1}};
  arms[1]["cdf"] = {{-5, 0.5}, {"x", 1}, {3}, 7, {1e12, 2}};
  arms[2]["p99_ms"] = 1e300;
  arms[3]["goodput_gbps"] = 0;
  arms[4]["rounds"] = -7;
  scenarios[0]["ideal_ms"] = 0;
  const Page page = make_page(document);
  EXPECT_THAT(page.problems, testing::IsEmpty());
  EXPECT_EQ(page.plots, 5);
  EXPECT_EQ(misfit(page.html), "");
}

TEST(Page, HostileTextIsOnlyText) {
  const std::string evil =
      "<script>alert(1)</script>\"'`touch harm`$(x) @m \\ \n' ; system 'touch harm' # L001L %d {/:}";
  json document = made_up_document();
  json& scenarios = document["results"]["scenarios"];
  scenarios = json::array({scenarios[4]});
  for (const char* key : {"name", "title", "question", "delay_mode", "skipped"}) scenarios[0][key] = evil;
  for (json& arm : scenarios[0]["arms"]) {
    for (const char* key : {"name", "label", "transport", "failure"}) arm[key] = evil;
    for (json& job : arm["jobs"]) job["name"] = evil;
  }
  scenarios[0]["bars"][0]["text"] = evil;
  scenarios[0]["fabric"]["rules"] = {evil};
  document["command_line"] = evil;
  document["machine"] = {{evil, evil}};
  const Page page = make_page(document);
  EXPECT_THAT(page.html, Not(HasSubstr("<script")));
  EXPECT_THAT(page.html, HasSubstr("&lt;script&gt;"));
  EXPECT_EQ(misfit(page.html), "");
  struct stat none {};
  EXPECT_NE(stat("harm", &none), 0) << "a label ran as a command";
  EXPECT_TRUE(page.problems.empty() || !have_gnuplot());
}

TEST(Page, ACommandToRepeatIsOneWordPerName) {
  const auto document = json::parse(R"({"results":{"scenarios":[{"name":"a; rm b'c"}]}})");
  EXPECT_THAT(make_page(document).html, HasSubstr("--scenario &#39;a; rm b&#39;\\&#39;&#39;c&#39; --json"));
}

constexpr std::chrono::milliseconds kSoon(300);

class FakeGnuplot : public testing::Test {
 protected:
  // Runs `body` instead of gnuplot.
  GnuplotOptions fake(const std::string& body, std::chrono::milliseconds limit = std::chrono::seconds(20)) {
    folder_.write("gnuplot", "#!/bin/sh\n" + body + "\n");
    chmod(folder_.file("gnuplot").c_str(), 0700);
    return {.program = folder_.file("gnuplot"), .limit = limit, .max_output = 100000};
  }
  TemporaryDirectory folder_;
};

TEST_F(FakeGnuplot, ThatFailsIsNamedWithWhatItSaid) {
  const auto drawn = run_gnuplot("plot", fake("echo 'no <such> terminal' >&2; exit 3"));
  ASSERT_FALSE(drawn);
  EXPECT_THAT(drawn.error().message, HasSubstr("exit status 3): no <such> terminal"));
  EXPECT_THAT(make_page(made_up_document(), fake("echo 'no <such> terminal' >&2; exit 3")).html,
              HasSubstr("no &lt;such&gt; terminal"));
}

TEST_F(FakeGnuplot, ThatHangsIsEndedAndNotTriedAgain) {
  const Page page = make_page(made_up_document(), fake("exec sleep 60", kSoon));
  ASSERT_EQ(page.problems.size(), 1U);
  EXPECT_THAT(page.problems[0], HasSubstr("longer than 300 ms"));
  // Also one that closes its streams first.
  const auto drawn = run_gnuplot("plot", fake("exec >&- 2>&- ; exec sleep 60", kSoon));
  ASSERT_FALSE(drawn);
  EXPECT_THAT(drawn.error().message, HasSubstr("longer than 300 ms"));
}

TEST_F(FakeGnuplot, ThatWritesWithoutEndIsEnded) {
  const auto drawn = run_gnuplot("plot", fake("exec yes"));
  ASSERT_FALSE(drawn);
  EXPECT_THAT(drawn.error().message, HasSubstr("more than 100000 bytes"));
}

TEST_F(FakeGnuplot, ThatReadsNothingHarmsNobody) {
  EXPECT_EQ(run_gnuplot(std::string(1'000'000, 'x'), fake("exec <&-; exit 0")).value_or("failed"), "");
}

TEST_F(FakeGnuplot, ThatDrawsSomethingElseIsNamed) {
  EXPECT_THAT(make_page(made_up_document(), fake("cat >/dev/null; echo hello")).problems,
              Each(HasSubstr("gnuplot wrote no SVG")));
}

}  // namespace
}  // namespace clustar::bench::lossy_report
