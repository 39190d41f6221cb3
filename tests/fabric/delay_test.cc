// Cables with a delay: the round trip is as long as was asked, nothing is reordered, and a dead forwarder is seen.
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "bench/fabric/delay/forwarder.h"
#include "bench/fabric/topology_file.h"
#include "tests/fabric/fabric_under_test.h"
#include "tests/fabric/ping.h"

namespace clustar::bench::fabric {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

class DelayTest : public FabricTest {
 protected:
  FabricSpec delayed(int hosts, std::uint64_t delay_ns) const {
    FabricSpec wanted = spec(hosts, 200'000'000);
    wanted.delay_ns = delay_ns;
    return wanted;
  }

  int forwarder() const { return Fabric::status_of(name_).value().delay.pid; }

  static bool ends(int pid) {
    return eventually([&] { return has_ended(pid); });
  }
};

TEST_F(DelayTest, TheForwarderRunsBeforeProcessesThatPoll) {
  const Fabric fabric = must_up(delayed(2, 1'000'000));
  const int pid = forwarder();
  if (pid == 0) GTEST_SKIP() << "netem carries the delay here; there is no forwarder";
  const bool first = sched_getscheduler(pid) == SCHED_FIFO;
  EXPECT_TRUE(first || getpriority(PRIO_PROCESS, static_cast<id_t>(pid)) == -20);
}

TEST_F(DelayTest, TheRoundTripTakesWhatWasAskedAndQueuesStayPerPacket) {
  const Fabric fabric = must_up(delayed(3, 3'000'000));
  for (int i = 0; i < 3; ++i) {
    const auto trip = ping(fabric, 0, 2);
    ASSERT_TRUE(trip);
    EXPECT_GE(*trip, 4 * 3ms) << "two cables there, two back";
  }
  const auto proof = fabric.prove();
  ASSERT_TRUE(proof) << proof.error().message;
  EXPECT_TRUE(proof->per_packet());
  EXPECT_EQ(proof->arrived_bytes, 3 * proof->burst_bytes) << "checksums survive the way";
  const auto status = fabric.status();
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_TRUE(status->problems.empty()) << status->problems.front();
  EXPECT_EQ(status->spec, fabric.spec());
  EXPECT_NE(status->delay.carrier, DelayCarrier::kNone);
  ASSERT_EQ(status->delay.directions.size(), 6U);
  std::printf("delay by %s\n", to_string(status->delay.carrier));
  const auto until = Clock::now() + 5s;  // counters are published a few times a second
  auto passed = [&] {
    const auto directions = fabric.status()->delay.directions;
    return std::all_of(directions.begin(), directions.end(),
                       [](const DelayTraffic& one) { return one.packets > 0 && one.drops == 0; });
  };
  while (!passed() && Clock::now() < until) {
  }
  EXPECT_TRUE(passed());
}

TEST_F(DelayTest, PacketsKeepTheirOrder) {
  const Fabric fabric = must_up(delayed(2, 500'000));
  ASSERT_TRUE(ping(fabric, 0, 1));  // while ARP is asking, the kernel drops the oldest
  int receiver = -1;
  on_host(fabric, 1, [&] {
    receiver = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const timeval bound{2, 0};
    const int bytes = 8 << 20;
    setsockopt(receiver, SOL_SOCKET, SO_RCVTIMEO, &bound, sizeof(bound));
    setsockopt(receiver, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes));
    const sockaddr_in own = address_of_host(1, 4791);
    EXPECT_EQ(bind(receiver, reinterpret_cast<const sockaddr*>(&own), sizeof(own)), 0);
  });
  constexpr std::uint32_t kPackets = 1500;  // all of them fit the port's buffer
  on_host(fabric, 0, [&] {
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const sockaddr_in to = address_of_host(1, 4791);
    for (std::uint32_t i = 0; i < kPackets; ++i) {
      EXPECT_EQ(sendto(fd, &i, sizeof(i), 0, reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 4);
    }
    close(fd);
  });
  std::uint32_t number = 0;
  for (std::uint32_t i = 0; i < kPackets; ++i) {
    ASSERT_EQ(recv(receiver, &number, sizeof(number), 0), 4) << i;
    ASSERT_EQ(number, i);
  }
  close(receiver);
}

TEST_F(DelayTest, ADeadForwarderIsNamedAndUpStartsAnother) {
  const FabricSpec wanted = delayed(2, 100'000);
  must_up(wanted);
  const int pid = forwarder();
  if (pid == 0) GTEST_SKIP() << "netem carries the delay here; there is no forwarder";
  UpReport report;
  must_up(wanted, &report);
  EXPECT_EQ(report.change, Change::kUnchanged);
  EXPECT_EQ(forwarder(), pid);
  ASSERT_EQ(kill(pid, SIGKILL), 0);
  EXPECT_TRUE(ends(pid));
  const auto problems = Fabric::status_of(name_)->problems;
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_TRUE(contains(problems.front(), "clustar-delay) does not run")) << problems.front();
  // Nothing else is made again: processes on a host stay there.
  const pid_t inside = fork();
  if (inside == 0) {
    if (!enter_namespace(host_namespace(name_, 1))) _exit(1);
    pause();
    _exit(0);
  }
  EXPECT_TRUE(eventually([&] { return !inhabitants({host_namespace(name_, 1)}).empty(); }));
  const auto mended = Fabric::up(wanted, &report);
  kill(inside, SIGKILL);
  int status = 0;
  ASSERT_EQ(waitpid(inside, &status, 0), inside);
  EXPECT_TRUE(WIFSIGNALED(status)) << "it was there until now";
  ASSERT_TRUE(mended) << mended.error().message;
  EXPECT_EQ(report.change, Change::kRepaired);
  EXPECT_TRUE(contains(report.before, "does not run")) << report.before;
  EXPECT_TRUE(ping(*mended, 0, 1));

  const int second = forwarder();
  const auto removed = Fabric::remove(name_);
  ASSERT_TRUE(removed) << removed.error().message;
  EXPECT_TRUE(removed->ended.empty()) << "its own process is no news";
  EXPECT_TRUE(ends(second));
  EXPECT_FALSE(std::filesystem::exists(forwarder_file(name_)));
}

TEST_F(DelayTest, WhoCarriesItCanBeChosen) {
  FabricSpec wanted = delayed(2, 100'000);
  wanted.delay_by = DelayBy::kForwarder;
  UpReport report;
  must_up(wanted, &report);
  EXPECT_EQ(report.delay, DelayCarrier::kForwarder);
  EXPECT_EQ(Fabric::status_of(name_)->delay.carrier, DelayCarrier::kForwarder);
  must_up(delayed(2, 100'000), &report);
  EXPECT_EQ(report.change, Change::kUnchanged) << "auto is content with either";

  wanted.delay_by = DelayBy::kNetem;
  const auto made = Fabric::up(wanted, &report);
  if (made) {
    EXPECT_EQ(report.change, Change::kRebuilt);
    EXPECT_TRUE(contains(report.before, "a delay by forwarder instead of netem")) << report.before;
    EXPECT_EQ(Fabric::status_of(name_)->delay.carrier, DelayCarrier::kNetem);
  } else {
    EXPECT_EQ(made.error().code, ErrorCode::kUnavailable);
    EXPECT_TRUE(contains(made.error().message, "CONFIG_NET_SCH_NETEM")) << made.error().message;
    EXPECT_TRUE(contains(made.error().message, "--delay-by forwarder")) << made.error().message;
    EXPECT_TRUE(nothing_left());
  }
}

TEST_F(DelayTest, TheForwarderEndsWithItsNamespace) {
  must_up(delayed(2, 100'000));
  const int pid = forwarder();
  if (pid == 0) GTEST_SKIP() << "netem carries the delay here; there is no forwarder";
  ASSERT_EQ(std::system(("ip netns del " + wire_namespace(name_)).c_str()), 0);
  EXPECT_TRUE(ends(pid));
}

TEST_F(DelayTest, OnlyTheLinksThatHaveOneAreDelayed) {
  const auto file = parse_topology(R"(
hosts = 3
switches = ["leaf0", "leaf1", "spine0"]
links = [
  {between = ["h0", "leaf0"]},
  {between = ["h1", "leaf0"]},
  {between = ["h2", "leaf1"]},
  {between = ["leaf0", "spine0"], delay = "5ms"},
  {between = ["leaf1", "spine0"]},
]
)",
                                   "x.toml", name_);
  ASSERT_TRUE(file) << file.error().message;
  const Fabric fabric = must_up(*file);
  const auto trip = ping(fabric, 0, 2);
  ASSERT_TRUE(trip);
  EXPECT_GE(*trip, 10ms);
  EXPECT_TRUE(ping(fabric, 0, 1));
  EXPECT_EQ(fabric.status()->delay.directions.size(), 2U);
  EXPECT_EQ(fabric.status()->delay.directions.front().from, "leaf0");
  UpReport report;
  must_up(*file, &report);
  EXPECT_EQ(report.change, Change::kUnchanged);
}

}  // namespace
}  // namespace clustar::bench::fabric
