// The switch program on real packets: each rule by its effect, counted.
//
// Ports of 1 Mbit/s stand still while a burst of some milliseconds comes in; what little they carry meanwhile is
// computed from the time that the burst took, so that a busy machine changes nothing.
#include <linux/bpf.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <thread>

#include "bench/fabric/running.h"
#include "bench/fabric/state.h"
#include "tests/fabric/forbid_bpf.h"
#include "tests/fabric/switch_under_test.h"

namespace clustar::bench::fabric {
namespace {

constexpr std::uint64_t kSlow = 1'000'000;
constexpr std::size_t kFrame = 1000;

// Frames that a slow port can have carried since it was made, one more for what is under way.
class Line {
 public:
  std::uint64_t carried() const {
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin_;
    return static_cast<std::uint64_t>(time.count() * kSlow / 8 / kFrame) + 1;
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

// Within the interval that holds 99.9 % of all binomial outcomes (normal approximation).
void expect_binomial(std::uint64_t hits, int n, double p) {
  const double mean = n * p;
  EXPECT_NEAR(static_cast<double>(hits), mean, 3.29 * std::sqrt(mean * (1 - p)) + 0.5);
}

std::vector<std::uint32_t> sequences(const std::vector<Received>& received) {
  std::vector<std::uint32_t> all;
  for (const Received& one : received) all.push_back(one.sequence);
  return all;
}

TEST_F(SwitchTest, LosesAtRandomAndRepeatsIt) {
  PortRules rules;
  rules.to_host.random = 0.05;
  const Fabric fabric = must_switch(0, 0, rules);
  const Receiver receiver(fabric);
  send(fabric, receiver, 0, 4000);
  const ClassCounters to = counters(fabric).to_host();
  expect_binomial(to.dropped_loss, 4000, 0.05);
  EXPECT_EQ(to.packets + to.dropped_loss, 4000U);
  EXPECT_EQ(to.bytes, to.packets * 100);
  const auto first = sequences(receiver.take(to.packets));
  ASSERT_EQ(first.size(), to.packets) << "what the switch let pass arrives";

  // The same rules again start the same sequence; another seed another one.
  change(fabric, rules);
  send(fabric, receiver, 0, 4000);
  EXPECT_EQ(sequences(receiver.take(first.size())), first);
  rules.seed = 2;
  change(fabric, rules);
  send(fabric, receiver, 0, 4000);
  EXPECT_NE(sequences(receiver.take(0)), first);
}

TEST_F(SwitchTest, LosesFromTheHostToo) {
  const Fabric fabric = must_switch(0, 0, {});
  ASSERT_TRUE(change_rules(name_, "h1", [](PortRules& rules) {
    rules.from_host.random = 0.1;
    return Result<void>();
  }));
  const Receiver receiver(fabric);
  send(fabric, receiver, 0, 2000);
  const FromHostCounters from = counters(fabric, 1).from_host;
  expect_binomial(from.dropped_loss, 2000, 0.1);
  EXPECT_EQ(from.packets + from.dropped_loss, 2000U);
  EXPECT_EQ(receiver.take(from.packets).size(), from.packets);
}

TEST_F(SwitchTest, GilbertElliottLosesInRuns) {
  PortRules rules;
  rules.to_host.gilbert_elliott = {true, 0.05, 0.2, 0, 1};
  const Fabric fabric = must_switch(0, 0, rules);
  const Receiver receiver(fabric);
  send(fabric, receiver, 0, 5000);
  const auto arrived = sequences(receiver.take(counters(fabric).to_host().packets));
  int runs = 0;
  std::uint32_t expected = 0;
  for (const std::uint32_t sequence : arrived) {
    runs += sequence != expected ? 1 : 0;
    expected = sequence + 1;
  }
  const double lost = 5000.0 - static_cast<double>(arrived.size());
  // 200 runs of 5 packets on average, each with a spread of 4.5: four deviations.
  EXPECT_NEAR(lost / 5000, 0.2, 0.06);
  EXPECT_NEAR(lost / runs, 5, 1.3);
}

TEST_F(SwitchTest, BurstsLoseOnlyWhileTheyLast) {
  constexpr std::uint64_t kHour = kMaxBurstPeriodNs;
  PortRules rules;
  rules.to_host.bursts = {kHour, kHour / 2, 0.75};
  const Fabric fabric = must_switch(0, 0, rules);
  const Receiver receiver(fabric);
  send(fabric, receiver, 0, 2000);
  const std::uint64_t within = counters(fabric).to_host().dropped_loss;
  expect_binomial(within, 2000, 0.75);
  // A burst of a nanosecond takes the packet that begins it, and the next one is an hour away.
  rules.to_host.bursts = {kHour, 1, 1};
  change(fabric, rules);
  send(fabric, receiver, 0, 300);
  EXPECT_EQ(counters(fabric).to_host().dropped_loss, within + 1);
}

// Each change of the rules begins a first period again, drawn from the seed: short tests see many bursts.
TEST_F(SwitchTest, BurstsAreDrawnFromTheirRanges) {
  constexpr std::uint64_t kHour = kMaxBurstPeriodNs;
  PortRules rules;
  const Fabric fabric = must_switch(0, 0, rules);
  const Receiver receiver(fabric);
  std::uint64_t before = 0;
  std::vector<std::uint64_t> losses;
  rules.to_host.bursts = {kHour, kHour / 2, 0.2, 0, 0.8};
  for (const std::uint64_t seed : {1, 2, 3, 4, 5, 6, 1}) {
    rules.seed = seed;
    change(fabric, rules);
    send(fabric, receiver, 0, 300);
    const std::uint64_t now = counters(fabric).to_host().dropped_loss;
    losses.push_back(now - before);
    before = now;
  }
  EXPECT_EQ(losses.front(), losses.back()) << "the same seed";
  const auto [least, most] = std::minmax_element(losses.begin(), losses.end());
  // A loss of 20 % takes 60, one of 80 % takes 240; five standard deviations.
  EXPECT_GE(*least, 25U);
  EXPECT_LE(*most, 275U);
  // Six draws from 20 to 80 % that lie within 10 % of each other have a chance of 1e-3, and these seeds are fixed.
  EXPECT_GT(*most - *least, 60U);
}

TEST_F(SwitchTest, JitterLetsBurstsBeginLater) {
  constexpr std::uint64_t kHour = kMaxBurstPeriodNs;
  PortRules rules;
  rules.to_host.bursts = {kHour, 1'000'000'000, 1, 0, 0, kHour - 1'000'000'000};
  const Fabric fabric = must_switch(0, 0, rules);
  const Receiver receiver(fabric);
  // A burst of a second begins somewhere within the hour.
  send(fabric, receiver, 0, 300);
  EXPECT_EQ(counters(fabric).to_host().dropped_loss, 0U);
}

TEST_F(SwitchTest, ADeadLinkIsSwitchedOnAndOffWhilePacketsPass) {
  const Fabric fabric = must_switch(kSlow * 100, 0, {}, 3);
  const Receiver receiver(fabric);
  send(fabric, receiver, 0, 50);
  EXPECT_EQ(receiver.take(50).size(), 50U);
  const auto dead = [](bool on) {
    return [on](PortRules& rules) {
      rules.to_host.dead = on;
      return Result<void>();
    };
  };
  const auto changed = change_rules(name_, "h0", dead(true));
  ASSERT_TRUE(changed) << changed.error().message;
  EXPECT_TRUE(changed->rules.of("h0").to_host.dead);
  send(fabric, receiver, 0, 50);
  EXPECT_EQ(counters(fabric).to_host().dropped_loss, 50U);
  EXPECT_EQ(counters(fabric).to_host().packets, 50U) << "counters go on over a change";
  const auto status = fabric.status();
  ASSERT_TRUE(status);
  EXPECT_TRUE(status->problems.empty()) << status->problems.front();
  EXPECT_EQ(status->spec, *changed) << "the kernel knows the rules";
  EXPECT_FALSE(status->spec.rules.of("h1").to_host.dead);
  EXPECT_EQ(read_state(name_), *changed);

  ASSERT_TRUE(change_rules(name_, "", dead(false)));
  send(fabric, receiver, 0, 50);
  EXPECT_EQ(receiver.take(50).size(), 50U);
  ASSERT_TRUE(reset_counters(name_));
  EXPECT_EQ(counters(fabric).to_host().packets, 0U);
  EXPECT_EQ(change_rules(name_, "h3", dead(true)).error().code, ErrorCode::kInvalidArgument);
}

TEST_F(SwitchTest, MarksAboveTheThresholdWhatCanBeMarked) {
  PortRules rules;
  rules.classes[0] = {20'000, 20'000, 1, kNeverDrop, false};
  const Fabric fabric = must_switch(kSlow, 100'000, rules);
  unleash(fabric);
  const Receiver receiver(fabric);
  const Line line;
  send(fabric, receiver, tos_of(0, kEct0), 40, kFrame);
  const PortCounters after = counters(fabric);
  EXPECT_LE(after.classes[0].marked, 20U);
  EXPECT_GE(after.classes[0].marked + line.carried(), 20U);
  // On top of those: other classes and packets that cannot be marked.
  send(fabric, receiver, tos_of(1, kEct0), 20, kFrame);
  send(fabric, receiver, tos_of(0), 20, kFrame);
  EXPECT_EQ(counters(fabric).to_host().marked, after.classes[0].marked);
  const auto received = receiver.take(80);
  ASSERT_EQ(received.size(), 80U);
  const auto ce = std::count_if(received.begin(), received.end(), [](const Received& r) { return r.tos == kCe; });
  EXPECT_EQ(static_cast<std::uint64_t>(ce), after.classes[0].marked);
}

TEST_F(SwitchTest, RedMarksMoreTheDeeperTheQueue) {
  PortRules rules;
  rules.classes[0] = {0, 100'000, 1, kNeverDrop, false};
  const Fabric fabric = must_switch(kSlow, 100'000, rules);
  unleash(fabric);
  const Receiver receiver(fabric);
  const Line line;
  send(fabric, receiver, tos_of(0, kEct0), 90, kFrame);
  // The sum of i/100 over 90 packets is 41, with a variance of 16; each packet that has left takes less than 1 off it.
  const std::uint64_t marked = counters(fabric).to_host().marked;
  EXPECT_LE(marked, 41U + 16U);
  EXPECT_GE(marked + line.carried(), 41U - 16U);
}

TEST_F(SwitchTest, DropsAClassAboveItsThresholdAndNoOther) {
  PortRules rules;
  rules.classes[1].drop_above_bytes = 20'000;
  const Fabric fabric = must_switch(kSlow, 100'000, rules);
  unleash(fabric);
  const Receiver receiver(fabric);
  const Line line;
  send(fabric, receiver, tos_of(2), 30, kFrame);
  send(fabric, receiver, tos_of(1), 30, kFrame);
  const bool above_throughout = line.carried() < 10;
  send(fabric, receiver, tos_of(2), 30, kFrame);
  const PortCounters after = counters(fabric);
  EXPECT_EQ(after.classes[2].dropped(), 0U);
  EXPECT_EQ(after.classes[2].packets, 60U);
  // They came upon 30 kB, 10 above the threshold.
  EXPECT_TRUE(after.classes[1].dropped_selective == 30 || !above_throughout);
  EXPECT_EQ(after.classes[1].packets + after.classes[1].dropped_selective, 30U);
  EXPECT_EQ(after.to_host().dropped(), after.classes[1].dropped_selective);
}

TEST_F(SwitchTest, TheBufferHoldsWhatItSaysSharedByAllClasses) {
  const Fabric fabric = must_switch(kSlow, 40'000, {});
  unleash(fabric);
  const Receiver receiver(fabric);
  const Line line;
  send(fabric, receiver, tos_of(0), 25, kFrame);
  send(fabric, receiver, tos_of(5), 75, kFrame);
  const ClassCounters to = counters(fabric).to_host();
  EXPECT_GE(to.packets, 40U);
  EXPECT_LE(to.packets, 40U + line.carried());
  EXPECT_EQ(to.packets + to.dropped_buffer, 100U);
  EXPECT_LE(to.deepest_bytes, 40'000U);
  EXPECT_TRUE(to.deepest_bytes > 39'000 || to.dropped_buffer == 0);
  EXPECT_EQ(counters(fabric).classes[0].dropped(), 0U);
  EXPECT_EQ(receiver.take(to.packets).size(), to.packets) << "behind the program nothing is dropped";
  const auto status = fabric.status();
  ASSERT_TRUE(status);
  EXPECT_EQ(status->switches[0].ports[0].backstop_drops, 0U);
  EXPECT_EQ(status->ports[0].to_host.drops, to.dropped_buffer);
  EXPECT_EQ(status->ports[0].to_host.packets, to.packets);

  // HTB's bucket runs ahead of the line, so that all may be there before the virtual queue is empty.
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (counters(fabric).depth_bytes > 0 && std::chrono::steady_clock::now() < until) std::this_thread::yield();
  send(fabric, receiver, tos_of(0), 40, kFrame);
  EXPECT_EQ(counters(fabric).to_host().dropped(), to.dropped()) << "what the line has carried makes room";
}

TEST_F(SwitchTest, AHigherClassOvertakesALowerOne) {
  const Fabric fabric = must_switch(kSlow, 100'000, {});
  unleash(fabric);
  const Receiver receiver(fabric);
  const Line line;
  send(fabric, receiver, tos_of(1), 60, kFrame);
  send(fabric, receiver, tos_of(5), 5, kFrame, 1000);
  const std::uint64_t carried = line.carried();
  const auto order = sequences(receiver.take(65));
  ASSERT_EQ(order.size(), 65U);
  const auto last = std::find(order.rbegin(), order.rend(), 1004U);
  // HTB's bucket lets 15 go at once; the rest waits behind class 5 although it came first.
  EXPECT_LE(static_cast<std::uint64_t>(order.rend() - last), 5 + 16 + carried);
  EXPECT_EQ(counters(fabric).to_host().dropped(), 0U);
}

std::uint16_t checksum(const unsigned char* data, std::size_t size) {
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i < size; i += 2) sum += static_cast<std::uint32_t>(data[i] << 8 | data[i + 1]);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<std::uint16_t>(~sum);
}

TEST_F(SwitchTest, TrimsToAValidHeaderThatGoesFirst) {
  PortRules rules;
  rules.classes[1].trim = true;
  const Fabric fabric = must_switch(kSlow, 20'000, rules);
  unleash(fabric);
  const Receiver receiver(fabric);
  int raw = -1;
  on_host(fabric, 0, [&] { raw = socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_UDP); });
  ASSERT_GE(raw, 0);
  const Line line;
  send(fabric, receiver, tos_of(1, kEct0), 40, kFrame);
  const PortCounters after = counters(fabric);
  EXPECT_EQ(after.to_host().packets, 40U) << "a quarter of the buffer holds the headers of all others";
  EXPECT_LE(after.classes[1].trimmed, 20U);
  EXPECT_GE(after.classes[1].trimmed + line.carried(), 20U);
  EXPECT_EQ(after.classes[1].packets + after.classes[1].trimmed, 40U);
  EXPECT_EQ(after.classes[7].packets, after.classes[1].trimmed);
  EXPECT_EQ(after.classes[7].bytes, after.classes[7].packets * 138);
  const auto received = receiver.take(40);
  ASSERT_EQ(received.size(), 40U);
  std::uint64_t trimmed = 0;
  for (const Received& one : received) {
    if (one.payload_bytes == kFrame - 42) continue;
    ++trimmed;
    EXPECT_EQ(one.payload_bytes, 96U);
    EXPECT_EQ(one.tos, tos_of(7, kEct0));
    EXPECT_GE(one.sequence, 20U);
  }
  EXPECT_EQ(trimmed, after.classes[1].trimmed);
  unsigned char packet[2000];
  for (ssize_t n = 0; (n = recv(raw, packet, sizeof(packet), MSG_DONTWAIT)) > 0;) {
    EXPECT_EQ(checksum(packet, 20), 0);
    EXPECT_EQ(packet[2] << 8 | packet[3], n);
    EXPECT_EQ(packet[24] << 8 | packet[25], n - 20);
    EXPECT_TRUE(n != 124 || (packet[26] | packet[27]) == 0);
  }
  close(raw);
  // What is no whole UDP datagram, or has no trimming, is dropped as ever.
  send(fabric, receiver, tos_of(1), 40, kFrame);
  send(fabric, receiver, tos_of(2), 5, kFrame);
  EXPECT_EQ(counters(fabric).classes[2].dropped_buffer + counters(fabric).classes[2].packets, 5U);
  EXPECT_EQ(counters(fabric).classes[2].trimmed, 0U);
}

TEST_F(SwitchTest, KnowsTheClassOfIpv6AndPutsArpFirst) {
  const Fabric fabric = must_switch(kSlow * 100, 0, {});
  for (int host = 0; host < 2; ++host) {
    const std::string in = " -n " + fabric.namespace_of(host) + " ";
    shell("ip" + in + "addr add fd00::" + std::to_string(host + 1) + "/64 dev eth0 nodad");
    shell("ip" + in + "neigh replace fd00::" + std::to_string(2 - host) + " lladdr " + host_mac(1 - host) +
          " dev eth0 nud permanent");
  }
  ASSERT_TRUE(reset_counters(name_));
  on_host(fabric, 1, [] {
    const int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const int traffic_class = tos_of(3);
    ASSERT_EQ(setsockopt(fd, IPPROTO_IPV6, IPV6_TCLASS, &traffic_class, sizeof(traffic_class)), 0);
    sockaddr_in6 to{};
    to.sin6_family = AF_INET6;
    to.sin6_port = htons(9);
    to.sin6_addr.s6_addr[0] = 0xfd;
    to.sin6_addr.s6_addr[15] = 1;
    for (int i = 0; i < 7; ++i) {
      EXPECT_EQ(sendto(fd, "x", 1, 0, reinterpret_cast<sockaddr*>(&to), sizeof(to)), 1);
    }
    close(fd);
  });
  shell("ip -n " + fabric.namespace_of(1) + " neigh del 10.88.0.1 dev eth0");
  const Receiver receiver(fabric);
  send(fabric, receiver, tos_of(2), 1);
  ASSERT_EQ(receiver.take(1).size(), 1U);
  const PortCounters after = counters(fabric);
  EXPECT_EQ(after.classes[3].packets, 7U);
  EXPECT_EQ(after.classes[2].packets, 1U);
  EXPECT_GE(after.classes[7].packets, 1U) << "what ARP asked";
}

TEST_F(SwitchTest, WhereTheKernelRefusesAPlainFabricStillWorksAndRulesAreAnError) {
  FabricSpec plain = spec(2, 200'000'000);
  FabricSpec ruled = plain;
  ruled.rules.all.to_host.random = 0.01;
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(50);
    if (!forbid_bpf()) _exit(1);
    const auto refused = Fabric::up(ruled);
    if (refused || refused.error().code != ErrorCode::kUnavailable) _exit(2);
    if (refused.error().message.find("CONFIG_BPF_SYSCALL") == std::string::npos) _exit(3);
    UpReport report;
    if (!Fabric::up(plain, &report)) _exit(4);
    _exit(report.note.empty() ? 5 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  ASSERT_EQ(WEXITSTATUS(status), 0);
  const auto there = Fabric::status_of(name_);
  ASSERT_TRUE(there);
  EXPECT_TRUE(there->problems.empty()) << there->problems.front();
  EXPECT_EQ(there->buffer_kind, BufferKind::kBfifo);
  EXPECT_EQ(there->spec.buffer_bytes, 125'000U);
  const auto changed = change_rules(name_, "h0", [](PortRules&) { return Result<void>(); });
  ASSERT_FALSE(changed);
  EXPECT_EQ(changed.error().code, ErrorCode::kUnavailable);
  EXPECT_NE(changed.error().message.find("clustar fabric up"), std::string::npos) << changed.error().message;
}

bool is_loaded(std::uint32_t program) {
  bpf_attr attribute{};
  attribute.prog_id = program;
  const long fd = syscall(__NR_bpf, BPF_PROG_GET_FD_BY_ID, &attribute, sizeof(attribute));
  if (fd >= 0) close(static_cast<int>(fd));
  return fd >= 0;
}

TEST_F(SwitchTest, TheProgramGoesWithTheFabricAndALostOneIsNoticed) {
  const Fabric fabric = must_switch(200'000'000, 0, {});
  const auto status = fabric.status();
  ASSERT_TRUE(status && status->ports[0].program);
  const std::uint32_t program = status->ports[0].program->program_id;
  EXPECT_TRUE(is_loaded(program));
  shell("tc -n " + switch_namespace(name_) + " qdisc del dev port1 clsact");
  const auto spoilt = fabric.status();
  ASSERT_TRUE(spoilt && !spoilt->problems.empty());
  EXPECT_NE(spoilt->problems.front().find("lost its switch program"), std::string::npos) << spoilt->problems.front();
  ASSERT_TRUE(Fabric::remove(name_));
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  // The kernel clears a namespace in its own time.
  while (is_loaded(program) && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_FALSE(is_loaded(program));
}

}  // namespace
}  // namespace clustar::bench::fabric
