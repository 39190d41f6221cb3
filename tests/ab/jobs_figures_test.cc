// What runs of several jobs are worth, in numbers that are known.
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "bench/ab/jobs/figures.h"

namespace clustar::bench::ab::jobs {
namespace {

// `steps` steps of `step_s` from `begin` on, of 10 images each, a mark after each.
JobRun steady(const char* name, double begin, double step_s, std::size_t steps) {
  JobRun run;
  run.name = name;
  run.per_step = 10;
  for (std::size_t step = 1; step <= steps; ++step) {
    run.step_s.push_back(step_s);
    run.marks.push_back({begin + static_cast<double>(step) * step_s, step});
  }
  return run;
}

TEST(JobsFigures, CommonWindowIsWhileAllAreInTheirSteps) {
  const std::vector<JobRun> jobs{steady("long", 0, 1, 100), steady("late", 40.25, 0.5, 60)};
  const auto window = common_window(jobs);
  ASSERT_TRUE(window);
  EXPECT_DOUBLE_EQ(window->from_s, 40.75);
  EXPECT_DOUBLE_EQ(window->to_s, 70.25);
  const auto speed = speed_of(jobs[0], window);
  ASSERT_TRUE(speed);
  EXPECT_EQ(speed->steps, 29u) << "those that ended at 42 to 70 s";
  EXPECT_DOUBLE_EQ(speed->step_s, 1);
  EXPECT_DOUBLE_EQ(speed->per_second.value(), 10);
}

TEST(JobsFigures, StepsOutsideTheWindowDoNotCount) {
  JobRun slow_start = steady("a", 0, 1, 20);
  for (std::size_t i = 0; i < 5; ++i) slow_start.step_s[i] = 100;
  const std::vector<JobRun> jobs{slow_start, steady("b", 5, 1, 15)};
  const auto speed = speed_of(slow_start, common_window(jobs));
  ASSERT_TRUE(speed);
  EXPECT_DOUBLE_EQ(speed->step_s, 1);
  EXPECT_GT(speed_of(slow_start, std::nullopt)->step_s, 20) << "all of them do without one";
}

TEST(JobsFigures, NoWindowWithoutEnoughStepsInIt) {
  const std::vector<JobRun> apart{steady("a", 0, 1, 10), steady("b", 20, 1, 10)};
  EXPECT_FALSE(common_window(apart));
  const std::vector<JobRun> few{steady("a", 0, 1, 100), steady("b", 0, 10, 4)};
  EXPECT_FALSE(common_window(few));
  const std::vector<JobRun> silent{steady("a", 0, 1, 10), JobRun{}};
  EXPECT_FALSE(common_window(silent));
  EXPECT_FALSE(speed_of(JobRun{}, std::nullopt));
}

TEST(JobsFigures, BeyondTheStepsThatAreToldTheTimeBetweenMarksCounts) {
  JobRun run = steady("a", 0, 1, 100);
  run.step_s.resize(20);
  const auto speed = speed_of(run, Window{50, 80});
  ASSERT_TRUE(speed);
  EXPECT_EQ(speed->steps, 30u);
  EXPECT_DOUBLE_EQ(speed->step_s, 1);
}

TEST(JobsFigures, JainIsOneForEqualsAndOneNthForOneThatHasAll) {
  EXPECT_DOUBLE_EQ(jain(std::vector<double>{0.5, 0.5, 0.5}), 1);
  EXPECT_DOUBLE_EQ(jain(std::vector<double>{1, 0, 0, 0}), 0.25);
  EXPECT_DOUBLE_EQ(jain(std::vector<double>{1, 3}), 0.8);
  EXPECT_DOUBLE_EQ(jain(std::vector<double>{}), 0);
}

TEST(JobsFigures, RelativeSpeedsAreToTheJobAlone) {
  const std::vector<JobRun> jobs{steady("a", 0, 2, 50), steady("b", 0, 1, 100)};
  const std::vector<std::optional<JobRun>> alone{steady("a", 0, 1, 50), steady("b", 0, 0.8, 100)};
  const auto round = together(jobs, alone);
  ASSERT_TRUE(round);
  EXPECT_TRUE(round->in_common);
  ASSERT_EQ(round->relative.size(), 2u);
  EXPECT_DOUBLE_EQ(round->relative[0], 0.5);
  EXPECT_NEAR(round->relative[1], 0.8, 1e-9);
  EXPECT_NEAR(round->sum_relative(), 1.3, 1e-9);
  EXPECT_DOUBLE_EQ(round->least_relative(), 0.5);
  EXPECT_DOUBLE_EQ(round->per_second[0].value(), 5);
}

TEST(JobsFigures, WithoutAReferenceSpeedsStayAndRelativeOnesDoNot) {
  const std::vector<JobRun> jobs{steady("a", 0, 2, 50), steady("b", 0, 1, 100)};
  const std::vector<std::optional<JobRun>> alone{std::nullopt, steady("b", 0, 0.8, 100)};
  const auto round = together(jobs, alone);
  ASSERT_TRUE(round);
  EXPECT_TRUE(round->relative.empty());
  EXPECT_DOUBLE_EQ(round->per_second[1].value(), 10);
}

TEST(JobsFigures, StepsThatOverlapAreNotCountedBySecond) {
  JobRun queue = steady("q", 0, 1, 50);
  queue.per_step.reset();
  const auto round = together(std::vector<JobRun>{queue, steady("b", 0, 1, 50)},
                              std::vector<std::optional<JobRun>>{steady("q", 0, 0.5, 50), std::nullopt});
  ASSERT_TRUE(round);
  EXPECT_FALSE(round->per_second[0]);
  EXPECT_DOUBLE_EQ(round->per_second[1].value(), 10);
  EXPECT_DOUBLE_EQ(round->step_s[0], 1);
}

TEST(JobsFigures, RatioIsBOverA) {
  const std::vector<double> a{1, 2, 4}, b{2, 4, 8};
  const auto ratio = ratio_of(a, b);
  ASSERT_TRUE(ratio);
  EXPECT_DOUBLE_EQ(ratio->ratio, 2);
  EXPECT_FALSE(ratio_of({}, {}));
}

}  // namespace
}  // namespace clustar::bench::ab::jobs
