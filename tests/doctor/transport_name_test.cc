// Commands that drive a plugin say which transport it took, and with NCCL_DEBUG=INFO show its banner as NCCL does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/run_command.h"
#include "tests/temp_path.h"

namespace clustar::tests {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

class TransportName : public ::testing::Test {
 protected:
  ~TransportName() override { std::filesystem::remove(file_); }
  Outcome run(const std::string& variables, const std::string& command) const {
    return run_command("env -i PATH=/usr/bin:/bin CLUSTAR_SOCKET_IFNAME=lo " + variables + " " + CLUSTAR_EXECUTABLE +
                       " " + command + " --json " + file_);
  }
  Outcome train(const std::string& variables) const {
    return run(variables, "train --ranks 2 --model lr --examples 200 --epochs 1 --batch 16 --no-progress");
  }
  json results() const {
    std::ifstream in(file_);
    return json::parse(in);
  }

  const std::string file_ = temp_path("transport_name", ".json");
};

TEST_F(TransportName, OfATraining) {
  const Outcome automatic = train("");
  ASSERT_EQ(automatic.status, 0) << automatic.text;
  EXPECT_THAT(automatic.text, HasSubstr("clustar over tcp (net plugin v12, device lo"));
  EXPECT_EQ(results()["results"]["transport"]["transport"], "tcp");
  const Outcome asked = train("CLUSTAR_TRANSPORT=mlt");
  EXPECT_THAT(asked.text, HasSubstr("clustar over mlt"));
  EXPECT_EQ(results()["results"]["transport"]["transport"], "mlt");
}

TEST_F(TransportName, TheBannerComesWhenNcclWouldShowIt) {
  EXPECT_THAT(train("NCCL_DEBUG=INFO").text, HasSubstr(" NCCL INFO NET/clustar: clustar "));
  for (const char* quiet : {"", "NCCL_DEBUG=WARN", "NCCL_DEBUG=VERSION"}) {
    EXPECT_THAT(train(quiet).text, Not(HasSubstr("NET/clustar: clustar "))) << quiet;
  }
  EXPECT_THAT(train("NCCL_DEBUG=WARN CLUSTAR_TRANSPORT=mlt CLUSTAR_INJECT_FAULTS=loss=0.001").text,
              HasSubstr(" NCCL WARN NET/clustar: "));
}

TEST_F(TransportName, OfAMeasurement) {
  const Outcome outcome = run("CLUSTAR_TRANSPORT=mlt", std::string("perf --plugin ") + CLUSTAR_PLUGIN +
                                                           " --test bandwidth --bytes 64K --seconds 0.01 --rounds 5");
  ASSERT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("A  clustar over mlt v12"));
  EXPECT_EQ(results()["arms"]["a"]["plugin"]["transport"], "mlt");
}

TEST_F(TransportName, OfBothArms) {
  const Outcome outcome = run("",
                              "ab --local --ranks 2 --rounds 2 --examples 200 --epochs 1 --batch 16 --model lr "
                              "--candidate CLUSTAR_TRANSPORT=mlt");
  ASSERT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr(", over tcp; congestion control: cubic"));
  EXPECT_THAT(outcome.text, HasSubstr(", over mlt; congestion control: "));
  EXPECT_EQ(results()["results"][0]["arms"][1]["transport"]["transport"], "mlt");
}

}  // namespace
}  // namespace clustar::tests
