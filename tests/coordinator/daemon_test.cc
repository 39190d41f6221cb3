// The daemon over real sockets: agents, strangers, keys, the end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "coflow/control/daemon/shared_key.h"
#include "coflow/control/daemon/strangers.h"
#include "tests/coordinator/daemon_process.h"
#include "tests/coordinator/test_agent.h"
#include "tests/psk_file.h"

namespace clustar::tests {
namespace {

using namespace coflow::control;
using ::testing::HasSubstr;

constexpr std::size_t kFlood = 2000;

// Sockets that close with it.
class Sockets {
 public:
  ~Sockets() {
    for (const int fd : all_) close(fd);
  }
  int add(int fd) {
    all_.push_back(fd);
    return fd;
  }
  const std::vector<int>& all() const { return all_; }

 private:
  std::vector<int> all_;
};

void allow_descriptors() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

const std::string kOpening("CLCT\0\2\0\0", 8);       // of a side without a key, but for the nonce
const std::string kKeyedOpening("CLCT\0\2\0\1", 8);  // with one

TEST(CoordinatorDaemon, AnAgentIsWelcomeAndHearsItsPlace) {
  DaemonProcess daemon;
  ASSERT_TRUE(daemon.listens()) << daemon.log();
  TestAgent agent(daemon.port());
  agent.send(hello_of(1, 7));
  const auto welcome = agent.next_of<Welcome>();
  ASSERT_TRUE(welcome);
  // The term is the wall clock's: a coordinator that is started later is above.
  EXPECT_GT(welcome->term, 1'700'000'000'000u);
  EXPECT_EQ(welcome->interval, std::chrono::milliseconds(50));
  EXPECT_EQ(welcome->lease, std::chrono::milliseconds(150));
  agent.send(report_of(7, 42, 1000));
  const auto order = agent.next_of<Order>();
  ASSERT_TRUE(order);
  EXPECT_EQ(order->version.term, welcome->term);
  ASSERT_EQ(order->classes.size(), 1u);
  EXPECT_EQ(order->classes[0].key, (ClassKey{7, 42, 4}));
  EXPECT_GT(order->classes[0].place, 0u);
  // It goes on saying that it is there.
  const auto renewal = agent.next_of<Order>();
  ASSERT_TRUE(renewal);
  EXPECT_GT(renewal->version, order->version);
}

TEST(CoordinatorDaemon, AllHearOneOrder) {
  DaemonProcess daemon({"--policy", "bssi", "--lease-intervals", "100"});
  ASSERT_TRUE(daemon.listens()) << daemon.log();
  TestAgent large(daemon.port()), small(daemon.port());
  large.send(hello_of(1, 1));
  large.send(report_of(1, 10, 100'000'000));
  ASSERT_TRUE(large.next_of<Order>());
  small.send(hello_of(2, 2));
  small.send(report_of(2, 20, 1000));
  const auto of_small = small.next_of<Order>();
  ASSERT_TRUE(of_small);
  const auto state = daemon.wait_for_state([](const auto& now) { return now["classes"].size() == 2; });
  ASSERT_EQ(state["classes"].size(), 2u);
  EXPECT_EQ(state["agents_in_all"], 2);
  // What is small goes first, on both hosts.
  EXPECT_EQ(state["classes"][0]["job"], 2);
  EXPECT_EQ(state["classes"][1]["job"], 1);
  EXPECT_LT(state["classes"][0]["place"], state["classes"][1]["place"]);
}

TEST(CoordinatorDaemon, AnAgentThatLeavesIsForgotten) {
  DaemonProcess daemon;
  ASSERT_TRUE(daemon.listens()) << daemon.log();
  TestAgent leaves(daemon.port()), dies(daemon.port());
  leaves.send(hello_of(1, 1));
  dies.send(hello_of(2, 1));
  ASSERT_TRUE(leaves.next_of<Welcome>());
  ASSERT_TRUE(dies.next_of<Welcome>());
  leaves.send(Bye{});
  EXPECT_TRUE(leaves.closes());
  shutdown(dies.fd(), SHUT_RDWR);
  const auto state = daemon.wait_for_state([](const auto& now) { return now["connections"] == 0; });
  EXPECT_EQ(state["connections"], 0);
  EXPECT_EQ(state["agents_in_all"], 0);
}

// Silent, with half an opening, with a whole one and no hello.
TEST(CoordinatorDaemon, StrangersThatSayNothingAreClosed) {
  DaemonProcess daemon;
  ASSERT_TRUE(daemon.listens()) << daemon.log();
  Sockets strangers;
  strangers.add(connect_to(daemon.port()));
  write_all(strangers.add(connect_to(daemon.port())), "CLCT");
  write_all(strangers.add(connect_to(daemon.port())), kOpening + std::string(16, 'n'));
  for (const int fd : strangers.all()) {
    bool closed = false;
    read_to_end(fd, closed);
    EXPECT_TRUE(closed);
  }
  const auto state = daemon.state();
  EXPECT_EQ(state["counters"]["timed_out"], 3);
  EXPECT_EQ(state["strangers"], 0);
  EXPECT_EQ(state["connections"], 0);
}

TEST(CoordinatorDaemon, NonsenseIsClosedAndCounted) {
  DaemonProcess daemon;
  ASSERT_TRUE(daemon.listens()) << daemon.log();
  const std::string of_other_version("CLCT\0\3\0\0", 8);
  const std::string too_long("\0\1\0\0", 4), no_hello("\0\0\0\1\6", 5), random("\0\0\0\5hello", 9);
  const std::string opened = kOpening + std::string(16, 'n');
  for (const std::string& bytes : {std::string("GET / HTTP/1.1\r\n\r\n"), of_other_version + std::string(16, 'n'),
                                   opened + too_long, opened + no_hello, opened + random}) {
    Sockets one;
    ASSERT_TRUE(write_all(one.add(connect_to(daemon.port())), bytes));
    bool closed = false;
    read_to_end(one.all()[0], closed);
    EXPECT_TRUE(closed) << bytes;
  }
  const auto state = daemon.state();
  EXPECT_EQ(state["counters"]["nonsense"], 5);
  EXPECT_EQ(state["counters"]["timed_out"], 0);
}

TEST(CoordinatorDaemon, AnAgentThatSaysWhatACoordinatorSaysIsRefused) {
  DaemonProcess daemon;
  ASSERT_TRUE(daemon.listens()) << daemon.log();
  TestAgent agent(daemon.port());
  agent.send(hello_of(1, 1));
  agent.send(Order{});
  const auto refusal = agent.next_of<Refusal>();
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->reason, RefusalReason::kNonsense);
  EXPECT_TRUE(agent.closes());
}

TEST(CoordinatorDaemon, MoreAgentsThanAllowedAreRefused) {
  DaemonProcess daemon({"--agents", "1"});
  ASSERT_TRUE(daemon.listens()) << daemon.log();
  TestAgent first(daemon.port()), second(daemon.port());
  first.send(hello_of(1, 1));
  ASSERT_TRUE(first.next_of<Welcome>());
  second.send(hello_of(2, 1));
  const auto refusal = second.next_of<Refusal>();
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->reason, RefusalReason::kFull);
}

