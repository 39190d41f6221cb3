// `clustar coflow play` as a user runs it, on a small fabric.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/left_hosts.h"
#include "tests/run_command.h"
#include "tests/temp_path.h"

namespace clustar::bench::coflow {
namespace {

using ::testing::HasSubstr;
using tests::Outcome;

Outcome play(const std::string& arguments, const std::string& before = "") {
  return tests::run_command(before + std::string(CLUSTAR) + " coflow play " + arguments);
}

bool can_make_hosts() { return tests::run_command("unshare --net true").status == 0; }

constexpr const char* kSmall = "--generate ports=3,coflows=8,load=0.9 --gbps 50 --rate 50M --no-progress ";

TEST(CoflowPlay, EveryArmDeliversEveryCoflow) {
  if (!can_make_hosts()) GTEST_SKIP() << "network namespaces need root";
  const std::string file = tests::temp_path("play", ".json");
  for (const char* transport : {"tcp", "mlt"}) {
    const Outcome outcome =
        play(std::string(kSmall) + "--arms fair,fifo,coflow,unknown --rounds 2 --env CLUSTAR_TRANSPORT=" + transport +
             " --json " + file);
    ASSERT_EQ(outcome.status, 0) << outcome.text;
    EXPECT_THAT(outcome.text, HasSubstr("reached"));
    std::ifstream stream(file);
    const auto document = nlohmann::json::parse(stream);
    EXPECT_EQ(document["command"], "coflow play");
    ASSERT_EQ(document["results"].size(), 4U);
    for (const auto& row : document["results"]) {
      ASSERT_EQ(row["rounds"].size(), 2U);
      for (const auto& round : row["rounds"]) {
        EXPECT_EQ(round["coflows"], document["results"][0]["simulated"]["coflows"]);
        // Nothing is faster than its line, but for what the shaper lets through at once: short ones.
        EXPECT_GT(round["mean_slowdown"].get<double>(), 0.5);
      }
    }
  }
  std::filesystem::remove(file);
  EXPECT_EQ(tests::left_hosts("play"), "");
}

TEST(CoflowPlay, LongerPacketsCarryMoreOfTheLine) {
  const Outcome refused = play(std::string(kSmall) + "--mtu 100");
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.text, HasSubstr("1280"));
  if (!can_make_hosts()) GTEST_SKIP() << "network namespaces need root";
  const std::string file = tests::temp_path("play_mtu", ".json");
  const Outcome outcome =
      play(std::string(kSmall) + "--mtu 9000 --arms coflow --env CLUSTAR_TRANSPORT=tcp --json " + file);
  ASSERT_EQ(outcome.status, 0) << outcome.text;
  std::ifstream stream(file);
  const auto workload = nlohmann::json::parse(stream)["workload"];
  EXPECT_EQ(workload["mtu"], 9000);
  EXPECT_NEAR(workload["payload_mbps"].get<double>(), 50 * 8948.0 / 9014, 1e-6);
  std::filesystem::remove(file);
}

TEST(CoflowPlay, CtrlCEndsItWhileItSimulates) {
  if (!can_make_hosts()) GTEST_SKIP() << "network namespaces need root";
  const std::string job = tests::temp_path("job", ".csv");
  std::ofstream(job)
      << "[rank0 ~ rank3]\n"
      << "comm_type,comm_group,comm_group_size,msg_size,stage,dst,src,additional,_elapsed_time,algbw,busbw,count\n"
      << "CommType.all_reduce,CommGroup.dp_group,4,1000000,backward,None,None,,None,None,None,1\n";
  // Many seconds of simulation, and then an error: a round would take hours.
  const Outcome outcome =
      play("--gbps 1 --rate 20M --arms coflow --no-progress --job " + job + ":ranks_per_port=2,iterations=1000000",
           "timeout -k 10 -s INT 3 ");
  EXPECT_THAT(outcome.text, HasSubstr("interrupted"));
  EXPECT_EQ(outcome.status, 124) << "the signal ended it";
  std::filesystem::remove(job);
  EXPECT_EQ(tests::left_hosts("play"), "");
}

TEST(CoflowPlay, JobsGoOnWhenTheirCoflowsHaveArrived) {
  if (!can_make_hosts()) GTEST_SKIP() << "network namespaces need root";
  const std::string job = tests::temp_path("job", ".csv"), file = tests::temp_path("play", ".json");
  std::ofstream(job)
      << "[rank0 ~ rank3]\n"
      << "comm_type,comm_group,comm_group_size,msg_size,stage,dst,src,additional,_elapsed_time,algbw,busbw,count\n"
      << "CommType.all_reduce,CommGroup.dp_group,4,1000000,backward,None,None,,None,None,None,1\n";
  const std::string what = " --job " + job + ":ranks_per_port=2,iterations=4";
  const Outcome outcome =
      play("--no-progress --gbps 1 --rate 50M --arms fair,coflow,by-size --env CLUSTAR_TRANSPORT=tcp --json " + file +
           what + what);
  std::filesystem::remove(job);
  ASSERT_EQ(outcome.status, 0) << outcome.text;
  std::ifstream stream(file);
  const auto document = nlohmann::json::parse(stream);
  std::filesystem::remove(file);
  for (const auto& row : document["results"]) {
    ASSERT_EQ(row["rounds"][0]["jobs"].size(), 2U);
    for (const auto& one : row["rounds"][0]["jobs"]) {
      EXPECT_EQ(one["iterations"], 4);
      EXPECT_GT(one["mean_iteration_s"].get<double>(), 0.95 * one["alone_s"].get<double>());
    }
  }
}

// Two jobs of 8 GPUs fill both hosts, the third waits for the first to end; the fourth has one host and never sends.
constexpr const char* kQueue =
    "job_id,num_gpu,submit_time,iterations,model_name,iteration_time,resource_time_2\n"
    "1,8,0,10000,bert,40,20\n2,8,0,20000,gpt2,40,20\n3,8,100000,8000,vgg16,40,20\n4,1,100000,4000,dqn,40,0\n";

TEST(CoflowPlay, AQueueOfJobsWaitsForGpusAndRuns) {
  if (!can_make_hosts()) GTEST_SKIP() << "network namespaces need root";
  const std::string trace = tests::temp_path("muri", ".csv"), file = tests::temp_path("play", ".json");
  std::ofstream(trace) << kQueue;
  const Outcome outcome = play(trace +
                               " --muri ports=2,gpus_per_port=8,scale=1000 --no-progress --gbps 10 --rate 50M --arms "
                               "fair,coflow,by-size --env CLUSTAR_TRANSPORT=tcp --json " +
                               file);
  std::filesystem::remove(trace);
  ASSERT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("1/1000 of the trace's, sizes 1/200; hosts of 8 GPUs"));
  std::ifstream stream(file);
  const auto document = nlohmann::json::parse(stream);
  std::filesystem::remove(file);
  for (const auto& row : document["results"]) {
    const auto& jobs = row["rounds"][0]["jobs"];
    ASSERT_EQ(jobs.size(), 4U);
    const double iterations[] = {10, 20, 8, 4};
    for (std::size_t job = 0; job < 4; ++job) EXPECT_EQ(jobs[job]["iterations"], iterations[job]);
    EXPECT_NEAR(jobs[2]["submitted_s"].get<double>(), 0.1, 1e-9);
    EXPECT_GE(jobs[2]["began_s"].get<double>(), jobs[0]["ended_s"].get<double>()) << "its GPUs";
    EXPECT_GT(jobs[0]["mean_iteration_s"].get<double>(), 0.95 * jobs[0]["alone_s"].get<double>());
    EXPECT_GT(row["completion_gain"]["simulated"].get<double>(), 0);
  }
  EXPECT_EQ(tests::left_hosts("play"), "");
}

