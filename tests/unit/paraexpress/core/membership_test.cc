// Ranks join, leave and die at any moment, in simulated time.
#include "paraexpress/core/membership.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <set>
#include <tuple>
#include <utility>

#include "transport/base/rng.h"

namespace clustar::paraexpress {
namespace {

using Step = MembershipRound::Step;
using Numbers = std::vector<std::uint64_t>;
using Processes = std::vector<int>;

constexpr std::uint32_t kMost = 6;

// What processes do together: it ends for each at a time of its own, when all have begun it. Where one is gone before
// all have ended, those that have not may fail: the strict contract.
class World {
 public:
  explicit World(std::uint64_t seed) : rng(seed) {}

  using Ended = std::function<void(std::optional<Numbers> maxima, std::uint64_t sum)>;
  using Key = std::tuple<std::uint64_t, char, std::uint64_t>;  // epoch, kind, number

  void after(std::uint64_t least, std::uint64_t most, std::function<void()> what) {
    events_.emplace(std::pair{now + least + rng.below(most - least + 1), order_++}, std::move(what));
  }
  void together(const Key& key, int self, const Processes& wanted, const Numbers& numbers, Ended ended) {
    Meeting& one = meetings_[key];
    if (one.wanted.empty()) one.wanted = wanted;
    EXPECT_EQ(one.wanted, wanted) << "epoch " << std::get<0>(key) << " has two memberships";
    EXPECT_TRUE(std::ranges::count(wanted, self) == 1 && !one.begun.contains(self));
    one.begun[self] = {numbers, std::move(ended)};
    if (std::ranges::any_of(wanted, [&](int other) { return gone.contains(other) && !one.begun.contains(other); })) {
      return fail_all(one);
    }
    if (one.begun.size() < wanted.size()) return;
    Numbers maxima;
    std::uint64_t sum = 0;
    for (const auto& [who, begun] : one.begun) {
      maxima.resize(begun.numbers.size());
      for (std::size_t i = 0; i < maxima.size(); ++i) maxima[i] = std::max(maxima[i], begun.numbers[i]);
      sum += begun.numbers.back();
    }
    for (auto& [who, begun] : one.begun) {
      after(1, 20, [this, &one, who = who, maxima, sum] {
        const bool broken = std::ranges::any_of(one.wanted, [&](int other) { return gone.contains(other); });
        if (broken && rng.below(2) == 0) return end(one, who, std::nullopt, 0);
        end(one, who, maxima, sum);
      });
    }
  }
  void lose(int who) {
    gone.insert(who);
    for (auto& [key, one] : meetings_) {
      if (std::ranges::count(one.wanted, who) > 0 && one.begun.size() < one.wanted.size()) fail_all(one);
    }
  }
  void run() {
    while (!events_.empty()) {
      const auto first = events_.begin();
      now = first->first.first;
      ASSERT_LT(now, 1'000'000U) << "it hangs";
      const std::function<void()> what = std::move(first->second);
      events_.erase(first);
      what();
    }
  }

  Rng rng;
  std::uint64_t now = 0;
  std::set<int> gone{};                     // dead, or failed
  std::map<std::uint64_t, Processes> of{};  // by epoch: who is in
  std::vector<int> waiting{};               // to join
  std::map<int, std::function<void(std::optional<Place>)>> invited{};
  std::map<int, std::function<void(bool)>> verdict{};

 private:
  struct Begun {
    Numbers numbers{};
    Ended ended{};
  };
  struct Meeting {
    Processes wanted{};
    std::map<int, Begun> begun{};
  };
  void end(Meeting& one, int who, const std::optional<Numbers>& maxima, std::uint64_t sum) {
    auto ended = std::exchange(one.begun[who].ended, {});
    if (ended && !gone.contains(who)) ended(maxima, sum);
  }
  void fail_all(Meeting& one) {
    for (auto& [who, begun] : one.begun) {
      if (begun.ended) after(1, 20, [this, &one, who = who] { end(one, who, std::nullopt, 0); });
    }
  }

