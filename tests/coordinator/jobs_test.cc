// Jobs as users start them, under a coordinator: bytes of every transport are reported, and obey.
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <string>
#include <thread>

#include "tests/coordinator/daemon_process.h"
#include "tests/run_command.h"
#include "tests/sanitized.h"

namespace clustar::tests {
namespace {

struct Job {
  const char* name;
  const char* transport;
  const char* collective;
};

class JobsUnderACoordinator : public ::testing::TestWithParam<Job> {};

TEST_P(JobsUnderACoordinator, TheirBytesAreReported) {
  const DaemonProcess daemon;
  ASSERT_TRUE(daemon.listens());
  Outcome outcome{};
  std::atomic<bool> ended{false};
  std::thread job([&] {
    outcome = run_command(std::string("CLUSTAR_SOCKET_IFNAME=lo CLUSTAR_SEND_ORDER=coflow CLUSTAR_LINE_MBPS=2000 ") +
                          "CLUSTAR_JOB=7 CLUSTAR_TENANT=lab CLUSTAR_COORDINATOR=" + daemon.address() +
                          " CLUSTAR_TRANSPORT=" + GetParam().transport +
                          (kSanitized ? " timeout 200 " : " timeout 100 ") + COORDINATOR +
                          " train --ranks 2 --model mlp-small --examples 2000 --batch 32 --epochs 3 --collective " +
                          GetParam().collective);
    ended = true;
  });
  nlohmann::json state;
  for (bool seen = false; !seen && !ended;) {
    state = daemon.wait_for_state([&](const nlohmann::json& now) {
      std::uint64_t sent = 0;
      for (const auto& agent : now["agents"]) sent += agent["attained"].get<std::uint64_t>();
      seen = now["agents"].size() == 2 && sent > 1'000'000 && !now["classes"].empty();
      return seen;
    });
  }
  job.join();
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  ASSERT_EQ(state["agents"].size(), 2u) << state.dump() << outcome.text;
  ASSERT_FALSE(state["classes"].empty()) << state.dump();
  for (const auto& one : state["classes"]) {
    EXPECT_EQ(one["job"], 7);
    EXPECT_EQ(one["tenant"], "lab");
  }
  // They leave nothing behind.
  const auto after = daemon.wait_for_state([](const nlohmann::json& now) { return now["agents"].empty(); });
  EXPECT_TRUE(after["agents"].empty() && after["classes"].empty()) << after.dump();
}

INSTANTIATE_TEST_SUITE_P(Transports, JobsUnderACoordinator,
                         ::testing::Values(Job{"tcp", "tcp", "proxy"}, Job{"mlt", "mlt", "proxy"},
                                           Job{"paraexpress", "tcp", "paraexpress"}),
                         [](const auto& test) { return test.param.name; });

// It is nobody's to end: a job goes on without it, and obeys again when it is back.
TEST(JobsUnderACoordinator, OneThatStandsStillDelaysNobody) {
  const DaemonProcess daemon;
  ASSERT_TRUE(daemon.listens());
  daemon.signal(SIGSTOP);
  const Outcome outcome =
      run_command("CLUSTAR_SOCKET_IFNAME=lo CLUSTAR_SEND_ORDER=coflow CLUSTAR_COORDINATOR=" + daemon.address() +
                  " CLUSTAR_TRANSPORT=tcp timeout 100 " + COORDINATOR +
                  " train --ranks 2 --model mlp-small --examples 400 --epochs 1");
  daemon.signal(SIGCONT);
  EXPECT_EQ(outcome.status, 0) << outcome.text;
}

TEST(JobsUnderACoordinator, ANameThatIsNotFoundIsTold) {
  const Outcome outcome = run_command(
      std::string("CLUSTAR_SOCKET_IFNAME=lo CLUSTAR_SEND_ORDER=coflow CLUSTAR_COORDINATOR=nosuch.invalid:7480 "
                  "CLUSTAR_TRANSPORT=tcp NCCL_DEBUG=WARN timeout 100 ") +
      COORDINATOR + " train --ranks 2 --model mlp-small --examples 400 --epochs 1");
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_NE(outcome.text.find("the coordinator nosuch.invalid:7480 cannot be looked up"), std::string::npos)
      << outcome.text;
}

TEST(JobsUnderACoordinator, WrongSettingsSayWhatIsAllowed) {
  const std::string train = std::string(COORDINATOR) + " train --ranks 2 --model mlp-small --examples 400 --epochs 1";
  for (const char* wrong :
       {"CLUSTAR_COORDINATOR=host", "CLUSTAR_COORDINATOR=host:0", "CLUSTAR_COORDINATOR=host:73016",
        "CLUSTAR_COORDINATOR=::1:7480", "CLUSTAR_COORDINATOR=host:1,", "CLUSTAR_TENANT=\u00e9quipe"}) {
    const Outcome outcome = run_command(std::string("env CLUSTAR_SEND_ORDER=coflow '") + wrong + "' " + train);
    EXPECT_NE(outcome.status, 0) << wrong;
    EXPECT_NE(outcome.text.find("allowed"), std::string::npos) << outcome.text;
  }
  const Outcome order = run_command("CLUSTAR_COORDINATOR=127.0.0.1:7480 " + train);
  EXPECT_NE(order.text.find("set CLUSTAR_SEND_ORDER=coflow"), std::string::npos) << order.text;
}

}  // namespace
}  // namespace clustar::tests
