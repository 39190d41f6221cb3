// Jobs of a trace, and queues of them, as mixes on a fabric's hosts; the steps of a queue.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <variant>
#include <vector>

#include "bench/ab/jobs/traffic.h"

namespace clustar::bench::ab::jobs {
namespace {

using testing::HasSubstr;

JobSpec trace_job(const std::string& source) {
  JobSpec job;
  job.name = "t";
  job.hosts = {3, 1};
  Traffic traffic;
  traffic.path = "t.csv";
  traffic.source = source;
  traffic.gbps = 10;
  traffic.iterations = 4;
  if (source == "muri") traffic.id = "12";
  job.work = traffic;
  return job;
}

TEST(Jobs, ATraceIsPlayedBetweenTheJobsHostsInTheFabricsSizes) {
  const std::string muri =
      "job_id,num_gpu,submit_time,iterations,model_name,iteration_time,resource_time_2\n"
      "7,1,0,100,bert,10,4\n12,8,500,3000,gpt2,100,40\n";
  const auto mix = mix_of(trace_job("muri"), 100'000'000, muri);
  ASSERT_TRUE(mix) << mix.error().message;
  ASSERT_EQ(mix->jobs.size(), 1u);
  EXPECT_EQ(mix->ports, 4u);
  EXPECT_EQ(mix->gpus_per_port, 0u);
  EXPECT_EQ(mix->jobs[0].iterations, 4u);
  EXPECT_EQ(mix->jobs[0].begins, TimePoint{});
  const auto& flows = mix->jobs[0].phases.at(0).flows;
  ASSERT_EQ(flows.size(), 2u);
  EXPECT_EQ(flows[0].src, 3u);
  EXPECT_EQ(flows[0].dst, 1u);
  EXPECT_NEAR(flows[0].bytes, 0.040 * 100e6 / 8, 1) << "40 ms of the fabric's line";
  EXPECT_TRUE(mix_of(trace_job("muri"), 100'000'000, muri + "13,8,600,1000000000000,gpt2,100,40\n"))
      << "how long the others are is nothing to it";
  JobSpec other = trace_job("muri");
  std::get<Traffic>(other.work).id = "13";
  EXPECT_THAT(mix_of(other, 100'000'000, muri).error().message, HasSubstr("no line has job_id 13"));
}

JobSpec queue_job() {
  JobSpec job = trace_job("muri");
  job.hosts = {0, 1};
  auto& traffic = std::get<Traffic>(job.work);
  traffic.id.reset();
  traffic.queue = Queue{.jobs = 3, .gpus_per_host = 8, .scale = 100};
  return job;
}

constexpr const char* kQueueTrace =
    "job_id,num_gpu,submit_time,iterations,model_name,iteration_time,resource_time_2\n"
    "7,1,0,100,bert,10,4\n12,8,500,300,gpt2,100,40\n13,8,900,100,vgg16,20,20\n14,64,900,1,vgg16,20,20\n";

TEST(Jobs, AQueueIsTheFirstJobsOfTheTraceAtTheirTimes) {
  const auto mix = mix_of(queue_job(), 100'000'000, kQueueTrace);
  ASSERT_TRUE(mix) << mix.error().message;
  ASSERT_EQ(mix->jobs.size(), 3u) << "the fourth, too large for these hosts, is not asked for";
  EXPECT_EQ(mix->ports, 2u);
  EXPECT_EQ(mix->gpus_per_port, 8u);
  EXPECT_EQ(mix->jobs[1].begins, TimePoint(std::chrono::milliseconds(5)));
  EXPECT_EQ(mix->jobs[1].iterations, 3u);
  EXPECT_NEAR(mix->jobs[1].phases[0].ring_bytes, 0.040 * 100e6 / 8, 1) << "40 ms of the fabric's line";
  JobSpec large = queue_job();
  std::get<Traffic>(large.work).queue->jobs = 4;
  EXPECT_THAT(mix_of(large, 100'000'000, kQueueTrace).error().message, HasSubstr("num_gpu"));
  const std::string endless = kQueueTrace + std::string("15,8,900,1000000000000,vgg16,20,20\n");
  std::get<Traffic>(large.work).queue->jobs = 5;
  large.hosts = {0, 1, 2, 3, 4, 5, 6, 7};
  EXPECT_THAT(mix_of(large, 100'000'000, endless).error().message, HasSubstr("raise scale, or lower queue, for less"));
  std::get<Traffic>(large.work).queue->jobs = 250;
  EXPECT_THAT(mix_of(large, 100'000'000, kQueueTrace).error().message,
              HasSubstr("job 't': queue: t.csv has 4 jobs; allowed: 1 to 4"));
  JobSpec alone = queue_job();
  std::get<Traffic>(alone.work).queue->jobs = 1;
  const auto quiet = mix_of(alone, 100'000'000, kQueueTrace);  // its job has one GPU
  EXPECT_THAT(quiet ? "" : quiet.error().message, HasSubstr("no job"));
}

// Iterations of 100 and 20 ms, three and one of them: the mean is 80 ms. One that took twice as long as alone counts
// with 160, whichever it is.
TEST(Jobs, AQueuesStepsAreItsMeanIterationSlowedAsEachWas) {
  const auto mix = mix_of(queue_job(), 100'000'000, kQueueTrace);
  ASSERT_TRUE(mix) << mix.error().message;
  Steps steps(*mix, 100e6 / 8);
  EXPECT_EQ(steps.total(), 4u) << "not those of the job that never sends";
  std::vector<coflow::JobResult> results(3);
  results[0].iterations_s = {0.010};
  results[1].alone_s = 0.100;
  results[1].iterations_s = {0.200};
  steps.look(results);
  ASSERT_EQ(steps.seconds().size(), 1u);
  EXPECT_NEAR(steps.seconds()[0], 0.160, 1e-6);
  results[2].alone_s = 0.020;
  results[2].iterations_s = {0.040};
  steps.look(results);
  ASSERT_EQ(steps.seconds().size(), 2u);
  EXPECT_NEAR(steps.seconds()[1], 0.160, 1e-6);
}

TEST(Jobs, AQueuesJobThatGotOneHostIsNotFasterThanAlone) {
  const auto mix = mix_of(queue_job(), 100'000'000, kQueueTrace);
  ASSERT_TRUE(mix) << mix.error().message;
  Steps steps(*mix, 100e6 / 8);
  std::vector<coflow::JobResult> results(3);
  results[1].alone_s = 0.060;
  results[1].iterations_s = {0.060};
  results[2].iterations_s = {0};  // it only communicates, and takes no time within a host
  steps.look(results);
  ASSERT_EQ(steps.seconds().size(), 2u);
  EXPECT_NEAR(steps.seconds()[0], 0.080, 1e-6);
  EXPECT_NEAR(steps.seconds()[1], 0.080, 1e-6);
}

// A ring of 4 ranks sends each of its 2 * 3 quarters over each edge; as large as 10 Gbit/s are to the fabric's line.
TEST(Jobs, AnAicbJobSendsWhatItsCollectivesPutOnTheLine) {
  const std::string aicb =
      "[rank0 ~ rank3]\ncomm_type,comm_group,comm_group_size,msg_size,stage,dst,src,additional,count\n"
      "CommType.all_reduce,CommGroup.dp_group,4,4000000,forward,None,None,,1\n"
      "CommType.all_gather,CommGroup.dp_group,4,8000000,forward,None,None,,2\n";
  const std::vector<std::vector<int>> hosts{{3, 1}, {0, 1, 2, 3}};
  for (const std::vector<int>& some : hosts) {
    JobSpec job = trace_job("aicb");
    job.hosts = some;
    const auto mix = mix_of(job, 100'000'000, aicb);
    ASSERT_TRUE(mix) << mix.error().message;
    std::map<std::uint32_t, double> sent;
    for (const coflow::Phase& phase : mix->jobs[0].phases) {
      for (const auto& flow : phase.flows) sent[flow.src] += flow.bytes;
    }
    ASSERT_EQ(sent.size(), some.size());
    for (const auto& [host, bytes] : sent) {
      EXPECT_NEAR(bytes, (4e6 * 2 * 3 / 4 + 2 * 8e6 * 3 / 4) / 100, 1) << some.size() << " hosts, host " << host;
    }
  }
}

TEST(Jobs, RanksOfATraceReachAllHosts) {
  const std::string aicb =
      "[rank0 ~ rank3]\ncomm_type,comm_group,comm_group_size,msg_size,stage,dst,src,additional,count\n"
      "CommType.all_reduce,CommGroup.dp_group,4,4000000,forward,None,None,,1\n";
  JobSpec job = trace_job("aicb");
  const std::vector<std::vector<int>> good{{3, 1}, {0, 1, 2, 3}}, bad{{0, 1, 2}, {0, 1, 2, 3, 4}};
  for (const std::vector<int>& hosts : good) {
    job.hosts = hosts;
    EXPECT_TRUE(mix_of(job, 100'000'000, aicb)) << hosts.size();
  }
  for (const std::vector<int>& hosts : bad) {
    job.hosts = hosts;
    const auto mix = mix_of(job, 100'000'000, aicb);
    ASSERT_FALSE(mix) << hosts.size();
    EXPECT_THAT(mix.error().message, HasSubstr("job 't': hosts: the 4 ranks of t.csv"));
    EXPECT_THAT(mix.error().message, HasSubstr("allowed: 2, 4 hosts"));
  }
}

}  // namespace
}  // namespace clustar::bench::ab::jobs
