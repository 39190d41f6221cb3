// All members of a group run their programs over a network that delivers when it likes: the result is exact, in the
// plan's order of addition, and nothing stands still, however few messages may be posted.
#include "paraexpress/core/program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <tuple>

#include "paraexpress/core/plans/build.h"
#include "transport/base/rng.h"

namespace clustar::paraexpress {
namespace {

Group shuffled_group(std::uint32_t ranks, std::uint32_t region_size, std::uint64_t seed) {
  Group group = make_group(ranks, 0, equal_regions(ranks, region_size, 4));
  Rng rng(seed);
  for (std::size_t i = group.order.size(); seed != 0 && i > 1; --i)
    std::swap(group.order[i - 1], group.order[rng.below(i)]);
  return group;
}

float contribution(Member rank, std::uint64_t element) {
  return 1.0F / static_cast<float>(3 + rank * 7 + element % 1013) * (element % 2 == 0 ? 1.0F : -1e3F);
}

// What a shard's root has of an element, added as the plan says.
float expected(const Forest& forest, std::size_t shard, Member member, std::uint64_t element) {
  float sum = 0;
  bool first = true;
  for (const Member addend : role_of(forest, shard, member).addends) {
    const float value = addend == member ? contribution(member, element) : expected(forest, shard, addend, element);
    sum = first ? value : sum + value;
    first = false;
  }
  return sum;
}

struct Limits {
  std::uint64_t chunk;
  std::uint32_t window;
  std::uint32_t posted;  // per link
};

// Members in one process. A message goes from sender's elements into what the receiver posted, when both ends have
// posted it: it ends at both ends at times of their own.
class Cluster {
 public:
  Cluster(const Forest& forest, Collective collective, std::uint64_t count, const Limits& limits, std::uint64_t seed)
      : limits_(limits), ranges_(element_ranges(forest, count)), rng_(seed) {
    for (Member member = 0; member < forest.ranks; ++member) {
      one_.push_back({Program(seat_of(forest, member), collective, ranges_, limits.chunk, limits.window), {}, {}, {}});
      for (std::uint64_t i = 0; i < count; ++i) {
        one_[member].elements.push_back(collective == Collective::kAllReduce ? contribution(member, i) : -1.0F);
      }
      const std::size_t links = one_[member].program.links();
      one_[member].places.assign(links, std::vector<std::vector<float>>(limits.window));
      one_[member].posted.resize(links);
    }
  }
  std::vector<float>& elements(Member member) { return one_[member].elements; }

  // False: it stands still.
  bool run() {
    std::vector<Member> order(one_.size());
    for (Member member = 0; member < order.size(); ++member) order[member] = member;
    for (;;) {
      bool moved = false;
      for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[rng_.below(i)]);
      for (const Member member : order) moved |= step(member);
      if (std::ranges::all_of(one_, [](const One& one) { return one.program.done(); })) return true;
      if (!moved && ++idle_ > 100) return false;
      if (moved) idle_ = 0;
    }
  }

 private:
  struct Posted {
    Program::Message message;
    bool arrived = false;
  };
  struct One {
    Program program;
    std::vector<float> elements;
    std::vector<std::vector<std::vector<float>>> places;  // by link and place
    std::vector<std::deque<Posted>> posted;               // by link
  };

  bool step(Member member) {
    One& one = one_[member];
    bool moved = false;
    for (std::size_t link = 0; link < one.program.links(); ++link) {
      auto& posted = one.posted[link];
      if (one.program.link(link).sends && rng_.chance(0.7)) moved |= deliver(member, link);
      while (!posted.empty() && posted.front().arrived && rng_.chance(0.7)) {
        posted.pop_front();
        one.program.ended(link);
        moved = true;
      }
      while (one.program.under_way(link) < limits_.posted && rng_.chance(0.8)) {
        const auto message = one.program.next(link);
        if (!message) break;
        posted.push_back({*message});
        one.program.posted(link);
        moved = true;
      }
    }
    if (const auto sum = rng_.chance(0.5) ? one.program.next_sum() : std::nullopt) {
      add(one, *sum);
      one.program.summed();
      moved = true;
    }
    return moved;
  }

  void add(One& one, const Program::Sum& sum) {
    for (std::uint64_t i = sum.range.begin; i < sum.range.end; ++i) {
      float total = 0;
      bool first = true;
      for (const auto& input : sum.inputs) {
        const float value = input.link == Program::Sum::kOwn
                                ? one.elements[i]
                                : one.places[input.link][input.place].at(i - sum.range.begin);
        total = first ? value : total + value;
        first = false;
      }
      one.elements[i] = total;
    }
  }

