// Fabrics of several switches: every pair of hosts is joined, flows spread over equal paths, damage is seen and mended.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "bench/fabric/state.h"
#include "bench/fabric/topology_file.h"
#include "tests/fabric/fabric_under_test.h"
#include "tests/fabric/ping.h"

namespace clustar::bench::fabric {
namespace {

using Clock = std::chrono::steady_clock;

class LeafSpineTest : public FabricTest {
 protected:
  FabricSpec tiers(int hosts, int spines, std::uint64_t rate_bps) const {
    FabricSpec wanted = spec(hosts, rate_bps);
    wanted.spines = spines;
    return wanted;
  }

  // One packet from each of `ports` UDP source ports of host 0 to host 3; how many left leaf0 over each port.
  static std::map<std::string, std::uint64_t> spread(const Fabric& fabric, int ports) {
    const auto count = [&] {
      std::map<std::string, std::uint64_t> sent;
      const auto status = fabric.status().value();
      for (const SwitchPortStatus& port : status.switches.front().ports) sent[port.peer] = port.sent.packets;
      return sent;
    };
    const auto before = count();
    const int receiver = udp_receiver(fabric, 3, 4791);
    on_host(fabric, 0, [&] {
      const sockaddr_in to = address_of_host(3, 4791);
      for (int i = 0; i < ports; ++i) {
        const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        const sockaddr_in own = address_of_host(0, static_cast<std::uint16_t>(40000 + i));
        EXPECT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&own), sizeof(own)), 0);
        EXPECT_EQ(sendto(fd, "x", 1, 0, reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 1);
        close(fd);
      }
    });
    char byte = 0;
    for (int i = 0; i < ports; ++i) EXPECT_EQ(recv(receiver, &byte, 1, 0), 1);
    close(receiver);
    auto sent = count();
    for (auto& [peer, packets] : sent) packets -= before.at(peer);
    return sent;
  }

  std::string problem_of() const {
    const auto status = Fabric::status_of(name_);
    if (!status) return status.error().message;
    return status->problems.empty() ? "" : status->problems.front();
  }

  static void must_run(const std::string& command) { ASSERT_EQ(std::system(command.c_str()), 0) << command; }
};

TEST_F(LeafSpineTest, AllPairsReachEachOtherAndFlowsSpread) {
  UpReport report;
  const FabricSpec wanted = tiers(4, 2, 200'000'000);
  const Fabric fabric = must_up(wanted, &report);
  std::printf("4 hosts, 2 leaves, 2 spines in %.3f s\n", report.seconds);
  for (int from = 0; from < 4; ++from) {
    for (int to = 0; to < 4; ++to) EXPECT_TRUE(ping(fabric, from, to)) << from << " to " << to;
  }
  const auto sent = spread(fabric, 16);
  EXPECT_GT(sent.at("spine0"), 0U);
  EXPECT_GT(sent.at("spine1"), 0U);
  EXPECT_EQ(sent.at("spine0") + sent.at("spine1"), 16U);

  const auto status = fabric.status();
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_TRUE(status->problems.empty()) << status->problems.front();
  EXPECT_EQ(status->spec, fabric.spec());
  EXPECT_EQ(status->ports[3].address, "10.88.0.4");
  EXPECT_EQ(status->switches.size(), 4U);
  const auto ports = fabric.ports();
  ASSERT_EQ(ports.size(), 12U);
  EXPECT_EQ(fabric.switch_namespaces().back(), "clustar-" + name_ + "-spine1");
  std::size_t at = 0;
  for (const SwitchStatus& one : status->switches) {
    for (const SwitchPortStatus& port : one.ports) {
      EXPECT_EQ(ports[at].switch_namespace, one.net_namespace);
      EXPECT_EQ(ports[at].interface, port.interface);
      EXPECT_EQ(ports[at].rate_bps, port.rate_bps);
      EXPECT_EQ(ports[at].buffer_bytes, port.buffer_bytes);
      ++at;
    }
  }

  must_up(wanted, &report);
  EXPECT_EQ(report.change, Change::kUnchanged);
  std::filesystem::remove(state_path(name_));
  must_up(wanted, &report);
  EXPECT_EQ(report.change, Change::kUnchanged) << "the kernel knows without the file";
  must_up(tiers(4, 3, 200'000'000), &report);
  EXPECT_EQ(report.change, Change::kRebuilt);
  EXPECT_NE(report.before.find("spine2 is missing"), std::string::npos) << report.before;
}

TEST_F(LeafSpineTest, ProvesPacketsAtEverySwitch) {
  const Fabric fabric = must_up(tiers(4, 4, 100'000'000));
  const auto proof = fabric.prove();
  ASSERT_TRUE(proof) << proof.error().message;
  EXPECT_TRUE(proof->unseen_switches.empty()) << proof->unseen_switches.front();
  EXPECT_TRUE(proof->per_packet());
  EXPECT_EQ(proof->largest_bytes, 1514U);
  EXPECT_EQ(proof->allowed_bytes, 1514U);
}