  std::map<Key, Meeting> meetings_{};
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::function<void()>> events_{};
  std::uint64_t order_ = 0;
};

struct Process {
  Process(World& the_world, int who) : world(the_world), id(who) {}

  void start(const Place& at) {
    place = at;
    ASSERT_EQ(world.of.at(place.epoch).at(place.rank), id);
    number = operations_since = 0;
    work();
  }
  // Each contributes what only it has, and whether it has seen the end.
  void work() {
    const std::uint64_t own = std::uint64_t{1} << id;
    world.together({place.epoch, 'o', number++}, id, members(), {world.now > end ? 1U : 0U, own},
                   [this](const std::optional<Numbers>& maxima, std::uint64_t sum) {
                     if (!maxima) return fail();
                     std::uint64_t all = 0;
                     for (const int one : members()) all += std::uint64_t{1} << one;
                     EXPECT_EQ(sum, all);
                     ++operations;
                     if ((*maxima)[0] != 0) {
                       finished = true;
                       return;
                     }
                     world.after(0, 50, [this] {
                       if (world.gone.contains(id)) return;
                       // At the same place on all.
                       operations_since++ % 3 == 2 ? resize() : work();
                     });
                   });
  }
  void resize() {
    // Rank 0 sees who died at the door.
    if (place.rank == 0) std::erase_if(world.waiting, [this](int one) { return world.gone.contains(one); });
    round.emplace(place, leaves_at < world.now, waiting(), kMost);
    advance();
  }
  std::uint32_t waiting() const { return place.rank == 0 ? static_cast<std::uint32_t>(world.waiting.size()) : 0; }
  void agree(char kind, const Place& at) {
    world.together({at.epoch, kind, number++}, id, world.of.at(at.epoch), round->numbers(),
                   [this](const std::optional<Numbers>& maxima, std::uint64_t) {
                     if (!maxima) return fail();
                     round->agreed(*maxima);
                     advance();
                   });
  }
  void build(char kind) {
    world.together({round->place().epoch, kind, 0}, id, world.of.at(round->place().epoch), {0},
                   [this](const std::optional<Numbers>& well, std::uint64_t) {
                     round->built(well.has_value());
                     if (round->step() != Step::kFailed && round->before() == round->place()) number = 0;
                     advance();
                   });
  }
  // The others need who leaves until they have exchanged their addresses.
  void lend(const std::function<void()>& then) {
    world.together({place.epoch, 'l', number++}, id, members(), {0}, [this, then](const auto& well, std::uint64_t) {
      if (!well) return fail();
      then();
    });
  }
  void advance();
  void fail() {
    failed = true;
    world.lose(id);
  }
  Processes members() const { return world.of.at(place.epoch); }

  // A newcomer.
  void knock() {
    if (world.gone.contains(id) || world.now > end) return;
    world.waiting.push_back(id);
    world.invited[id] = [this](const std::optional<Place>& at) {
      if (!at) return world.after(1, 30, [this] { knock(); });
      EXPECT_EQ(world.of.at(at->epoch).at(at->rank), id);
      EXPECT_EQ(world.of.at(at->epoch).size(), at->ranks);
      world.verdict[id] = [this, at](bool in) {
        if (in) {
          joined = true;
          start(*at);
        } else {
          world.after(1, 30, [this] { knock(); });
        }
      };
      world.together({at->epoch, 'b', 0}, id, world.of.at(at->epoch), {0}, [](const auto&, std::uint64_t) {});
    };
  }

