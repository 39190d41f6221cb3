#include "bench/doctor/child.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace clustar::bench::doctor {
namespace {

using std::chrono::steady_clock;
using ::testing::HasSubstr;

Child::Ended run(Result<Child> child, std::chrono::milliseconds limit = std::chrono::seconds(20)) {
  EXPECT_TRUE(child);
  return child->wait(steady_clock::now() + limit);
}

TEST(Child, ItsAnswerComes) {
  const auto ended = run(Child::start([](int answer) { return write(answer, "yes", 3) == 3 ? 0 : 1; }));
  EXPECT_EQ(ended.answer, "yes");
  EXPECT_EQ(ended.why, "");
}

TEST(Child, ACrashIsItsOwn) {
  const auto ended = run(Child::start([](int answer) {
    if (write(answer, "so far", 6) == 6) std::raise(SIGKILL);
    return 0;
  }));
  EXPECT_EQ(ended.answer, "so far");
  EXPECT_THAT(ended.why, HasSubstr("signal 9"));
}

TEST(Child, WhoSaysNothingIsEnded) {
  const auto begin = steady_clock::now();
  const auto ended = run(Child::start({"sleep", "600"}), std::chrono::milliseconds(100));
  EXPECT_EQ(ended.why, "no answer in time");
  EXPECT_LT(steady_clock::now() - begin, std::chrono::seconds(10));
}

TEST(Child, CommandsAnswerByStandardOutput) {
  const auto ended = run(Child::start({"sh", "-c", "echo out; echo err >&2; exit 3"}));
  EXPECT_EQ(ended.answer, "out\n");
  EXPECT_EQ(ended.errors, "err\n");
  EXPECT_EQ(ended.why, "exit status 3");
}

TEST(Child, ACommandThatIsNotThereSaysSo) {
  const auto ended = run(Child::start({"clustar-no-such-command"}));
  EXPECT_EQ(ended.why, "exit status 127");
  EXPECT_THAT(ended.errors, HasSubstr("clustar-no-such-command: No such file"));
}

TEST(Child, WhoNeverFallsSilentIsEnded) {
  const auto begin = steady_clock::now();
  const auto ended = run(Child::start({"sh", "-c", "while :; do echo again; done"}), std::chrono::milliseconds(100));
  EXPECT_EQ(ended.why, "no answer in time");
  EXPECT_LT(steady_clock::now() - begin, std::chrono::seconds(3));
}

TEST(Child, WhoHangsEndsWithItsParent) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t parent = fork();
  if (parent == 0) {
    const auto child = Child::start([&](int) {
      if (write(ends[1], "a", 1) == 1) pause();
      return 0;
    });
    pause();
    _exit(0);
  }
  close(ends[1]);
  char byte = 0;
  ASSERT_EQ(read(ends[0], &byte, 1), 1);
  kill(parent, SIGKILL);
  waitpid(parent, nullptr, 0);
  // Open as long as the child is there.
  pollfd watched{ends[0], POLLIN, 0};
  ASSERT_EQ(poll(&watched, 1, 10'000), 1);
  EXPECT_EQ(read(ends[0], &byte, 1), 0);
  close(ends[0]);
}

// As ssh, whose master stays and keeps standard error.
TEST(Child, ItsOwnChildrenKeepNobodyWaiting) {
  const auto begin = steady_clock::now();
  const auto ended = run(Child::start({"sh", "-c", "sleep 30 & echo out"}));
  EXPECT_EQ(ended.answer, "out\n");
  EXPECT_EQ(ended.why, "");
  EXPECT_LT(steady_clock::now() - begin, std::chrono::seconds(15));
}

// As the second of several hosts, of which the first used up the time.
TEST(Child, WhatItHasSaidCountsWhenTheTimeIsOver) {
  auto child = Child::start({"echo", "out"});
  ASSERT_TRUE(child);
  const Child::Ended patient = run(Child::start({"sleep", "1"}));
  ASSERT_EQ(patient.why, "");
  const auto ended = child->wait(steady_clock::now() - std::chrono::seconds(1));
  EXPECT_EQ(ended.answer, "out\n");
  EXPECT_EQ(ended.why, "");
}

TEST(Child, WhatALibraryPrintsIsNoAnswer) {
  const auto ended = run(Child::start([](int answer) {
    if (write(STDOUT_FILENO, "noise", 5) != 5) return 1;
    return write(answer, "yes", 3) == 3 ? 0 : 1;
  }));
  EXPECT_EQ(ended.answer, "yes");
  EXPECT_EQ(ended.errors, "noise");
}

TEST(Child, LongAnswersAreReadWhole) {
  const auto ended = run(Child::start({"sh", "-c", "yes clustar | head -c 1000000; yes no | head -c 1000000 >&2"}));
  EXPECT_EQ(ended.answer.size(), 1000000u);
  EXPECT_EQ(ended.errors.size(), 1000000u);
}

}  // namespace
}  // namespace clustar::bench::doctor
