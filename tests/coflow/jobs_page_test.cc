// The pages of jobs, from their JSON.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>

#include "bench/coflow/page.h"
#include "bench/coflow/render.h"
#include "bench/report/report.h"

namespace clustar::bench::coflow {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct JobTimes {
  double mean_s, contended_s, ended_s;
};

Summary jobs_under(const std::string& policy, const std::vector<JobTimes>& times) {
  Summary summary;
  summary.policy = policy;
  summary.rules = "exact";
  for (const JobTimes& one : times) {
    summary.jobs.push_back({.name = "job <" + std::to_string(summary.jobs.size()) + ">",
                            .iterations = 4,
                            .mean_iteration_s = one.mean_s,
                            .p95_iteration_s = one.mean_s,
                            .contended_s = one.contended_s,
                            .alone_s = 2,
                            .submitted_s = 1,
                            .began_s = 1.5,
                            .ended_s = one.ended_s});
    summary.makespan_s = std::max(summary.makespan_s, one.ended_s);
  }
  return summary;
}

nlohmann::json document_of(const std::vector<Summary>& policies, std::size_t gpus_per_port) {
  Comparison comparison;
  comparison.workload = "jobs & <more>";
  comparison.ports = 16;
  comparison.port_gbps = 100;
  comparison.load = {1.25, 0.75};
  comparison.rules = "exact";
  comparison.policies = policies;
  comparison.jobs = true;
  comparison.gpus_per_port = gpus_per_port;
  auto document = report::envelope("coflow replay", to_json(comparison));
  document["workload"] = workload_json(comparison);
  return nlohmann::json::parse(document.dump());
}

std::string drawn(const nlohmann::json& document) {
  EXPECT_TRUE(can_draw(document));
  const auto html = page(document);
  EXPECT_TRUE(html) << html.error().message;
  const std::string text = html ? *html : "";
  EXPECT_FALSE(std::regex_search(text, std::regex("[\">( -](nan|inf)\\b"))) << text;
  EXPECT_THAT(text, Not(HasSubstr("<more>")));
  EXPECT_THAT(text, Not(HasSubstr("job <")));
  EXPECT_THAT(text, Not(HasSubstr("coflows")));
  return text;
}

const std::vector<Summary> kFairAndOurs = {jobs_under("maxmin", {{4, 6, 9}, {3, 4, 13}}),
                                           jobs_under("match", {{2, 2, 5}, {2.5, 5, 11}})};

TEST(CoflowJobsPage, ShowsIterationsOfEachJob) {
  const std::string html = drawn(document_of(kFairAndOurs, 0));
  for (const char* part :
       {"2 training jobs, 16 ports of 100 Gbit/s; rules exact. Load 1.25 at the busiest port, 0.75 on average",
        "Iterations are shortest under match: 1.125 times as long as alone on average over jobs; under max-min fair "
        "sharing 1.750 times. The job that loses most by it has iterations 0.800 times as fast",
        "<h2>Job job &lt;0&gt;</h2>", "<h2>Job job &lt;1&gt;</h2>", "4 iterations, 2 s each where nobody else sends",
        "<td class=best>2.000000</td>", "<td>2.000x</td>", "<td class=worse>0.800x</td>",
        "dot: all iterations, ring: while all jobs run", "Max-min&#39;s iteration time over the policy&#39;s"}) {
    EXPECT_THAT(html, HasSubstr(part));
  }
  const std::regex level("<line [^>]*class=\"level strong\"");
  EXPECT_EQ(std::distance(std::sregex_iterator(html.begin(), html.end(), level), std::sregex_iterator()), 4)
      << "two charts for each job, with a level each";
  EXPECT_THAT(html, HasSubstr("<title>match: 2.5</title>")) << "while all run, the second job's 5 s over 2 s";
}

TEST(CoflowJobsPage, ShowsCompletionsWhereJobsWait) {
  const std::vector<Summary> policies = {jobs_under("maxmin", {{4, 0, 9}, {3, 0, 13}}),
                                         jobs_under("match", {{2, 0, 5}, {2.5, 0, 15}})};
  const std::string html = drawn(document_of(policies, 8));
  for (const char* part :
       {"2 training jobs, first come first served; 16 ports of 100 Gbit/s with 8 GPUs each",
        "On average jobs end soonest under match: 9.000 s after their submission, 1.111 times sooner than under "
        "max-min "
        "fair sharing (10.000 s). No job&#39;s iterations are slower than under max-min fair sharing (worst: 1.200 "
        "times as fast).",
        "Jobs by max-min&#39;s completion time over the policy&#39;s, cumulative", "<td>1 of 2</td>",
        "<td class=best>9.000</td>", "<td>1.111x</td>", "Jobs by iteration time over that alone, cumulative"}) {
    EXPECT_THAT(html, HasSubstr(part));
  }
  EXPECT_THAT(html, Not(HasSubstr("<h2>Job "))) << "hundreds of them";
}

TEST(CoflowJobsPage, WithoutFairSharingAndOfJobsThatTakeNoTime) {
  for (const std::size_t gpus : {0, 8}) {
    const std::string html = drawn(document_of({kFairAndOurs[1]}, gpus));
    EXPECT_THAT(html,
                HasSubstr("max-min fair sharing was not replayed (--policy maxmin), so that no gain can be told"));
    EXPECT_THAT(html, Not(HasSubstr("Max-min&#39;s")));
    auto nothing = document_of({jobs_under("maxmin", {{0, 0, 1}}), jobs_under("match", {{0, 0, 1}})}, gpus);
    for (auto& row : nothing["results"]) row["jobs"][0]["isolated_iteration_s"] = 0;
    drawn(nothing);
    EXPECT_THAT(drawn(document_of({jobs_under("maxmin", {})}, gpus)), HasSubstr("No job ran."));
  }
}

TEST(CoflowJobsText, HasNoGainOfJobsThatTakeNoTime) {
  for (const std::size_t gpus : {0, 8}) {
    Comparison comparison;
    comparison.policies = {jobs_under("maxmin", {{0, 0, 1}}), jobs_under("match", {{0, 0, 1}})};
    comparison.jobs = true;
    comparison.gpus_per_port = gpus;
    EXPECT_THAT(text(comparison), Not(HasSubstr("inf")));
    comparison.policies[1] = jobs_under("match", {{2, 0, 1}});
    comparison.policies[0] = jobs_under("maxmin", {{3, 0, 1}});
    EXPECT_THAT(text(comparison), HasSubstr("1.500x"));
  }
}

TEST(CoflowJobsPage, SaysWhatADocumentLacks) {
  auto document = document_of(kFairAndOurs, 0);
  document["results"][1]["jobs"].erase(1);
  EXPECT_FALSE(page(document)) << "a job that one policy lacks";
  document = document_of(kFairAndOurs, 0);
  document["results"][0]["jobs"][0].erase("contended_iteration_s");
  const auto refused = page(document);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("contended_iteration_s"));
  document["results"][0]["jobs"] = 7;
  EXPECT_FALSE(page(document));
}

}  // namespace
}  // namespace clustar::bench::coflow