  World& world;
  const int id;
  Place place{};
  std::optional<MembershipRound> round{};
  std::uint64_t number = 0, operations_since = 0, leaves_at = ~std::uint64_t{0}, end = 4000;
  int operations = 0;
  bool failed = false, finished = false, out = false, joined = false;
};

void Process::advance() {
  switch (round->step()) {
    case Step::kAgree: return agree('a', place);
    case Step::kLend:
      return lend([this] {
        round->lent();
        advance();
      });
    case Step::kOut:
      out = true;
      // Who waits here is sent to the next rank 0.
      if (place.rank == 0) {
        for (const int one : std::exchange(world.waiting, {})) {
          if (!world.gone.contains(one)) world.invited.at(one)(std::nullopt);
        }
      }
      return;
    case Step::kBuildWithout: {
      Processes left;
      for (const Member member : round->survivors()) left.push_back(members()[member]);
      world.of.emplace(round->place().epoch, left);
      EXPECT_EQ(world.of.at(round->place().epoch), left);
      const auto go_on = [this] {
        place = round->place();
        build('b');
      };
      return left.size() > 1 ? lend(go_on) : go_on();
    }
    case Step::kBuildWith: {
      place = round->before();
      if (place.rank == 0) {
        Processes with = members();
        const auto count = static_cast<std::ptrdiff_t>(round->newcomers());
        Processes who(world.waiting.begin(), world.waiting.begin() + count);
        world.waiting.erase(world.waiting.begin(), world.waiting.begin() + count);
        with.insert(with.end(), who.begin(), who.end());
        world.of[round->place().epoch] = with;
        for (std::uint32_t i = 0; i < who.size(); ++i) {
          if (!world.gone.contains(who[i]))
            world.invited.at(who[i])(place_of_newcomer(round->place(), round->newcomers(), i));
        }
      }
      // They hear of it through rank 0.
      world.together({place.epoch, 'x', number++}, id, members(), {0}, [this](const auto& well, std::uint64_t) {
        if (!well) return fail();
        build('b');
      });
      return;
    }
    case Step::kVote: return agree('v', round->before());
    case Step::kDone: {
      const Place before = place;
      if (round->newcomers() > 0 && before.rank == 0) {
        const Processes& all = world.of.at(round->place().epoch);
        for (std::size_t i = before.ranks; i < all.size(); ++i) {
          if (!world.gone.contains(all[i])) world.verdict.at(all[i])(!round->refused());
        }
      }
      if (round->refused()) {
        // The same members under an epoch that nobody else has.
        world.of[round->place().epoch] = world.of.at(before.epoch);
        EXPECT_EQ(round->place().ranks, before.ranks);
      }
      place = round->place();
      if (before.epoch != place.epoch) number = 0;
      operations_since = 0;
      return world.after(0, 20, [this] {
        if (!world.gone.contains(id)) work();
      });
    }
    case Step::kFailed: return fail();
  }
}

struct Cluster {
  Cluster(std::uint64_t seed, int members, int newcomers) : world(seed), first(members) {
    Processes all;
    for (int id = 0; id < members + newcomers; ++id) processes.push_back(std::make_unique<Process>(world, id));
    for (int id = 0; id < members; ++id) all.push_back(id);
    world.of[0] = all;
    for (int id = 0; id < members; ++id) {
      world.after(0, 30, [this, id, members] {
        processes[static_cast<std::size_t>(id)]->start(
            {0, static_cast<Member>(id), static_cast<std::uint32_t>(members)});
      });
    }
    for (int id = members; id < members + newcomers; ++id) {
      world.after(0, 2500, [this, id] { processes[static_cast<std::size_t>(id)]->knock(); });
    }
  }
  // With equal memberships and without error at all who are in.
  void expect_whole() {
    std::set<int> in;
    for (const auto& one : processes) {
      EXPECT_FALSE(one->failed) << one->id;
      if (!one->finished) continue;
      in.insert(one->id);
      const Processes all = one->members();
      EXPECT_EQ(one->place.ranks, all.size());
    }
    for (const auto& one : processes) {
      if (!one->finished) continue;
      const Processes all = one->members();
      EXPECT_EQ(std::set<int>(all.begin(), all.end()), in);
    }
  }

