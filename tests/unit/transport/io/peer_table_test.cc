#include "transport/io/peer_table.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace clustar::transport::io {
namespace {

// Its origins are numbers.
struct Numbered {
  using Origin = std::uint32_t;
  using Hash = std::hash<std::uint32_t>;
  std::vector<std::uint32_t> numbers;

  std::size_t paths() const { return numbers.size(); }
  Origin origin(std::size_t path) const { return numbers[path]; }
  std::string name_of(std::size_t path) const { return "number " + std::to_string(numbers[path]); }
};

TEST(PeerTable, PacketsAreTheirPeersOnEachPath) {
  PeerTable<Numbered> table("toy");
  EXPECT_FALSE(table.sender(1));
  const PeerId first = table.add({{1, 2}}).value();
  const PeerId second = table.add({{3, 0}}).value();
  EXPECT_NE(first, second);
  EXPECT_EQ(table.sender(1), first);
  EXPECT_EQ(table.sender(2), first);
  EXPECT_EQ(table.sender(3), second);
  EXPECT_EQ(table.sender(0), second);
  EXPECT_FALSE(table.sender(4));
  EXPECT_EQ(table.sender(0), second) << "a stranger in between changes nothing";
  EXPECT_EQ(table.find(second)->numbers, (std::vector<std::uint32_t>{3, 0}));
  EXPECT_EQ(table.size(), 2u);
}

TEST(PeerTable, APeerWithAnOriginOfAnotherIsRefusedAndLeavesNothing) {
  PeerTable<Numbered> table("toy");
  ASSERT_TRUE(table.add({{1, 2}}));
  const auto refused = table.add({{7, 2}});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(refused.error().message, "toy: number 2 is a peer already");
  EXPECT_FALSE(table.sender(7));
  EXPECT_EQ(table.size(), 1u);
  EXPECT_TRUE(table.add({{7, 8}}));
}

TEST(PeerTable, ARemovedPeerIsAStrangerAndItsNumberIsNotReused) {
  PeerTable<Numbered> table("toy");
  const PeerId first = table.add({{1, 2}}).value();
  ASSERT_EQ(table.sender(1), first);
  EXPECT_TRUE(table.remove(first));
  EXPECT_FALSE(table.remove(first));
  EXPECT_FALSE(table.sender(1)) << "also as the latest sender";
  EXPECT_EQ(table.find(first), nullptr);
  const PeerId again = table.add({{1, 2}}).value();
  EXPECT_NE(again, first);
  EXPECT_EQ(table.find(first), nullptr);
  EXPECT_FALSE(table.remove(first));
  EXPECT_EQ(table.sender(1), again);
  EXPECT_FALSE(table.remove(again + 1));
}

TEST(PeerTable, AsManyAsMayBe) {
  PeerTable<Numbered> table("toy");
  for (std::uint32_t i = 0; i < PeerTable<Numbered>::kMost; ++i) ASSERT_TRUE(table.add({{i}}));
  const std::uint32_t more = PeerTable<Numbered>::kMost;
  const auto refused = table.add({{more}});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
  EXPECT_NE(refused.error().message.find("65536"), std::string::npos);
  ASSERT_TRUE(table.remove(*table.sender(700)));
  const auto added = table.add({{more}});
  ASSERT_TRUE(added);
  EXPECT_EQ(table.sender(more), added.value());
}

// Against a map, with many seeds.
TEST(PeerTable, IsAMapThatForgets) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](std::uint32_t end) { return static_cast<std::uint32_t>(random() % end); };
    PeerTable<Numbered> table("toy");
    std::map<PeerId, std::vector<std::uint32_t>> model;
    std::map<std::uint32_t, PeerId> owners;
    for (int step = 0; step < 400; ++step) {
      if (below(3) != 0) {
        const std::vector<std::uint32_t> numbers{below(40), 100 + below(40)};
        const auto added = table.add({numbers});
        ASSERT_EQ(added.has_value(), !owners.contains(numbers[0]) && !owners.contains(numbers[1]));
        if (!added) continue;
        ASSERT_FALSE(model.contains(*added));
        model[*added] = numbers;
        for (const std::uint32_t number : numbers) owners[number] = *added;
      } else if (!model.empty()) {
        const auto gone = std::next(model.begin(), static_cast<std::ptrdiff_t>(random() % model.size()));
        for (const std::uint32_t number : gone->second) owners.erase(number);
        ASSERT_TRUE(table.remove(gone->first));
        ASSERT_EQ(table.find(gone->first), nullptr);
        model.erase(gone);
      }
      const std::uint32_t asked = below(140);
      const auto owner = owners.find(asked);
      ASSERT_EQ(table.sender(asked), owner == owners.end() ? std::nullopt : std::optional(owner->second)) << seed;
      ASSERT_EQ(table.size(), model.size());
    }
    std::size_t visited = 0;
    table.for_each([&](const Numbered& peer) { visited += owners.contains(peer.numbers[0]) ? 1u : 0u; });
    EXPECT_EQ(visited, model.size());
  }
}

}  // namespace
}  // namespace clustar::transport::io
