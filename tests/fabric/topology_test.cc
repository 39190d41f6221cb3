// What follows from a spec: nodes, links, shortest paths, and what a topology file may say. No kernel, no root.
#include "bench/fabric/topology.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "bench/fabric/namespaces.h"
#include "bench/fabric/next_hops.h"
#include "bench/fabric/router.h"
#include "bench/fabric/topology_file.h"
#include "tests/fabric/fabric_under_test.h"

namespace clustar::bench::fabric {
namespace {

using Names = std::vector<std::string>;

FabricSpec tiers(int hosts, int spines, int leaves, std::uint64_t rate_bps) {
  FabricSpec spec;
  spec.hosts = hosts;
  spec.spines = spines;
  spec.leaves = leaves;
  spec.rate_bps = rate_bps;
  return spec;
}

TEST(FabricTopology, ASingleSwitchIsABridge) {
  FabricSpec spec;
  spec.hosts = 3;
  const Topology topology = topology_of(checked(spec).value());
  ASSERT_EQ(topology.nodes.size(), 4U);
  EXPECT_EQ(topology.nodes[3].net_namespace, "clustar-clustar-sw");
  EXPECT_EQ(topology.nodes[3].kind, NodeKind::kBridgeSwitch);
  EXPECT_FALSE(topology.is_routed());
  ASSERT_EQ(topology.links.size(), 3U);
  const auto& ends = topology.links[2].ends;
  EXPECT_EQ(ends[0].interface, "eth0");
  EXPECT_EQ(ends[0].mac, "02:58:00:00:00:03");
  EXPECT_EQ(ends[0].queue_bytes, kHostQueueBytes);
  EXPECT_EQ(ends[1].interface, "port2");
  EXPECT_EQ(ends[1].queue_bytes, 625'000U);
}

TEST(FabricTopology, TwoTiersAreNotOversubscribedUnlessAsked) {
  const FabricSpec spec = checked(tiers(6, 4, 0, 200'000'000)).value();
  EXPECT_EQ(spec.leaves, 2);
  EXPECT_EQ(spec.uplink_rate_bps, 150'000'000U) << "3 hosts of 200M over 4 spines";
  EXPECT_EQ(spec.uplink_buffer_bytes, 100'000U);
  const Topology topology = topology_of(spec);
  EXPECT_EQ(topology.nodes.size(), 6U + 2 + 4);
  EXPECT_EQ(topology.links.size(), 6U + 8);
  EXPECT_TRUE(topology.is_routed());
  EXPECT_EQ(topology.nodes[2].name, "h2");
  EXPECT_EQ(topology.links[2].ends[1].node, 6) << "h2 is the last of leaf0's block";
  EXPECT_EQ(topology.links[3].ends[1].node, 7);
  EXPECT_EQ(topology.nodes[7].address, "10.88.1.2");
  std::set<std::string> macs;
  for (const TopologyLink& link : topology.links) {
    for (const LinkEnd& end : link.ends) EXPECT_TRUE(macs.insert(end.mac).second) << end.mac;
  }
  const auto ports = switch_ports(topology);
  EXPECT_EQ(ports.size(), 6U + 16);
  EXPECT_EQ(ports[3].switch_namespace, "clustar-clustar-leaf0");
  EXPECT_EQ(ports[3].interface, "to-spine0");
  EXPECT_EQ(ports[3].peer, "spine0");
  EXPECT_EQ(ports[3].rate_bps, 150'000'000U);

  FabricSpec oversubscribed = tiers(8, 2, 2, 1'000'000'000);
  oversubscribed.uplink_rate_bps = 100'000'000;
  EXPECT_EQ(checked(oversubscribed)->uplink_rate_bps, 100'000'000U);
  EXPECT_EQ(checked(tiers(4, 2, 2, 0))->uplink_rate_bps, 0U);
}

TEST(FabricTopology, HostsAreSpreadEvenly) {
  for (int hosts = 2; hosts < 40; ++hosts) {
    for (int leaves = 2; leaves <= hosts; ++leaves) {
      std::vector<int> count(static_cast<std::size_t>(leaves));
      const auto links = links_of(checked(tiers(hosts, 1, leaves, 0)).value());
      for (int host = 0; host < hosts; ++host) {
        ++count[static_cast<std::size_t>(std::stoi(links[static_cast<std::size_t>(host)].b.substr(4)))];
      }
      const auto [low, high] = std::minmax_element(count.begin(), count.end());
      EXPECT_LE(*high - *low, 1) << hosts << " hosts, " << leaves << " leaves";
    }
  }
}

TEST(FabricTopology, RefusesTiersThatCannotBe) {
  EXPECT_FALSE(checked(tiers(4, 65, 2, 0)));
  EXPECT_FALSE(checked(tiers(4, 2, 1, 0)));
  EXPECT_TRUE(contains(checked(tiers(4, 2, 5, 0)).error().message, "2 to 4"));
  FabricSpec spec;
  spec.leaves = 2;
  EXPECT_TRUE(contains(checked(spec).error().message, "--spine"));
  spec = {};
  spec.delay_ns = kMaxDelayNs + 1;
  EXPECT_TRUE(contains(checked(spec).error().message, "100ms"));
  spec = tiers(4, 2, 2, 0);
  spec.uplink_buffer_bytes = 100'000;
  EXPECT_FALSE(checked(spec));
}

TEST(FabricTopology, LinksTellTheSimplestForm) {
  FabricSpec bridge;
  bridge.hosts = 3;
  FabricSpec own = tiers(4, 2, 2, 100'000'000);
  own.links = links_of(checked(own).value());
  own.links.back().rate_bps = 50'000'000;
  own.switches = switches_of(checked(tiers(4, 2, 2, 0)).value());
  own.spines = own.leaves = 0;
  own.uplink_rate_bps = own.uplink_buffer_bytes = 0;
  for (const FabricSpec& one : {bridge, tiers(5, 3, 2, 100'000'000), tiers(4, 2, 3, 0), own}) {
    const auto spec = checked(one);
    ASSERT_TRUE(spec) << spec.error().message;
    EXPECT_EQ(spec_of(spec->name, spec->hosts, switches_of(*spec), links_of(*spec)), *spec) << describe(*spec);
  }
}

TEST(FabricTopology, NamesWhatDiffers) {
  const FabricSpec wanted = checked(tiers(4, 2, 2, 100'000'000)).value();
  EXPECT_EQ(difference(wanted, wanted), "");
  EXPECT_EQ(difference(wanted, checked(tiers(4, 3, 2, 100'000'000)).value()), "spine2 is missing");
  EXPECT_EQ(difference(checked(tiers(5, 2, 2, 100'000'000)).value(), wanted), "h4 is too much");
  FabricSpec other = wanted;
  other.uplink_rate_bps = 8'000'000;
  EXPECT_EQ(difference(other, wanted), "link leaf0 - spine0: 8M instead of 100M");
}

TEST(FabricTopology, EveryShortestPathIsTaken) {
  // 0 - 2 - {3, 4} - 5 - 1, and a way round 2 - 6 - 7 - 5 that is longer.
  Graph graph;
  graph.forwards = {false, false, true, true, true, true, true, true};
  graph.edges = {{0, 2}, {1, 5}, {2, 3}, {2, 4}, {3, 5}, {4, 5}, {2, 6}, {6, 7}, {7, 5}};
  const auto hops = next_hops(graph, 1);
  EXPECT_EQ(hops[0], std::vector<int>{0});
  EXPECT_EQ(hops[2], (std::vector<int>{2, 3}));
  EXPECT_EQ(hops[3], std::vector<int>{4});
  EXPECT_EQ(hops[6], (std::vector<int>{7}));
  EXPECT_TRUE(hops[1].empty());
}

TEST(FabricTopology, HostsForwardNothingAndIslandsHaveNoWay) {
  Graph graph;
  graph.forwards = {false, false, false, true, true, true};
  graph.edges = {{0, 3}, {1, 3}, {1, 4}, {2, 4}};
  const auto hops = next_hops(graph, 2);
  EXPECT_TRUE(hops[0].empty()) << "the only way is through host 1";
  EXPECT_TRUE(hops[3].empty());
  EXPECT_EQ(hops[1], std::vector<int>{2});
  EXPECT_TRUE(hops[5].empty());
}

TEST(FabricTopology, RoutesNameEveryNextHop) {
  const Topology topology = topology_of(checked(tiers(4, 2, 2, 0)).value());
  const auto lines = route_lines(topology);
  EXPECT_TRUE(contains(lines[0], "addr add 10.88.0.1/32 dev eth0")) << lines[0];
  EXPECT_TRUE(contains(lines[0], "route add default via 10.88.1.1 dev eth0 onlink")) << lines[0];
  EXPECT_TRUE(contains(lines[4],
                       "route add 10.88.0.3/32 nexthop via 10.88.1.3 dev to-spine0 onlink nexthop via "
                       "10.88.1.4 dev to-spine1 onlink"))
      << lines[4];
  EXPECT_TRUE(contains(lines[7], "route add 10.88.0.4/32 via 10.88.1.2 dev to-leaf1 onlink")) << lines[7];
  EXPECT_EQ(next_interfaces(topology)[4][3], (Names{"to-spine0", "to-spine1"}));
}

TEST(FabricTopology, KnowsTheNamespacesOfSwitches) {
  EXPECT_EQ(parse_namespace("clustar-a-b-leaf12")->node, "leaf12");
  EXPECT_EQ(parse_namespace("clustar-a-b-leaf12")->fabric, "a-b");
  EXPECT_TRUE(parse_namespace("clustar-x-spine0")->is_switch());
  EXPECT_FALSE(parse_namespace("clustar-x-wire")->is_switch());
  for (const char* name : {"clustar-x-leaf", "clustar-x-leaf01", "clustar-x-leaf250", "clustar-x-probe",
                           "clustar-x-wire0", "clustar-test-77-probe", "clustar-leaf0"}) {
    EXPECT_FALSE(parse_namespace(name)) << name;
  }
}

constexpr const char* kHead = "hosts = 2\nswitches = [\"leaf0\", \"leaf1\"]\n";
constexpr const char* kLinks =
    "[[links]]\nbetween = [\"h0\", \"leaf0\"]\n[[links]]\nbetween = [\"leaf1\", \"h1\"]\n"
    "[[links]]\nbetween = [\"leaf1\", \"leaf0\"]\n";

TEST(FabricTopologyFile, ReadsWhatIsThere) {
  const auto spec = parse_topology(std::string(kHead) + "[defaults]\nrate = \"100M\"\nmtu = 9000\n" + kLinks +
                                       "rate = \"40M\"\nbuffer = \"50k\"\nmtu = 1500\ndelay = \"20us\"\n",
                                   "x.toml", "mine");
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->name, "mine");
  ASSERT_EQ(spec->links.size(), 3U);
  EXPECT_EQ(spec->links[1], (LinkSpec{"h1", "leaf1", 100'000'000, 100'000, 9000, 0}));
  EXPECT_EQ(spec->links[2], (LinkSpec{"leaf0", "leaf1", 40'000'000, 50'000, 1500, 20'000}));
  EXPECT_EQ(spec->mtu, 9000);
}

TEST(FabricTopologyFile, CommentsAndTextsAreNoLevels) {
  const std::string dots(200, '.'), brackets(200, '[');
  EXPECT_TRUE(
      parse_topology("# " + dots + " \"" + brackets + "\n" + kHead + "# it's '''\n" + kLinks, "x.toml", "mine"));
  const auto spec =
      parse_topology(std::string(kHead) + kLinks + "rate = \"" + dots + brackets + "\"\n", "x.toml", "mine");
  ASSERT_FALSE(spec);
  EXPECT_TRUE(contains(spec.error().message, "is not a rate")) << spec.error().message;
}

TEST(FabricTopologyFile, OneSwitchMayBeABridgeWithUnequalPorts) {
  const auto spec = parse_topology(
      "hosts = 2\nswitches = [\"sw\"]\nlinks = [{between = [\"h0\", \"sw\"]}, "
      "{between = [\"h1\", \"sw\"], rate = \"off\"}]\n",
      "x.toml", "mine");
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_FALSE(topology_of(*spec).is_routed());
  EXPECT_EQ(spec->links[1].rate_bps, 0U);
}

TEST(FabricTopologyFile, NamesTheLineAndWhatIsAllowed) {
  const std::string head = kHead;
  const std::string all = head + kLinks;
  const std::pair<std::string, const char*> wrong[] = {
      {"hosts = ", "x.toml"},
      {"hosts = 2\n", "'switches' is missing"},
      {"hosts = 1\nswitches = []\nlinks = []\n", "x.toml:1: hosts: allowed: 2 to 250"},
      {head + "colour = 1\n" + kLinks, "x.toml:3: the file: unknown key 'colour'; allowed: hosts"},
      {head + "links = 3\n", "x.toml:3: links: must be [[links]]"},
      {head + "[defaults]\nrate = \"fast\"\n" + kLinks, "x.toml:4: rate: 'fast' is not a rate; allowed: 1M to 400G"},
      {all + "mtu = 100\n", "x.toml:9: mtu: allowed: 1280 to 9216"},
      {all + "delay = \"1s\"\n", "x.toml:9: delay: '1s' is not a delay; allowed: 0 to 100ms"},
      {all + "buffer = \"9\"\n", "link leaf1 - leaf0: a buffer of 9 bytes; allowed: 1514"},
      {all + "loss = 1\n", "x.toml:9: links: unknown key 'loss'; allowed: between"},
      {all + "[[links]]\nrate = \"1G\"\n", "'between' is missing"},
      {all + "[[links]]\nbetween = [\"h0\"]\n", "x.toml:10: between: must be a list of 2 names"},
      {all + "[[links]]\nbetween = [\"h0\", \"leaf1\"]\n", "this host has a link already"},
      {all + "[[links]]\nbetween = [\"leaf0\", \"leaf1\"]\n", "is there twice"},
      {all + "[[links]]\nbetween = [\"leaf0\", \"leaf0\"]\n", "both ends are the same"},
      {all + "[[links]]\nbetween = [\"leaf0\", \"spine7\"]\n", "there is no 'spine7'"},
      {all + "[[links]]\nbetween = [\"h0\", \"h1\"]\n", "two hosts"},
      {"hosts = 2\nswitches = [\"leaf0\", \"leaf0\"]\n" + std::string(kLinks), "two switches 'leaf0'"},
      {"hosts = 2\nswitches = [\"leaf0\", \"left\"]\n" + std::string(kLinks), "'left' cannot name a switch; allowed:"},
      {"hosts = 2\nswitches = [\"leaf0\", \"sw\"]\n" + std::string(kLinks), "bridges could form loops"},
      {"hosts = 3\nswitches = [\"leaf0\", \"leaf1\"]\n" + std::string(kLinks), "host h2 has no link"},
      {head + "links = [{between = [\"h0\", \"leaf0\"]}, {between = [\"h1\", \"leaf1\"]}]\n", "h1 cannot reach h0"},
      {"hosts = 2\nswitches = [\"leaf0\", \"leaf1\", \"core0\"]\n" + std::string(kLinks) +
           "[[links]]\nbetween = [\"core0\", \"leaf0\"]\n",
       "'core0' is on no shortest path"},
  };
  for (const auto& [content, expected] : wrong) {
    const auto spec = parse_topology(content, "x.toml", "mine");
    ASSERT_FALSE(spec) << expected;
    EXPECT_EQ(spec.error().code, ErrorCode::kInvalidArgument);
    EXPECT_TRUE(contains(spec.error().message, expected)) << expected << "\n" << spec.error().message;
  }
  // Each of these once had the stack or the machine's memory.
  const auto times = [](int n, const std::string& one) {
    std::string text;
    for (int i = 0; i < n; ++i) text += one;
    return text;
  };
  for (const std::string& deep :
       {std::string(200'000, '['), "a" + std::string(100, '.') + "a = 1", "[" + std::string(100, '{'),
        "{" + times(100'000, "\"a\".") + "a = 1}", "{" + times(100'000, "\"=\".") + "a = 1}",
        "{" + times(100'000, "'\\'.") + "a = 1}", times(100'000, "[\"]\","), times(100'000, "['\\]',"),
        times(100'000, "[\"\\\"]\",")}) {
    const auto spec = parse_topology("\nhosts = " + deep, "x.toml", "mine");
    ASSERT_FALSE(spec);
    ASSERT_TRUE(contains(spec.error().message, "x.toml:2: more than 64 levels")) << spec.error().message;
  }
  for (const char* quotes : {"\"\"\"", "'''"}) {
    const auto spec = parse_topology("hosts = " + std::string(quotes) + "\n# " + quotes, "x.toml", "mine");
    ASSERT_FALSE(spec);
    EXPECT_TRUE(contains(spec.error().message, "x.toml:1: a text of several lines")) << spec.error().message;
  }
  EXPECT_TRUE(contains(read_topology_file("/dev/zero", "mine").error().message, "allowed: 1048576 bytes"));
  EXPECT_TRUE(contains(read_topology_file("/", "mine").error().message, "cannot read '/': Is a directory"));
  EXPECT_TRUE(contains(read_topology_file("/no/such.toml", "mine").error().message,
                       "cannot read '/no/such.toml': No such file"));
}

}  // namespace
}  // namespace clustar::bench::fabric