  World world;
  const int first;
  std::vector<std::unique_ptr<Process>> processes{};
};

constexpr std::uint64_t kSeeds = 500;

TEST(Membership, JoinsAndLeavesAtAnyMomentLoseNothing) {
  int joins = 0, leaves = 0;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    Cluster cluster(seed, 1 + static_cast<int>(seed % 4), static_cast<int>(seed % 3));
    // One stays; of the others some go, the first of them where newcomers knock.
    for (std::size_t i = 0; i + 1 < static_cast<std::size_t>(cluster.first); ++i) {
      if (cluster.world.rng.below(2) == 0) cluster.processes[i]->leaves_at = cluster.world.rng.below(3000);
    }
    cluster.world.run();
    cluster.expect_whole();
    for (const auto& one : cluster.processes) {
      EXPECT_TRUE(one->finished || one->out) << one->id;
      EXPECT_EQ(one->out, one->leaves_at != ~std::uint64_t{0}) << one->id;
      EXPECT_GT(one->operations, 0);
      joins += one->joined ? 1 : 0;
      leaves += one->out ? 1 : 0;
    }
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(joins, 400);
  EXPECT_GT(leaves, 300);
}

// Who dies before it is in hurts nobody; the others that wait get in.
TEST(Membership, ANewcomerThatDiesHurtsNobody) {
  int died_in = 0, died_out = 0;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    Cluster cluster(seed, 1 + static_cast<int>(seed % 3), 2);
    Process& victim = *cluster.processes[static_cast<std::size_t>(cluster.first)];
    cluster.world.after(0, 3000, [&] {
      if (victim.joined) return;
      cluster.world.lose(victim.id);
    });
    cluster.world.run();
    // From the members' vote on it is one of them, though it has not heard of it.
    const bool was_in = std::ranges::any_of(cluster.processes, [](const auto& one) { return one->failed; });
    (was_in ? died_in : died_out) += victim.joined ? 0 : 1;
    if (was_in) continue;
    cluster.expect_whole();
    EXPECT_TRUE(cluster.processes.back()->finished);
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(died_out, 100);
  EXPECT_LT(died_in, 10);
}

// A member that dies at any moment, while it leaves too: all others get an error, or it was out already.
TEST(Membership, AMemberThatDiesIsAnErrorOfAllOrOut) {
  int failures = 0;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    Cluster cluster(seed, 2 + static_cast<int>(seed % 3), static_cast<int>(seed % 2));
    Process& victim = *cluster.processes[seed % static_cast<std::size_t>(cluster.first)];
    victim.leaves_at = cluster.world.rng.below(2000);
    cluster.world.after(0, 3000, [&] { cluster.world.lose(victim.id); });
    cluster.world.run();
    if (victim.out) {
      cluster.expect_whole();
    } else {
      for (const auto& one : cluster.processes) {
        EXPECT_TRUE(one.get() == &victim || one->failed || one->id >= cluster.first) << one->id;
        EXPECT_FALSE(one->finished) << one->id;
      }
      ++failures;
    }
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(failures, 100);
}

TEST(Membership, NoMoreNewcomersThanThereIsRoomFor) {
  MembershipRound round({7, 0, 3}, false, 100, 5);
  const Numbers numbers = round.numbers();
  EXPECT_EQ(numbers, (Numbers{100, 0, 0, 0}));
  round.agreed(numbers);
  EXPECT_EQ(round.step(), Step::kBuildWith);
  EXPECT_EQ(round.newcomers(), 2U);
  EXPECT_EQ(round.place(), (Place{8, 0, 5}));
  EXPECT_EQ(place_of_newcomer(round.place(), 2, 1), (Place{8, 4, 5}));
  round.built(false);
  EXPECT_EQ(round.numbers(), (Numbers{1}));
  round.agreed(round.numbers());
  EXPECT_TRUE(round.refused());
  EXPECT_EQ(round.place(), (Place{8, 0, 3}));
}

}  // namespace
}  // namespace clustar::paraexpress