// Ends a session with a whole hello under a wrong tag, as one does that has not got the key.
void say_hello_without_the_key(std::uint16_t port) {
  Sockets one;
  const std::string hello("\0\0\0\1\1", 5);
  write_all(one.add(connect_to(port)), kKeyedOpening + std::string(16, 'n') + hello + std::string(16, 't'));
  bool closed = false;
  read_to_end(one.all()[0], closed);
  EXPECT_TRUE(closed);
}

TEST(CoordinatorDaemon, WithAKeyOnlyThoseThatKnowItAreHeard) {
  const PskFile right("a key of more than 16 bytes"), wrong("another key of so many bytes");
  DaemonProcess daemon({"--key-file", right.path(), "--lease-intervals", "100"});
  ASSERT_TRUE(daemon.listens()) << daemon.log();
  const auto right_key = SharedKey::read(right.path()), wrong_key = SharedKey::read(wrong.path());
  ASSERT_TRUE(right_key) << right_key.error().message;
  ASSERT_TRUE(wrong_key) << wrong_key.error().message;

  TestAgent knows(daemon.port(), right_key->session_key());
  knows.send(hello_of(1, 1));
  EXPECT_TRUE(knows.next_of<Welcome>()) << knows.session().failure();

  TestAgent other(daemon.port(), wrong_key->session_key());
  other.send(hello_of(2, 1));
  EXPECT_FALSE(other.next_of<Welcome>());
  EXPECT_TRUE(other.session().wrong_key()) << other.session().failure();

  TestAgent without(daemon.port());
  without.send(hello_of(3, 1));
  EXPECT_FALSE(without.next_of<Welcome>());
  EXPECT_TRUE(without.closes());

  say_hello_without_the_key(daemon.port());
  const auto state = daemon.wait_for_state([](const auto& now) { return now["counters"]["wrong_key"] == 2; });
  EXPECT_EQ(state["counters"]["wrong_key"], 2);
  EXPECT_EQ(state["agents_in_all"], 1);
}

TEST(CoordinatorDaemon, WithoutAKeyOneThatHasOneIsTold) {
  DaemonProcess daemon;
  ASSERT_TRUE(daemon.listens()) << daemon.log();
  Sockets one;
  write_all(one.add(connect_to(daemon.port())), kKeyedOpening + std::string(16, 'n'));
  bool closed = false;
  read_to_end(one.all()[0], closed);
  EXPECT_TRUE(closed);
  EXPECT_EQ(daemon.state()["counters"]["wrong_key"], 1);
}

