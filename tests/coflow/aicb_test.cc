// AICB's workloads: what each collective sends between ports, by hand, and what is said of files that cannot be.
#include "bench/coflow/aicb.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <numeric>

#include "bench/coflow/compare.h"

namespace clustar::bench::coflow {
namespace {

using ::testing::HasSubstr;
using Flows = std::vector<std::tuple<int, int, double>>;

constexpr const char* kAicbHeader = "comm_type,comm_group,comm_group_size,msg_size,stage,dst,src,additional,count\n";

std::string aicb(int ranks, const std::string& rows) {
  return "[rank0 ~ rank" + std::to_string(ranks - 1) + "]\n" + kAicbHeader + rows;
}
std::string row(const std::string& type, const std::string& group, int size, int bytes, const std::string& src = "None",
                int count = 1) {
  return "CommType." + type + ",CommGroup." + group + "," + std::to_string(size) + "," + std::to_string(bytes) +
         ",forward,None," + src + ",," + std::to_string(count) + "\n";
}

Job job_of(const std::string& text, std::size_t ranks_per_port, AicbOptions options = {}) {
  const auto iteration = parse_aicb(text, "t.csv");
  EXPECT_TRUE(iteration) << iteration.error().message;
  options.layout.ranks_per_port = ranks_per_port;
  if (!options.compute_ms) options.compute_ms = 1;
  const auto job = iteration ? aicb_job(*iteration, "t", options, 1000) : Result<Job>(Job{});
  EXPECT_TRUE(job) << job.error().message;
  return job ? *job : Job{};
}
Flows flows_in(const Phase& phase) {
  Flows flows;
  for (const auto& flow : phase.flows) flows.emplace_back(flow.src, flow.dst, flow.bytes);
  return flows;
}
double sum_of(const Phase& phase) {
  return std::accumulate(phase.flows.begin(), phase.flows.end(), 0.0,
                         [](double sum, const auto& flow) { return sum + flow.bytes; });
}
std::string aicb_error(const std::string& text) {
  const auto iteration = parse_aicb(text, "t.csv");
  return iteration ? std::string() : iteration.error().message;
}

TEST(AicbExpansion, RingsAreTwiceOrOnceTheOthersParts) {
  const std::pair<const char*, double> cases[] = {{"all_reduce", 150}, {"all_gather", 75}, {"reduce_scatter", 75}};
  for (const auto& [type, edge] : cases) {
    const Phase phase = job_of(aicb(4, row(type, "dp_group", 4, 100)), 1).phases.at(0);
    EXPECT_EQ(flows_in(phase), (Flows{{0, 1, edge}, {1, 2, edge}, {2, 3, edge}, {3, 0, edge}})) << type;
    EXPECT_EQ(sum_of(phase), 4 * edge);
    // Two ranks on a port: the edges within it vanish.
    EXPECT_EQ(flows_in(job_of(aicb(4, row(type, "all", 4, 100)), 2).phases.at(0)), (Flows{{0, 1, edge}, {1, 0, edge}}));
    EXPECT_TRUE(job_of(aicb(4, row(type, "all", 4, 100)), 4).phases.at(0).flows.empty()) << "all on one port";
  }
}

TEST(AicbExpansion, TensorParallelRanksAreNeighboursAndOthersAStrideApart) {
  const Job job = job_of(aicb(8, row("all_gather", "tp_group", 2, 10) + row("all_reduce", "dp_group", 4, 100) +
                                     row("all_reduce", "ep_group", 2, 100)),
                         2);
  EXPECT_TRUE(job.phases[0].flows.empty());
  // {0 2 4 6} and {1 3 5 7}: two rings over ports 0 to 3.
  EXPECT_EQ(flows_in(job.phases[1]), (Flows{{0, 1, 300}, {1, 2, 300}, {2, 3, 300}, {3, 0, 300}}));
  // {0 2} {1 3} {4 6} {5 7}
  EXPECT_EQ(flows_in(job.phases[2]), (Flows{{0, 1, 200}, {1, 0, 200}, {2, 3, 200}, {3, 2, 200}}));
}

TEST(AicbExpansion, BroadcastsAreChainsFromTheirRoot) {
  EXPECT_EQ(flows_in(job_of(aicb(3, row("broadcast", "dp_group", 3, 10)), 1).phases.at(0)),
            (Flows{{0, 1, 10}, {1, 2, 10}}));
  EXPECT_EQ(flows_in(job_of(aicb(3, row("broadcast", "dp_group", 3, 10, "2")), 1).phases.at(0)),
            (Flows{{0, 1, 10}, {2, 0, 10}}));
}

TEST(AicbExpansion, AllToAllSendsAPartToEachOther) {
  const Phase phase = job_of(aicb(4, row("all_to_all", "all", 4, 100)), 1).phases.at(0);
  EXPECT_EQ(phase.flows.size(), 12u);
  EXPECT_EQ(sum_of(phase), 12 * 25);
  EXPECT_EQ(flows_in(job_of(aicb(4, row("all_to_all", "all", 4, 100)), 2).phases.at(0)),
            (Flows{{0, 1, 100}, {1, 0, 100}}));
}

TEST(AicbExpansion, PortsBeginWhereTheyAreToldTo) {
  AicbOptions options;
  options.layout.first_port = 5;
  const Job job = job_of(aicb(3, row("all_gather", "all", 3, 30)), 2, options);
  EXPECT_EQ(flows_in(job.phases.at(0)), (Flows{{5, 6, 20}, {6, 5, 20}})) << "the last port has one rank";
}

TEST(AicbFormat, TheFirstSegmentWithOperationsIsTheIteration) {
  const std::string init = "CommType.broadcast,CommGroup.pp_group,4,10,init.model,None,0,,1\n";
  const std::string end = "CommType.epoch_end,None,None,0,,None,None,,1\n";
  const std::string barrier = "CommType.barrier,CommGroup.all,4,0,step,None,None,,1\n";
  const auto iteration = parse_aicb(aicb(4, init + end + barrier + row("all_reduce", "all", 4, 0) + "\r\n" +
                                                row("all_gather", "all", 4, 7, "None", 3) + end +
                                                "CommType.isend,CommGroup.pp_group,2,1,forward,1,0,,1\n"),
                                    "t.csv");
  ASSERT_TRUE(iteration) << iteration.error().message;
  EXPECT_EQ(iteration->world, 4u);
  ASSERT_EQ(iteration->operations.size(), 2u);
  EXPECT_EQ(iteration->operations[1].count, 3u);
  EXPECT_EQ(iteration->operations[1].bytes, 7);
}

TEST(AicbFormat, ColumnsAreFoundByName) {
  const auto iteration = parse_aicb(
      "[rank0 ~ rank1]\nstage,msg_size,comm_group_size,comm_group,comm_type\nstep,64,2,dp_group,all_reduce\n", "t.csv");
  ASSERT_TRUE(iteration) << iteration.error().message;
  EXPECT_EQ(iteration->operations.at(0).bytes, 64);
}

TEST(AicbFormat, ErrorsNameTheLineAndWhatIsSupported) {
  const std::pair<std::string, const char*> cases[] = {
      {"", "t.csv: empty; expected: [rank0 ~ rank127]"},
      {"[ pp_stage0: rank0 ~ rank3 ]\n", "t.csv:1: '[ pp_stage0: rank0 ~ rank3 ]' where the ranks were expected; supp"},
      {"[rank0 ~ rank0]\n", "supported: [rank0 ~ rank127], 2 to 65536 ranks, one stage of pipeline"},
      {"[rank0 ~ rank65536]\n", "2 to 65536 ranks"},
      {"[rank0 ~ rank99999999999999999999]\n", "2 to 65536 ranks"},
      {"[rank0 ~ rank3\n", "where the ranks were expected"},
      {"[rank0 ~ rank3]\n", "t.csv:1: the file ends where the header was expected"},
      {"[rank0 ~ rank3]\ncomm_type,comm_group\n", "t.csv:2: no column comm_group_size; needed: comm_type, comm_group"},
      {"[rank0 ~ rank3]\ncomm_type,comm_type\n", "t.csv:2: the column 'comm_type' is there twice"},
      {aicb(4, ""), "t.csv: no iteration; expected: operations of other stages than init*"},
      {aicb(4, "a,b\n"), "t.csv:3: 2 fields; the header has 9"},
      {aicb(4, row("isend", "pp_group", 2, 1)),
       "t.csv:3: the operation 'CommType.isend'; supported: all_reduce, all_ga"},
      {aicb(4, row("all_reduce", "pp_group", 2, 1)),
       "t.csv:3: the group 'CommGroup.pp_group'; supported: tp_group, dp"},
      {aicb(4, row("all_reduce", "dp_group", 5, 1)),
       "t.csv:3: comm_group_size is '5'; allowed: whole numbers from 1 to 4"},
      {aicb(4, row("all_reduce", "dp_group", 0, 1)), "comm_group_size is '0'"},
      {aicb(4, row("all_reduce", "dp_group", 3, 1)),
       "t.csv:3: dp_group of 3 ranks; allowed: sizes that divide 4 ranks"},
      {aicb(4, row("all_reduce", "all", 2, 1)), "t.csv:3: all of 2 ranks; allowed: all 4"},
      {aicb(4, row("all_reduce", "tp_group", 2, 1) + row("all_reduce", "dp_group", 4, 1)),
       "t.csv:4: dp_group of 4 ranks, 2 apart; allowed: sizes that divide 4 ranks by 2"},
      {aicb(4, row("all_reduce", "tp_group", 2, 1) + row("all_reduce", "tp_group", 4, 1)),
       "t.csv:4: tp_group of 4 ranks, of 2 in line 3; supported: one size"},
      {aicb(4, row("all_reduce", "dp_group", 4, -1)), "t.csv:3: msg_size is '-1'; allowed: whole numbers from 0 to"},
      {aicb(4, row("all_reduce", "dp_group", 4, 1, "None", 0)),
       "t.csv:3: count is '0'; allowed: whole numbers from 1 to"},
      {aicb(4, row("broadcast", "dp_group", 4, 1, "4")), "t.csv:3: src is '4'; allowed: whole numbers from 0 to 3"},
      {aicb(4, row("all_reduce", "all", 4, 1, "None", 1000000) + row("all_reduce", "all", 4, 1)),
       "t.csv:4: more than 1000000 operations in an iteration"},
      {aicb(4, "\"a,b\",c,4,1,forward,None,None,1\n"), "t.csv:3: the operation '\"a'"},
  };
  for (const auto& [text, says] : cases) EXPECT_THAT(aicb_error(text), HasSubstr(says)) << text;
}

TEST(AicbJob, ComputesAsLongAsItIsToldTo) {
  const std::string text = aicb(2, row("all_gather", "all", 2, 100) + row("all_gather", "all", 2, 300, "None", 2));
  const auto iteration = parse_aicb(text, "t.csv").value();
  AicbOptions options;
  options.layout.ranks_per_port = 1;
  options.duty = 0.25;
  const Job job = aicb_job(iteration, "t", options, 1000).value();
  ASSERT_EQ(job.phases.size(), 3u);
  const Alone once = alone(job.phases, {}, 1000);
  EXPECT_NEAR(once.communication_s, 0.35, 1e-9);
  EXPECT_NEAR(once.compute_s, 3 * 0.35, 1e-9);
  for (const Phase& phase : job.phases) EXPECT_NEAR(std::chrono::duration<double>(phase.compute).count(), 0.35, 1e-8);
  options.compute_ms = 10;
  options.share = 2;
  options.tflop = 70;
  options.begins_ms = 5;
  const Job other = aicb_job(iteration, "t", options, 1000).value();
  EXPECT_EQ(alone(other.phases, {}, 1000).compute_s, 0.01) << "though it cannot be divided by three";
  EXPECT_NEAR(other.weight, 2 * 70 / 0.35, 1e-9);
  EXPECT_EQ(other.begins, TimePoint(std::chrono::milliseconds(5)));
}

TEST(AicbJob, ErrorsSayWhatIsAllowed) {
  const auto says = [](const std::string& text, const std::string& keys) {
    const auto options = parse_aicb_options(keys);
    if (!options) return options.error().message;
    const auto job = aicb_job(parse_aicb(text, "t.csv").value(), "t.csv", *options, 1e9);
    return job ? std::string() : job.error().message;
  };
  const std::string small = aicb(4, row("all_reduce", "all", 4, 100));
  EXPECT_EQ(says(small, "ranks_per_port=1,compute_ms=0"), "");
  EXPECT_THAT(says(small, "ranks_per_port=5"), HasSubstr("t.csv: ranks_per_port=5; allowed: 1 to 4, its ranks"));
  EXPECT_THAT(says(small, "ranks_per_port=0"),
              HasSubstr("'ranks_per_port=0' cannot be; allowed: ranks_per_port (whole"));
  EXPECT_THAT(says(small, "ranks_per_port=1,first_port=4093"), HasSubstr("ports 4093 to 4096; allowed: below 4096"));
  EXPECT_THAT(says(small, "ranks_per_port=4"), HasSubstr("it sends nothing from port to port; allowed: fewer, or"));
  EXPECT_THAT(says(small, "ranks_per_port=4,compute_ms=5,tflop=1"), HasSubstr("no tflop"));
  EXPECT_EQ(says(small, "ranks_per_port=4,compute_ms=5"), "");
  EXPECT_THAT(says(small, "duty=0.5,compute_ms=5"), HasSubstr("allowed: one of them"));
  EXPECT_THAT(says(small, "duty=0.5,duty=0.5"), HasSubstr("duty is there twice"));
  for (const char* bad : {"duty=0", "duty=1.1", "duty=nan", "iterations=1.5", "iterations", "=1", "x=1", "share=-1"}) {
    EXPECT_THAT(says(small, bad), HasSubstr(" cannot be; allowed: ")) << bad;
  }
  EXPECT_THAT(says(aicb(65536, row("all_to_all", "all", 65536, 1, "None", 2)), "ranks_per_port=16"),
              HasSubstr("t.csv: up to 3.4e+07 flows in an iteration; allowed: 2e+07; more ranks_per_port have fewer"));
  EXPECT_THAT(says(aicb(2, row("all_reduce", "all", 2, 0, "None", 1000000)), "ranks_per_port=2,iterations=1000000"),
              HasSubstr("t.csv: 1e+12 operations in 1000000 iterations; allowed: 2e+07; fewer iterations have fewer"));
}

TEST(AicbJob, IterationsHaveALongest) {
  const std::string text = aicb(2, row("all_reduce", "all", 2, 1'000'000'000));
  auto iteration = parse_aicb(text, "t.csv").value();
  iteration.operations[0].bytes = 1e15;
  iteration.operations.push_back(iteration.operations[0]);
  const auto says = [&](double bytes_per_s, double duty) {
    AicbOptions options;
    options.layout.ranks_per_port = 1;
    options.duty = duty;
    const auto job = aicb_job(iteration, "t.csv", options, bytes_per_s);
    return job ? std::string() : job.error().message;
  };
  EXPECT_EQ(says(125e6, 0.001),
            "t.csv: an iteration of 1.6e+10 s alone, 1.6e+07 of them communication; allowed: 1e+09; less compute_ms, "
            "more duty or more --gbps make it shorter");
  EXPECT_EQ(says(125e6, 0.02), "");
  EXPECT_THAT(says(125e3, 1), HasSubstr("an iteration of 1.6e+10 s alone")) << "communication only";
}

// A chain takes a step for each rank, even where two ports have them all.
TEST(AicbJob, OperationsHaveAMostKinds) {
  std::string rows;
  for (int root = 0; root < 1000; ++root) rows += row("broadcast", "all", 65536, 1, std::to_string(root));
  const auto iteration = parse_aicb(aicb(65536, rows), "t.csv").value();
  AicbOptions options;
  options.layout.ranks_per_port = 32768;
  const auto job = aicb_job(iteration, "t.csv", options, 1e9);
  ASSERT_FALSE(job);
  EXPECT_EQ(job.error().message,
            "t.csv: 1000 kinds of operations (by collective, group and src) of 65536 ranks; allowed: 305");
}

TEST(AicbJob, SizesAreLimitedOverAllJobs) {
  const auto says = [](const std::string& text, const std::vector<std::string>& jobs) {
    Source source;
    for (const std::string& keys : jobs) source.jobs.push_back({"t.csv", text, keys});
    CompareOptions options;
    options.policies = {"maxmin"};
    const auto compared = compare(source, options, [](const std::string&, bool) {});
    return compared ? std::string() : compared.error().message;
  };
  const std::string many = aicb(2, row("all_reduce", "all", 2, 1, "None", 20));
  const std::string half = "ranks_per_port=1,iterations=60000";
  EXPECT_THAT(says(many, {half, half}),
              HasSubstr("--job t.csv: 1.2e+05 iterations, 2.4e+06 coflows and 4.8e+06 flows of all jobs up to here; "
                        "allowed: 2e+07, 2e+06 and 2e+07; fewer iterations, jobs or"));
  const std::string wide = aicb(4096, row("all_reduce", "all", 4096, 1));
  EXPECT_THAT(says(wide, {"ranks_per_port=1,iterations=3000", "ranks_per_port=1,iterations=3000"}),
              HasSubstr("6e+03 iterations, 6e+03 coflows and 2.5e+07 flows of all jobs"));
}

// Against closed forms: each port sends as much as one of its ranks that has its neighbour on another port.
TEST(AicbRealFiles, PortsSendWhatRingsSend) {
  const char* folder = std::getenv("CLUSTAR_TEST_JOB_TRACES");
  if (folder == nullptr) GTEST_SKIP() << "CLUSTAR_TEST_JOB_TRACES does not name a folder with aicb/ and muri/";
  for (const char* file : {"L7B-D1-C01_Llama7B_zero2_mbs1.csv", "L7B-D1-C02_Llama7B_zero3_mbs1.csv"}) {
    std::ifstream in(std::string(folder) + "/aicb/" + file, std::ios::binary);
    ASSERT_TRUE(in) << file;
    const std::string text(std::istreambuf_iterator<char>(in), {});
    const auto iteration = parse_aicb(text, file);
    ASSERT_TRUE(iteration) << iteration.error().message;
    EXPECT_EQ(iteration->world, 128u);
    double expected = 0;
    for (const AicbOperation& one : iteration->operations) {
      ASSERT_NE(one.collective, Collective::kBroadcast);
      expected += (one.collective == Collective::kAllReduce ? 2 : 1) * 127.0 / 128 * one.bytes;
    }
    const Job job = aicb_job(*iteration, file, {}, 1e9).value();
    std::vector<double> out(16, 0), in_bytes(16, 0);
    for (const Phase& phase : job.phases) {
      for (const auto& flow : phase.flows) {
        out.at(flow.src) += flow.bytes;
        in_bytes.at(flow.dst) += flow.bytes;
      }
    }
    for (std::size_t port = 0; port < 16; ++port) {
      EXPECT_NEAR(out[port] / expected, 1, 1e-9) << file;
      EXPECT_NEAR(in_bytes[port] / expected, 1, 1e-9) << file;
    }
  }
}

}  // namespace
}  // namespace clustar::bench::coflow
