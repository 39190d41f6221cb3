// clustar-dpdk-perf as a user runs it: figures of both loops, their ratio, and what is refused. How fast it is, is
// asserted nowhere.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/run_command.h"
#include "tests/temp_path.h"

namespace clustar {
namespace {

const std::string kCommand = CLUSTAR_DPDK_PERF;

TEST(DpdkPerf, MeasuresBothLoopsAndTheirRatio) {
  const std::string json = tests::temp_path("dpdk_perf", ".json");
  const auto done = tests::run_command(kCommand + " --rounds 5 --seconds 0.05 --json " + json);
  if (done.text.find("DPDK cannot begin") != std::string::npos) GTEST_SKIP() << done.text;
  ASSERT_EQ(done.status, 0) << done.text;
  EXPECT_NE(done.text.find("mlt / bare, goodput"), std::string::npos) << done.text;
  const auto document = nlohmann::json::parse(std::ifstream(json));
  std::filesystem::remove(json);
  EXPECT_EQ(document.at("command"), "dpdk-perf");
  const auto& results = document.at("results");
  EXPECT_EQ(results.at("wire"), "memif");
  for (const char* loop : {"bare", "mlt"}) {
    const auto& figures = results.at(loop);
    for (const char* figure : {"packets_per_second", "goodput_gbit_s"}) {
      EXPECT_GT(figures.at(figure).at("min"), 0.0) << loop << " " << figure;
      EXPECT_LE(figures.at(figure).at("median"), figures.at(figure).at("max")) << loop << " " << figure;
    }
    // A frame has at most 1,472 bytes behind UDP's header, and MLT's most of them are full.
    const double bytes = figures.at("goodput_gbit_s").at("max").get<double>() * 1e9 / 8 /
                         figures.at("packets_per_second").at("max").get<double>();
    EXPECT_GT(bytes, 700) << loop;
    EXPECT_LT(bytes, 1600) << loop;
  }
  for (const char* ratio : {"goodput_ratio", "packets_ratio"}) {
    EXPECT_LE(results.at(ratio).at("low"), results.at(ratio).at("ratio")) << ratio;
    EXPECT_GE(results.at(ratio).at("high"), results.at(ratio).at("ratio")) << ratio;
  }
}

TEST(DpdkPerf, WhatIsWrongIsSaid) {
  for (const char* arguments : {"--wire wireless", "--rounds 4", "--rounds", "--seconds 0", "--nonsense 1",
                                "--seconds 1x", "--json /no/such/folder/x.json"}) {
    const auto done = tests::run_command(kCommand + " " + arguments);
    EXPECT_EQ(done.status, 2) << arguments << ": " << done.text;
    EXPECT_NE(done.text.find("clustar-dpdk-perf: "), std::string::npos) << done.text;
  }
  EXPECT_EQ(tests::run_command(kCommand + " --help").status, 0);
  EXPECT_EQ(tests::run_command(kCommand + " --version").status, 0);
}

}  // namespace
}  // namespace clustar
