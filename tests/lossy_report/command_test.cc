// `clustar report` as a user runs it.
#include "tests/trainer/command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/lossy_report/fixture.h"

namespace clustar::bench::lossy_report {
namespace {

using testing::HasSubstr;
using trainer::run_clustar;

class ReportCommand : public testing::Test {
 protected:
  void SetUp() override { folder_.write("lossy.json", made_up_document().dump()); }
  std::string page() const {
    std::ifstream in(folder_.file("page.html"));
    return {std::istreambuf_iterator<char>(in), {}};
  }
  trainer::TemporaryDirectory folder_;
};

TEST_F(ReportCommand, WritesThePage) {
  const auto outcome = run_clustar({"report", folder_.file("lossy.json"), "-o", folder_.file("page.html")});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr(folder_.file("page.html")));
  EXPECT_TRUE(page().starts_with("<!DOCTYPE html>"));
  EXPECT_THAT(page(), HasSubstr("Micro-bursts of 60 to 90 % loss (made up)"));
}

TEST_F(ReportCommand, WithoutGnuplotOnPathWarnsAndWritesTables) {
  const std::string path = getenv("PATH");
  setenv("PATH", folder_.path().c_str(), 1);
  const auto outcome = run_clustar({"report", folder_.file("lossy.json"), "-o", "-"});
  setenv("PATH", path.c_str(), 1);
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.err, HasSubstr("there is no 'gnuplot' here; install the package gnuplot-nox"));
  EXPECT_THAT(outcome.out, HasSubstr("<table"));
}

TEST_F(ReportCommand, NamesWhatItCanDraw) {
  folder_.write("other.json", R"({"command":"train","results":{}})");
  folder_.write("no.json", "{");
  auto outcome = run_clustar({"report", folder_.file("other.json"), "-o", folder_.file("page.html")});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("the JSON of clustar ab, of clustar perf --suite lossy, and of clustar coflow"));
  outcome = run_clustar({"report", folder_.file("no.json"), "-o", folder_.file("page.html")});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("is no JSON"));
  outcome = run_clustar({"report", folder_.file("none.json"), "-o", folder_.file("page.html")});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("cannot read"));
  EXPECT_EQ(run_clustar({"report", folder_.file("lossy.json")}).status, 2);
  EXPECT_EQ(run_clustar({"report", folder_.file("lossy.json"), "-o", folder_.file("no/page.html")}).status, 2);
  EXPECT_EQ(page(), "");
}

}  // namespace
}  // namespace clustar::bench::lossy_report
