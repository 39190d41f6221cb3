#include <gtest/gtest.h>

#include "nccl_plugin/loss/comm_registry.h"

namespace clustar::nccl_plugin {
namespace {

CommFacts facts_of(std::uint64_t id, const char* name, std::uint32_t ranks, std::uint32_t nodes, int rank) {
  CommFacts facts;
  facts.comm_id = id;
  facts.name = name;
  facts.ranks = ranks;
  facts.nodes = nodes;
  facts.rank = rank;
  return facts;
}

TEST(CommRegistry, NetAndProfilerTellInAnyOrder) {
  for (const bool net_first : {true, false}) {
    CommRegistry registry;
    EXPECT_FALSE(registry.find(1));
    if (net_first) registry.add_net(1, 160);
    registry.add_profiler(facts_of(1, "dp", 8, 2, 3));
    if (!net_first) registry.add_net(1, 160);
    const CommFacts facts = registry.find(1).value();
    EXPECT_EQ(facts.comm_id, 1u);
    EXPECT_EQ(facts.name, "dp");
    EXPECT_EQ(facts.ranks, 8u);
    EXPECT_EQ(facts.nodes, 2u);
    EXPECT_EQ(facts.rank, 3);
    EXPECT_EQ(facts.traffic_class, 160);
    EXPECT_FALSE(registry.find(2));
  }
}

TEST(CommRegistry, UsersAreReferences) {
  CommRegistry registry;
  registry.add_net(1, 160);
  registry.add_net(1, 7);
  registry.add_profiler(facts_of(1, "dp", 8, 2, 3));
  registry.add_profiler(facts_of(1, "other", 8, 2, 4));
  EXPECT_EQ(registry.find(1)->name, "dp");
  EXPECT_EQ(registry.find(1)->rank, 3);
  EXPECT_EQ(registry.find(1)->traffic_class, 160);
  registry.remove_net(1);
  registry.remove_profiler(1);
  EXPECT_EQ(registry.find(1)->traffic_class, 160);
  EXPECT_EQ(registry.find(1)->ranks, 8u);
  // What one side told ends with its last user.
  registry.remove_profiler(1);
  EXPECT_EQ(registry.find(1)->ranks, 0u);
  EXPECT_EQ(registry.find(1)->name, "");
  EXPECT_EQ(registry.find(1)->traffic_class, 160);
  registry.remove_net(1);
  EXPECT_FALSE(registry.find(1));
  registry.add_profiler(facts_of(1, "dp", 8, 2, 3));
  EXPECT_EQ(registry.find(1)->traffic_class, -1);
}

TEST(CommRegistry, RemovingWhatIsNotThereIsNothing) {
  CommRegistry registry;
  registry.remove_net(1);
  registry.remove_profiler(1);
  registry.add_net(1, 5);
  registry.remove_profiler(1);
  EXPECT_EQ(registry.find(1)->traffic_class, 5);
  registry.remove_net(1);
  registry.remove_net(1);
  EXPECT_FALSE(registry.find(1));
}

TEST(CommFacts, EdgesAreNodesOrOnOneNodeRanks) {
  EXPECT_EQ(facts_of(1, "", 8, 4, 0).edges(), 8u);
  EXPECT_EQ(facts_of(1, "", 8, 1, 0).edges(), 8u);
}

}  // namespace
}  // namespace clustar::nccl_plugin
