// Muri's traces: what a job becomes, and what is said of files that cannot be.
#include "bench/coflow/muri.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "bench/coflow/compare.h"

namespace clustar::bench::coflow {
namespace {

using ::testing::HasSubstr;

constexpr const char* kMuriHeader =
    "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,iteration_time,resource_time_0,"
    "resource_time_1,resource_time_2,priority\n";

// id, GPUs, submitted, iterations; of 100 ms, 40 of them network.
std::string muri_row(int id, int gpus, int submitted, int iterations, const std::string& times = "100,30,20,40") {
  return std::to_string(id) + "," + std::to_string(gpus) + "," + std::to_string(submitted) + "," +
         std::to_string(iterations) + ",bert,4,0,0," + times + ",1\n";
}

std::string muri_error(const std::string& text, const MuriOptions& options = {}) {
  const auto mix = parse_muri(text, "t.csv", options, 1e9);
  return mix ? std::string() : mix.error().message;
}

TEST(MuriFormat, AJobComputesAndThenUsesTheNetwork) {
  const std::string text = kMuriHeader + muri_row(7, 4, 5000, 3000) + muri_row(8, 1, 1000, 10, "0.5,0,0,0.5");
  EXPECT_TRUE(is_muri(text));
  EXPECT_FALSE(is_muri("150 526\n1 0 1 0 1 1:1\n"));
  EXPECT_FALSE(is_muri(""));
  const auto mix = parse_muri(text, "t.csv", {.ports = 4, .gpus_per_port = 2, .scale = 100}, 1000);
  ASSERT_TRUE(mix) << mix.error().message;
  EXPECT_EQ(mix->ports, 4u);
  EXPECT_EQ(mix->gpus_per_port, 2u);
  ASSERT_EQ(mix->jobs.size(), 2u);
  const Job& first = mix->jobs[0];
  EXPECT_EQ(first.name, "8 bert") << "by submission";
  EXPECT_EQ(first.iterations, 1u) << "one at least";
  const Job& job = mix->jobs[1];
  EXPECT_EQ(job.begins, TimePoint(std::chrono::milliseconds(50)));
  EXPECT_EQ(job.iterations, 30u);
  EXPECT_EQ(job.gpus, 4u);
  ASSERT_EQ(job.phases.size(), 1u);
  EXPECT_EQ(job.phases[0].compute, std::chrono::milliseconds(60));
  EXPECT_NEAR(job.phases[0].ring_bytes, 40, 1e-9) << "40 ms at 1,000 bytes/s";
  EXPECT_EQ(job.weight, 1);
  EXPECT_NEAR(parse_muri(text, "t.csv", {.intensity = true}, 1000)->jobs[1].weight, 4 * 60 / 40.0, 1e-9);
  EXPECT_EQ(parse_muri(text, "t.csv", {.scale = 100, .jobs = 1}, 1000)->jobs.size(), 1u);
}

TEST(MuriFormat, WhatATerminalWouldObeyIsNotShown) {
  const std::string row = "\x1b[2J7,8,0,10,be\x9brt,4,0,0,100,30,20,40,1\n";
  const auto mix = parse_muri(kMuriHeader + row, "t.csv", {}, 1e9);
  ASSERT_TRUE(mix) << mix.error().message;
  EXPECT_EQ(mix->jobs[0].name, "?[2J7 be?rt");
  EXPECT_THAT(muri_error(kMuriHeader + std::string("1,\x1b[2J,0,10,bert,4,0,0,100,30,20,40,1\n")),
              HasSubstr("num_gpu is '?[2J'"));
}

TEST(MuriFormat, ErrorsNameTheLineAndWhatIsAllowed) {
  const std::string header = kMuriHeader;
  EXPECT_EQ(muri_error(""), "t.csv: empty; expected: job_id,num_gpu,...");
  EXPECT_EQ(muri_error(header), "t.csv: no job behind the header");
  EXPECT_THAT(muri_error("job_id,num_gpu\n"), HasSubstr("t.csv:1: no column submit_time; needed: job_id, num_gpu"));
  EXPECT_THAT(muri_error(header + "1,2\n"), HasSubstr("t.csv:2: 2 fields; the header has 13"));
  EXPECT_EQ(muri_error(header + muri_row(1, 129, 0, 1)),
            "t.csv:2: num_gpu is '129'; allowed: whole numbers from 1 to 128, GPUs of all ports");
  EXPECT_THAT(muri_error(header + muri_row(1, 0, 0, 1)), HasSubstr("num_gpu is '0'"));
  EXPECT_THAT(muri_error(header + muri_row(1, 1, -1, 1)), HasSubstr("t.csv:2: submit_time is '-1'; allowed: 0 to"));
  EXPECT_THAT(muri_error(header + muri_row(1, 1, 0, 0)), HasSubstr("t.csv:2: iterations is '0'"));
  EXPECT_THAT(muri_error(header + muri_row(1, 1, 0, 1, "0,0,0,0")), HasSubstr("t.csv:2: iteration_time is '0'"));
  EXPECT_THAT(muri_error(header + muri_row(1, 1, 0, 1, "nan,0,0,0")), HasSubstr("t.csv:2: iteration_time is 'nan'"));
  EXPECT_EQ(muri_error(header + muri_row(1, 1, 0, 1, "9,0,0,10")),
            "t.csv:2: resource_time_2 is '10'; allowed: 0 to 9, its iteration_time");
  EXPECT_THAT(muri_error(header + muri_row(1, 8, 0, 2000000000), {.scale = 1}),
              HasSubstr("t.csv:2: 2e+09 iterations, 2e+09 coflows and 1.6e+10 flows of all jobs up to here; allowed: "
                        "2e+07, 2e+06 and 2e+07; raise scale, or lower jobs, for less"));
}

TEST(MuriFormat, SizesAreLimitedOverAllJobs) {
  const MuriOptions options{.ports = 2, .scale = 1};
  const std::string most = kMuriHeader + muri_row(1, 1, 0, 19'000'000) + muri_row(2, 2, 0, 999'999);
  EXPECT_EQ(muri_error(most + muri_row(3, 4, 0, 1), options), "") << "the first has one port, and no coflow";
  EXPECT_THAT(muri_error(most + muri_row(3, 1, 0, 2), options), HasSubstr("t.csv:4: 2e+07 iterations"));
  const std::string coflows = kMuriHeader + muri_row(1, 2, 0, 1'500'000);
  EXPECT_THAT(muri_error(coflows + muri_row(2, 2, 0, 500'001), options),
              HasSubstr("t.csv:3: 2e+06 iterations, 2e+06 "));
  EXPECT_EQ(muri_error(coflows + muri_row(2, 2, 0, 500'000), options), "");
}

TEST(MuriFormat, IntensitiesHaveALeastAndAMost) {
  const auto weight_of = [](const std::string& times) {
    const auto mix = parse_muri(kMuriHeader + muri_row(1, 2, 0, 1, times), "t.csv", {.intensity = true}, 1e9);
    EXPECT_TRUE(mix) << mix.error().message;
    return mix ? mix->jobs.at(0).weight : 0;
  };
  EXPECT_EQ(weight_of("100,0,0,100"), kLeastIntensity) << "no compute";
  EXPECT_EQ(weight_of("100,0,0,99.999"), kLeastIntensity) << "next to no compute";
  EXPECT_EQ(weight_of("1e9,0,0,1e-305"), kMostIntensity) << "else infinite";
  EXPECT_NEAR(weight_of("100,0,0,50"), 2, 1e-12);
  EXPECT_EQ(weight_of("100,0,0,0"), 1) << "no coflow has it";
}

TEST(MuriFormat, WhatItMayTakeCountsFromTheLatestSubmission) {
  Source source;
  source.name = "t.csv";
  source.muri_keys = "scale=1";
  CompareOptions options;
  options.policies = {"maxmin"};
  const std::string late = ",1,600000000000,1,bert,4,0,0,100,30,20,40,1\n";
  source.text = kMuriHeader + ("1" + late) + ("2" + late);
  const auto compared = compare(source, options, [](const std::string&, bool) {});
  ASSERT_TRUE(compared) << compared.error().message;
  EXPECT_NEAR(compared->policies.at(0).makespan_s, 6e8 + 0.06, 1);
  source.text += muri_row(3, 1, 0, 5, "1e9,0,0,0") + muri_row(4, 8, 0, 500, "1e9,0,0,0");
  const auto refused = compare(source, options, [](const std::string&, bool) {});
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("it may take 1.1e+09 s of simulated time; allowed: 1e+09"));
}

TEST(MuriFormat, KeysSayWhatIsAllowed) {
  const auto options = parse_muri_options("ports=4,gpus_per_port=2,scale=10,jobs=3,intensity=1");
  ASSERT_TRUE(options) << options.error().message;
  EXPECT_EQ(options->ports, 4u);
  EXPECT_EQ(options->gpus_per_port, 2u);
  EXPECT_EQ(options->scale, 10);
  EXPECT_EQ(options->jobs, 3u);
  EXPECT_TRUE(options->intensity);
  for (const char* bad : {"ports=0", "ports=4097", "intensity=2", "scale=0.5", "jobs=0", "gpus=1", "gpus_per_port"}) {
    const auto parsed = parse_muri_options(bad);
    ASSERT_FALSE(parsed) << bad;
    EXPECT_THAT(parsed.error().message, HasSubstr("allowed: ports (whole, 1 to 4096)")) << bad;
  }
}

TEST(MuriRealFiles, EveryJobRunsUnderFairSharingAndOurs) {
  const char* folder = std::getenv("CLUSTAR_TEST_JOB_TRACES");
  if (folder == nullptr) GTEST_SKIP() << "CLUSTAR_TEST_JOB_TRACES does not name a folder with aicb/ and muri/";
  for (const char* file : {"/muri/trace1.csv", "/muri/trace3.csv"}) {
    Source source;
    source.name = folder + std::string(file);
    source.muri_keys = "scale=20000";
    std::ifstream in(source.name, std::ios::binary);
    ASSERT_TRUE(in) << source.name;
    source.text.assign(std::istreambuf_iterator<char>(in), {});
    CompareOptions options;
    options.policies = {"maxmin", "match"};
    const auto compared = compare(source, options, [](const std::string&, bool) {});
    ASSERT_TRUE(compared) << compared.error().message;
    EXPECT_GT(compared->load.mean, 0.1);
    EXPECT_LT(compared->load.busiest, 1);
    for (const Summary& one : compared->policies) {
      EXPECT_GT(one.jobs.size(), 900u);
      for (const JobSummary& job : one.jobs) {
        EXPECT_GE(job.mean_iteration_s, job.alone_s * (1 - 1e-6)) << one.policy << " " << job.name;
        EXPECT_GE(job.began_s, job.submitted_s) << job.name;
      }
    }
  }
}

}  // namespace
}  // namespace clustar::bench::coflow
