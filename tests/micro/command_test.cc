// clustar-micro and its table as a user runs them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/run_command.h"
#include "tests/temp_path.h"

namespace clustar::bench::micro {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

using tests::Outcome;

const std::string kMicro = CLUSTAR_MICRO;
const std::string kTable = std::string(CLUSTAR_SOURCE) + "/scripts/micro-table --binary " + kMicro;

TEST(Micro, EveryBenchmarkRunsAndTheTableNamesIt) {
  const auto folder = std::filesystem::path(tests::temp_path("micro"));
  const Outcome outcome =
      tests::run_command(kTable + " --repetitions 2 --min-time 0.0001 --out " + (folder / "sub" / "micro").string());
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_THAT(outcome.text, Not(HasSubstr("failed")));
  std::ifstream file(folder / "sub" / "micro.json");
  const auto document = nlohmann::json::parse(file);
  for (const std::string part : {"handle/parse", "chunk_header/serialize", "send_queue/", "mlt/wire/", "mlt/endpoint/",
                                 "send_matcher/", "recv_matcher/", "plugin/test_idle_request",
                                 "plugin/message_one_thread", "limit/memcpy", "limit/internet_checksum"}) {
    EXPECT_THAT(document.dump(), HasSubstr(part));
    EXPECT_THAT(outcome.text, HasSubstr("| " + part));
  }
  for (const auto& benchmark : document["benchmarks"])
    EXPECT_FALSE(benchmark.value("error_occurred", false)) << benchmark;
  std::filesystem::remove_all(folder);
}

TEST(Micro, WrongUseSaysWhatIsAllowed) {
  EXPECT_EQ(tests::run_command(kMicro + " --help").status, 0);
  const Outcome unknown = tests::run_command(kMicro + " --benchmark_no_such_thing");
  EXPECT_EQ(unknown.status, 2);
  EXPECT_THAT(unknown.text, HasSubstr("unknown option"));
  const Outcome absent = tests::run_command(kMicro + " --plugin /nowhere/plugin.so");
  EXPECT_EQ(absent.status, 2);
  EXPECT_THAT(absent.text, HasSubstr("/nowhere/plugin.so"));
  EXPECT_EQ(tests::run_command(kMicro + " --plugin").status, 2);
  EXPECT_EQ(tests::run_command(kMicro + " --benchmark_filter=nothing_like_it").status, 2);
  EXPECT_EQ(tests::run_command(kTable + " --repetitions 0").status, 2);
}

TEST(Micro, AFileThatIsNoPluginFailsItsBenchmarksOnly) {
  const Outcome outcome = tests::run_command(kMicro + " --plugin " + kMicro +
                                             " --benchmark_min_time=0.0001 --benchmark_filter='plugin/|hello'");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.text, HasSubstr("cannot open net plugin"));
  EXPECT_THAT(outcome.text, HasSubstr("hello/parse"));
}

}  // namespace
}  // namespace clustar::bench::micro