TEST_F(LeafSpineTest, SeesDamageAndMendsIt) {
  const FabricSpec wanted = tiers(4, 2, 0);
  const std::string leaf = switch_namespace(name_, "leaf0");
  const std::pair<std::string, std::string> damages[] = {
      {"ip -n " + leaf + " link set to-spine1 down", "the link leaf0 - spine1 is down"},
      {"ip netns del " + switch_namespace(name_, "spine1"), "leaf0: the route to h2"},
      {"ip -n " + leaf + " link del to-spine0", "link leaf0 - spine0 is missing"},
      {"ip -n " + leaf + " route del 10.88.0.1/32", "leaf0: the route to h0 goes over []"},
      {"ip -n " + host_namespace(name_, 2) + " route del default", "host 2 has no default route"},
      {"ip netns exec " + leaf + " sh -c 'echo 0 > /proc/sys/net/ipv4/ip_forward'", "net.ipv4.ip_forward is '0'"},
      {"ip netns del " + host_namespace(name_, 1), "a host below 3 is missing"},
      {"tc -n " + leaf + " qdisc add dev to-spine0 root handle 1: htb", "has a rate without its queue"},
  };
  UpReport report;
  must_up(wanted);
  for (const auto& [command, expected] : damages) {
    must_run(command);
    // A deleted namespace's links go a moment later.
    const auto until = Clock::now() + std::chrono::seconds(5);
    std::string all;
    do {
      const auto status = Fabric::status_of(name_).value();
      all.clear();
      for (const std::string& one : status.problems) all += one + "\n";
    } while (all.find(expected) == std::string::npos && Clock::now() < until);
    EXPECT_NE(all.find(expected), std::string::npos) << command << ":\n" << all;
    const Fabric mended = must_up(wanted, &report);
    EXPECT_EQ(report.change, Change::kRepaired) << command;
    EXPECT_TRUE(ping(mended, 0, 3)) << command;
  }
}

TEST_F(LeafSpineTest, ADeadUplinkIsLeftOut) {
  const Fabric fabric = must_up(tiers(4, 2, 0));
  // At the far end: leaf0's own end only loses its carrier.
  must_run("ip -n " + switch_namespace(name_, "spine0") + " link set to-leaf0 down");
  const auto until = Clock::now() + std::chrono::seconds(5);
  const auto over_dead = [&] { return problem_of().find("is down") == std::string::npos; };
  while (over_dead() && Clock::now() < until) {
  }
  EXPECT_NE(problem_of().find("the link"), std::string::npos) << problem_of();
  std::map<std::string, std::uint64_t> sent;
  do {
    // The kernel takes note of the carrier within a second.
    on_host(fabric, 0, [&] {
      const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
      const sockaddr_in to = address_of_host(3, 9);
      sendto(fd, "x", 1, 0, reinterpret_cast<const sockaddr*>(&to), sizeof(to));
      close(fd);
    });
    std::array<char, 4096> text{};
    FILE* pipe = popen(("ip -n " + switch_namespace(name_, "leaf0") + " route").c_str(), "r");
    const std::size_t n = fread(text.data(), 1, text.size() - 1, pipe);
    pclose(pipe);
    if (std::string(text.data(), n).find("linkdown") != std::string::npos) break;
  } while (Clock::now() < until);
  sent = spread(fabric, 16);
  EXPECT_EQ(sent.at("spine0"), 0U);
  EXPECT_EQ(sent.at("spine1"), 16U);
}

TEST_F(LeafSpineTest, TwoSideBySideHashAlike) {
  const Fabric one = must_up(tiers(4, 2, 0));
  FabricSpec other = tiers(4, 2, 0);
  other.name += "-b";
  const auto second = Fabric::up(other);
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_TRUE(ping(*second, 0, 3));
  if (std::filesystem::exists("/proc/sys/net/ipv4/fib_multipath_hash_seed")) {
    EXPECT_EQ(spread(one, 16), spread(*second, 16));
  }
  EXPECT_TRUE(Fabric::remove(other.name));
  EXPECT_TRUE(ping(one, 0, 3));
  EXPECT_EQ(problem_of(), "");
}

TEST_F(LeafSpineTest, MakesWhatAFileSays) {
  const auto file = parse_topology(R"(
hosts = 3
switches = ["core0", "tor1", "agg0", "tor0", "agg1"]
links = [
  {between = ["h0", "tor0"]},
  {between = ["h1", "tor0"], mtu = 9000},
  {between = ["h2", "tor1"], rate = "40M", buffer = "60k"},
  {between = ["tor0", "agg0"], mtu = 9000},
  {between = ["agg1", "tor1"], rate = "off"},
  {between = ["agg0", "core0"]},
  {between = ["core0", "agg1"]},
]
[defaults]
rate = "100M"
)",
                                   "x.toml", name_);
  ASSERT_TRUE(file) << file.error().message;
  UpReport report;
  const Fabric fabric = must_up(*file, &report);
  for (int from = 0; from < 3; ++from) {
    for (int to = 0; to < 3; ++to) EXPECT_TRUE(ping(fabric, from, to)) << from << " to " << to;
  }
  const auto status = fabric.status();
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_TRUE(status->problems.empty()) << status->problems.front();
  EXPECT_EQ(status->spec, fabric.spec());
  const auto proof = fabric.prove();
  ASSERT_TRUE(proof) << proof.error().message;
  EXPECT_TRUE(proof->per_packet()) << proof->oversized_packets;
  must_up(*file, &report);
  EXPECT_EQ(report.change, Change::kUnchanged);
}

}  // namespace
}  // namespace clustar::bench::fabric