TEST(CoflowPlay, CtrlCEndsItAndLeavesNothing) {
  if (!can_make_hosts()) GTEST_SKIP() << "network namespaces need root";
  const Outcome outcome = play("--generate ports=3,coflows=50,load=0.9 --arms fair --no-progress",
                               "timeout --preserve-status -s INT -k 30 3 ");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.text, HasSubstr("interrupted"));
  EXPECT_EQ(tests::left_hosts("play"), "");
}

TEST(CoflowPlay, NothingOfItsOrderStaysInSharedMemory) {
  if (!can_make_hosts()) GTEST_SKIP() << "network namespaces need root";
  const Outcome outcome =
      play(std::string(kSmall) + "--arms coflow --env CLUSTAR_TRANSPORT=tcp",
           "unshare --mount sh -c 'mount -t tmpfs none /dev/shm && \"$@\" && ls /dev/shm | sed s/^/left:/' x ");
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_EQ(outcome.text.find("left:"), std::string::npos) << outcome.text;
}

TEST(CoflowPlay, WrongUsageSaysWhatIsAllowed) {
  const std::string small = kSmall;
  for (const auto& [arguments, said] : {
           std::pair<std::string, std::string>{small + "--arms fare", "allowed: fair"},
           {"--generate ports=3,coflows=8 --rate off", "allowed: 1M or more"},
           {small + "--rounds 0", "--rounds"},
           {small + "--env CLUSTAR_SEND_PACE=500", "allowed"},
           {small + "--env CLUSTAR_SEND_ORDER=fifo", "the arms' own"},
           {small + "--arms fair,coflow-dscp --env CLUSTAR_TRANSPORT=mlt", "allowed: with --env CLUSTAR_TRANSPORT=tcp"},
           {small + "--arms fair,by-size", "is for jobs"},
           {small + "--env CLUSTAR_TRANSPRT=mlt", "CLUSTAR_TRANSPORT"},
           {"--generate ports=100,coflows=3", "allowed: 2 to 64"},
           {small + "--muri ports=2", "--muri is for a trace of Muri"},
           {"", "name a trace"},
           {"/no/such/file", "cannot read"},
       }) {
    const Outcome outcome = play(arguments);
    EXPECT_EQ(outcome.status, 2) << arguments << "\n" << outcome.text;
    EXPECT_THAT(outcome.text, HasSubstr(said)) << arguments;
  }
}

}  // namespace
}  // namespace clustar::bench::coflow