  bool deliver(Member from, std::size_t link) {
    One& sender = one_[from];
    const Program::Link facts = sender.program.link(link);
    One& receiver = one_[facts.peer];
    std::size_t theirs = 0;
    while (receiver.program.link(theirs).peer != from || receiver.program.link(theirs).sends ||
           receiver.program.link(theirs).up != facts.up) {
      ++theirs;
    }
    const auto waits = [](const Posted& posted) { return !posted.arrived; };
    auto& to = receiver.posted[theirs];
    auto& sent = sender.posted[link];
    const auto out = std::find_if(sent.begin(), sent.end(), waits);
    const auto in = std::find_if(to.begin(), to.end(), waits);
    if (out == sent.end() || in == to.end()) return false;
    EXPECT_EQ(out->message.range.begin, in->message.range.begin) << "both ends know the order";
    EXPECT_EQ(out->message.range.end, in->message.range.end);
    const auto first = sender.elements.begin() + static_cast<std::ptrdiff_t>(out->message.range.begin);
    const auto last = sender.elements.begin() + static_cast<std::ptrdiff_t>(out->message.range.end);
    if (facts.up) {
      receiver.places[theirs][in->message.place].assign(first, last);
    } else {
      std::copy(first, last, receiver.elements.begin() + static_cast<std::ptrdiff_t>(in->message.range.begin));
    }
    out->arrived = in->arrived = true;
    return true;
  }

  const Limits limits_;
  const std::vector<ElementRange> ranges_;
  Rng rng_;
  std::vector<One> one_;
  int idle_ = 0;
};

TEST(Program, EveryPlanGivesItsExactSumOnEveryRankInAnyOrderOfEvents) {
  int runs = 0;
  for (std::uint32_t n = 1; n <= 17; ++n) {
    for (std::uint64_t seed = 0; seed < 6; ++seed) {
      const Group group = shuffled_group(n, 4, seed);
      for (const Plan plan : kPlans) {
        if (!makes_sense(plan, group)) continue;
        const Forest forest = build(plan, group);
        Rng rng(seed * 100 + n);
        const std::uint64_t count = seed == 0 ? n - 1 : rng.below(700);
        const Limits limits{1 + rng.below(90), 1 + static_cast<std::uint32_t>(rng.below(3)),
                            1 + static_cast<std::uint32_t>(rng.below(3))};
        Cluster cluster(forest, Collective::kAllReduce, count, limits, seed);
        ASSERT_TRUE(cluster.run()) << to_string(plan) << " n=" << n << " stands still, seed " << seed;
        const auto ranges = element_ranges(forest, count);
        for (std::size_t shard = 0; shard < ranges.size(); ++shard) {
          for (std::uint64_t i = ranges[shard].begin; i < ranges[shard].end; i += 13) {
            const float sum = expected(forest, shard, forest.shards[shard].root, i);
            for (Member member = 0; member < n; ++member) {
              ASSERT_EQ(cluster.elements(member)[i], sum) << to_string(plan) << " n=" << n << " element " << i;
            }
          }
        }
        ++runs;
      }
    }
  }
  EXPECT_GT(runs, 400);
}

TEST(Program, AnAllGatherBringsEachBlockToAll) {
  for (std::uint32_t n = 1; n <= 9; ++n) {
    for (const Plan plan : {Plan::kDirect, Plan::kRing}) {
      const Forest forest = build(plan, shuffled_group(n, 3, n));
      constexpr std::uint64_t kBlock = 37;
      Cluster cluster(forest, Collective::kAllGather, n * kBlock, {10, 1, 2}, n);
      for (Member rank = 0; rank < n; ++rank) {
        for (std::uint64_t i = 0; i < kBlock; ++i) cluster.elements(rank)[rank * kBlock + i] = static_cast<float>(rank);
      }
      ASSERT_TRUE(cluster.run()) << to_string(plan) << " n=" << n;
      for (Member member = 0; member < n; ++member) {
        for (std::uint64_t i = 0; i < n * kBlock; ++i) {
          const std::uint64_t block = i / kBlock;
          ASSERT_EQ(cluster.elements(member)[i], static_cast<float>(block)) << to_string(plan) << " n=" << n;
        }
      }
    }
  }
}

TEST(Program, ALinkOfARingGetsItsMessagesInTheRingsOrder) {
  const Group group = make_group(4, 0, equal_regions(4, 4, 1));
  const Forest forest = build(Plan::kRing, group);
  const Program program(seat_of(forest, 2), Collective::kAllReduce, element_ranges(forest, 4), 1, 1);
  for (std::size_t link = 0; link < program.links(); ++link) {
    const Program::Link facts = program.link(link);
    EXPECT_EQ(facts.elements, 3U) << "of four shards, all but one pass each link";
    const auto first = program.next(link);
    if (facts.sends && facts.up) {
      ASSERT_TRUE(first) << "every rank begins with the shard of which it is the leaf";
      EXPECT_EQ(role_of(forest, first->range.begin, 2).children.size(), 0U);
    } else if (facts.up) {
      ASSERT_TRUE(first);
      EXPECT_EQ(role_of(forest, first->range.begin, facts.peer).children.size(), 0U);
    } else {
      EXPECT_FALSE(first && facts.sends) << "nobody has a result yet";
    }
  }
}

TEST(Program, NoElementsAreDoneAtOnce) {
  const Forest forest = build(Plan::kDirect, make_group(3, 0, equal_regions(3, 3, 1)));
  const Program program(seat_of(forest, 1), Collective::kAllReduce, element_ranges(forest, 0), 8, 1);
  EXPECT_TRUE(program.done());
  EXPECT_EQ(program.links(), 0U);
}

}  // namespace
}  // namespace clustar::paraexpress