TEST(CoordinatorDaemon, AFloodIsBoundedAndAgentsAreServedOn) {
  allow_descriptors();
  // The agent says nothing for longer than others may.
  DaemonProcess daemon({"--lease-intervals", "100"});
  ASSERT_TRUE(daemon.listens()) << daemon.log();
  TestAgent agent(daemon.port());
  agent.send(hello_of(1, 1));
  agent.send(report_of(1, 1, 1000));
  ASSERT_TRUE(agent.next_of<Order>());
  Sockets flood;
  std::size_t most = 0;
  for (std::size_t i = 0; i < kFlood; ++i) {
    ASSERT_GE(flood.add(connect_to(daemon.port())), 0) << i;
    if (i % 100 == 99) most = std::max(most, daemon.descriptors());
  }
  // Those from one source are 64; a few more were accepted in the turn that closed them.
  EXPECT_LT(most, Strangers::kMostOfOne + 80);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(agent.next_of<Order>()) << i;
  const auto state = daemon.wait_for_state([](const auto& now) {
    const auto& count = now["counters"];
    return count["turned_away"].template get<std::size_t>() + count["timed_out"].template get<std::size_t>() == kFlood;
  });
  EXPECT_EQ(state["counters"]["turned_away"].get<std::size_t>() + state["counters"]["timed_out"].get<std::size_t>(),
            kFlood);
  EXPECT_GE(state["counters"]["timed_out"], Strangers::kMostOfOne);
  EXPECT_EQ(state["strangers"], 0);
  // And who comes later is heard.
  TestAgent later(daemon.port());
  later.send(hello_of(2, 1));
  EXPECT_TRUE(later.next_of<Welcome>());
}

TEST(CoordinatorDaemon, WithoutDescriptorsItGoesOn) {
  // The agent says nothing for longer than others may.
  DaemonProcess daemon({"--lease-intervals", "100"});
  ASSERT_TRUE(daemon.listens()) << daemon.log();
  TestAgent agent(daemon.port());
  agent.send(hello_of(1, 1));
  ASSERT_TRUE(agent.next_of<Welcome>());
  const rlimit few{daemon.descriptors() + 8, daemon.descriptors() + 8};
  ASSERT_EQ(prlimit(daemon.pid(), RLIMIT_NOFILE, &few, nullptr), 0);
  Sockets flood;
  for (int i = 0; i < 50; ++i) ASSERT_GE(flood.add(connect_to(daemon.port())), 0);
  for (const int fd : flood.all()) {
    bool closed = false;
    read_to_end(fd, closed);
    EXPECT_TRUE(closed);
  }
  EXPECT_TRUE(agent.next_of<Order>());
  TestAgent later(daemon.port());
  later.send(hello_of(2, 1));
  EXPECT_TRUE(later.next_of<Welcome>());
  const auto state = daemon.state();
  ASSERT_TRUE(state.is_object());
  EXPECT_GT(state["counters"]["accept_failures"], 0);
}

TEST(CoordinatorDaemon, ASignalEndsItAndAgentsAreTold) {
  for (const int number : {SIGTERM, SIGINT}) {
    DaemonProcess daemon;
    ASSERT_TRUE(daemon.listens()) << daemon.log();
    TestAgent agent(daemon.port()), deaf(daemon.port());
    agent.send(hello_of(1, 1));
    deaf.send(hello_of(2, 1));
    ASSERT_TRUE(agent.next_of<Welcome>());
    ASSERT_TRUE(deaf.next_of<Welcome>());
    daemon.signal(number);
    const auto refusal = agent.next_of<Refusal>();
    ASSERT_TRUE(refusal);
    EXPECT_EQ(refusal->reason, RefusalReason::kStopping);
    EXPECT_TRUE(agent.closes());
    // One that neither reads nor closes does not keep it.
    EXPECT_EQ(daemon.wait(), 0) << daemon.log();
    EXPECT_THAT(daemon.log(), HasSubstr("stopped"));
  }
}

TEST(CoordinatorDaemon, APortThatIsTakenIsNamed) {
  DaemonProcess first;
  ASSERT_TRUE(first.listens()) << first.log();
  DaemonProcess second({"--listen", first.address()});
  EXPECT_FALSE(second.listens());
  EXPECT_EQ(second.wait(), 1);
  EXPECT_THAT(second.log(), HasSubstr("--listen: cannot listen on " + first.address()));
  EXPECT_THAT(second.log(), HasSubstr("another process has this port"));
}

TEST(CoordinatorDaemon, WithoutAKeyItListensOnLoopbackOnly) {
  DaemonProcess refused({"--listen", "0.0.0.0:0"});
  EXPECT_FALSE(refused.listens());
  EXPECT_EQ(refused.wait(), 2);
  EXPECT_THAT(refused.log(), HasSubstr("--key-file FILE"));
  EXPECT_THAT(refused.log(), HasSubstr("--no-key"));
  DaemonProcess page({"--http", "0.0.0.0:0"});
  EXPECT_FALSE(page.listens());
  EXPECT_EQ(page.wait(), 2);
  EXPECT_THAT(page.log(), HasSubstr("--http-anyone"));
}

}  // namespace
}  // namespace clustar::tests
