// What every coflow::Scheduler must do, over all policies and random workloads: no port gives more than it has, nothing
// that could be sent waits (where the policy promises that), all ends, and the same events give the same rates.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "bench/coflow/traits.h"
#include "coflow/registry.h"
#include "tests/sanitized.h"
#include "transport/base/rng.h"

namespace clustar::coflow {
namespace {

using bench::coflow::Reads;
using bench::coflow::Traits;
using bench::coflow::traits_of;

constexpr double kRate = 1000;
constexpr double kSlack = 1e-5 * kRate;
constexpr std::uint64_t kSeeds = tests::kSanitized ? 10 : 60;

std::vector<CoflowSpec> random_coflows(std::uint64_t seed, std::size_t ports) {
  Rng rng(seed);
  std::vector<CoflowSpec> all;
  const std::uint64_t count = 1 + rng.below(12);
  TimePoint arrival{};
  for (std::uint64_t i = 0; i < count; ++i) {
    CoflowSpec spec;
    spec.label = i;
    if (rng.chance(0.7)) arrival += Duration(static_cast<Duration::rep>(rng.below(3'000'000'000)));
    spec.arrival = arrival;
    spec.weight = rng.chance(0.3) ? 0.1 + 5 * rng.uniform() : 1;
    spec.job = rng.below(4);
    if (rng.chance(0.3)) spec.deadline = Duration(static_cast<Duration::rep>(1 + rng.below(20'000'000'000)));
    const std::uint64_t flows = 1 + rng.below(rng.chance(0.3) ? 60 : 6);
    for (std::uint64_t f = 0; f < flows; ++f) {
      spec.flows.push_back({static_cast<PortId>(rng.below(ports)), static_cast<PortId>(rng.below(ports)),
                            static_cast<double>(1 + rng.below(rng.chance(0.2) ? 20000 : 500))});
    }
    all.push_back(spec);
  }
  return all;
}

// Feeds a scheduler as a simulator does, and looks at every allocation.
class World {
 public:
  World(const Policy& policy, std::size_t ports, bool lazy = false)
      : table(ports, kRate), scheduler(policy.make(table)), traits_(traits_of(policy.spec)), lazy_(lazy) {}

  void run(const std::vector<CoflowSpec>& coflows) {
    std::size_t next = 0, steps = 0;
    while (next < coflows.size() || running > 0) {
      ASSERT_LT(++steps, 100'000u) << "no end";
      if (next < coflows.size() && coflows[next].arrival <= now) {
        while (next < coflows.size() && coflows[next].arrival <= now) arrive(coflows[next++]);
        allocate();
        continue;
      }
      TimePoint to = next < coflows.size() ? coflows[next].arrival : TimePoint::max();
      if (running > 0) {
        const auto timeout = scheduler->next_timeout(allocated_at);
        if (timeout) to = std::min(to, std::max(*timeout, now + Duration(1)));
        to = std::min(to, first_end());
      }
      ASSERT_NE(to, TimePoint::max()) << running << " coflows have no rate";
      const bool ended = advance(to);
      const auto timeout = scheduler->next_timeout(allocated_at);
      if (departed || (ended && scheduler->reallocates_at_flow_ends()) || (timeout && *timeout <= now)) allocate();
      if (::testing::Test::HasFatalFailure()) return;
    }
  }

  double rate(FlowId flow) const {
    if (shares != nullptr) return shares->of(table.flow(flow));
    const auto found = rates.find(flow);
    return found == rates.end() ? 0 : found->second;
  }
  std::vector<FlowId> unfinished() const {
    std::vector<FlowId> all;
    for (const CoflowId coflow : admitted) {
      for (const Receiver& receiver : table.coflow(coflow).receivers) {
        for (const FlowId flow : table.flows_to(receiver)) all.push_back(flow);
      }
    }
    return all;
  }

  Table table;
  std::unique_ptr<Scheduler> scheduler;
  TimePoint now{};
  TimePoint allocated_at{};
  std::vector<CoflowId> admitted;
  std::map<FlowId, double> rates;
  const PortShares* shares = nullptr;
  std::size_t running = 0;
  std::size_t taken = 0;
  bool departed = false;
  std::vector<std::string> history;  // of allocations
  std::size_t before_ends = 0;       // of these, before the first flow ended
  std::vector<CoflowId> late;
  std::map<CoflowId, TimePoint> ends;
  std::vector<std::string> problems;

 private:
  // What flows have sent and the table was not told. Lazily: only as far as the scheduler reads it.
  void tell(bool all) {
    const Reads reads = all || !lazy_ ? Reads::kAll : traits_.reads;
    for (auto& [flow, bytes] : untold_) {
      if (reads != Reads::kNone) table.sent(table.flow(flow).coflow, table.flow(flow).sender, bytes.sent);
      if (reads == Reads::kAll) table.lessened(flow, bytes.left);
      if (reads != Reads::kNone) bytes.sent = 0;
      if (reads == Reads::kAll) bytes.left = 0;
    }
  }
  double left(FlowId flow) const {
    const auto untold = untold_.find(flow);
    return table.flow(flow).left - (untold == untold_.end() ? 0 : untold->second.left);
  }
  void arrive(const CoflowSpec& spec) {
    tell(true);
    const CoflowId id = table.add(spec, spec.arrival).value();
    if (!scheduler->admits(id, now)) return;
    admitted.push_back(id);
    ++taken;
    scheduler->arrived(id, now);
    ++running;
  }
  void allocate() {
    tell(departed);
    const Allocation allocation = scheduler->allocate(now);
    allocated_at = now;
    departed = false;
    shares = allocation.shares;
    std::map<FlowId, int> told;
    for (const RateChange& change : allocation.changes) {
      if (++told[change.flow] > 1) problem(fmt::format("flow {} changed twice", change.flow));
      if (!std::isfinite(change.rate) || change.rate < 0) problem(fmt::format("rate {}", change.rate));
      if (change.rate == rate(change.flow)) problem(fmt::format("flow {} did not change", change.flow));
      if (table.flow(change.flow).left <= 0) problem(fmt::format("flow {} has ended", change.flow));
      rates[change.flow] = change.rate;
    }
    check_ports();
  }
  void check_ports() {
    std::vector<double> out(table.ports(), 0), in(table.ports(), 0);
    std::string line;
    const auto flows = unfinished();
    for (const FlowId flow : flows) {
      out[table.flow(flow).src] += rate(flow);
      in[table.flow(flow).dst] += rate(flow);
      line += fmt::format(" {}", rate(flow));
    }
    history.push_back(line);
    for (PortId port = 0; port < table.ports(); ++port) {
      if (out[port] > kRate + kSlack) problem(fmt::format("port {} sends {}", port, out[port]));
      if (in[port] > kRate + kSlack) problem(fmt::format("port {} receives {}", port, in[port]));
    }
    if (!traits_.work_conserving) return;
    for (const FlowId flow : flows) {
      const Flow& one = table.flow(flow);
      const double room = kRate - std::max(out[one.src], in[one.dst]);
      if (room > kSlack) problem(fmt::format("flow {} from {} to {} could have {} more", flow, one.src, one.dst, room));
    }
  }
  TimePoint first_end() const {
    TimePoint first = TimePoint::max();
    for (const FlowId flow : unfinished()) {
      if (rate(flow) <= 0) continue;
      const double ns = std::ceil(left(flow) / rate(flow) * 1e9);
      if (ns < 1e17)
        first = std::min(first, now + Duration(std::max<Duration::rep>(static_cast<Duration::rep>(ns), 1)));
    }
    return first;
  }
  bool advance(TimePoint to) {
    const double time = std::chrono::duration<double>(to - now).count();
    bool ended = false;
    now = to;
    for (const FlowId flow : unfinished()) {
      if (rate(flow) * time < left(flow) - 1e-3) {
        untold_[flow].sent += rate(flow) * time;
        untold_[flow].left += rate(flow) * time;
        continue;
      }
      ended = true;
      const CoflowId coflow = table.flow(flow).coflow;
      const Untold untold = untold_[flow];
      untold_.erase(flow);
      table.sent(coflow, table.flow(flow).sender, untold.sent + table.flow(flow).left - untold.left);
      table.lessened(flow, table.flow(flow).left);
      table.finish(flow);
      rates.erase(flow);
      scheduler->flow_ended(flow, now);
      if (before_ends == 0) before_ends = history.size();
      if (table.coflow(coflow).unfinished > 0) continue;
      const auto& due = table.coflow(coflow).due;
      if (due && now > *due + std::chrono::microseconds(1)) late.push_back(coflow);
      scheduler->departed(coflow, now);
      ends[coflow] = now;
      std::erase(admitted, coflow);
      --running;
      departed = true;
    }
    return ended;
  }
  void problem(const std::string& what) {
    if (problems.size() < 5) problems.push_back(fmt::format("at {} ns: {}", now.time_since_epoch().count(), what));
  }

  struct Untold {
    double sent = 0, left = 0;
  };
  const Traits traits_;
  const bool lazy_;
  std::map<FlowId, Untold> untold_;
};

class SchedulerConformance : public ::testing::TestWithParam<std::string> {
 protected:
  Policy policy() const {
    const auto found = find_policy(GetParam());
    EXPECT_TRUE(found) << found.error().message;
    return *found;
  }
  static std::size_t ports_of(std::uint64_t seed) { return 2 + seed % 7 + (seed % 5 == 0 ? 70 : 0); }
};

TEST_P(SchedulerConformance, EndsAllWithinWhatPortsHave) {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    World world(policy(), ports_of(seed));
    world.run(random_coflows(seed, ports_of(seed)));
    if (HasFatalFailure()) FAIL() << "seed " << seed;
    for (const std::string& problem : world.problems) ADD_FAILURE() << "seed " << seed << " " << problem;
    if (HasFailure()) return;
  }
}

TEST_P(SchedulerConformance, SameEventsGiveTheSameRates) {
  for (std::uint64_t seed = 1; seed <= kSeeds / 5; ++seed) {
    const auto coflows = random_coflows(seed, ports_of(seed));
    World one(policy(), ports_of(seed)), other(policy(), ports_of(seed));
    one.run(coflows);
    other.run(coflows);
    EXPECT_EQ(one.history, other.history) << "seed " << seed;
  }
}

// What it says that it does not read may be out of date.
TEST_P(SchedulerConformance, ReadsWhatItSays) {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const auto coflows = random_coflows(seed, ports_of(seed));
    World told(policy(), ports_of(seed)), lazy(policy(), ports_of(seed), true);
    told.run(coflows);
    lazy.run(coflows);
    // Sums in another order may wake one a rounding error later, so allocations are not compared one by one.
    ASSERT_EQ(told.ends.size(), lazy.ends.size()) << "seed " << seed;
    for (const auto& [coflow, end] : told.ends) {
      EXPECT_NEAR(std::chrono::duration<double>(end - lazy.ends[coflow]).count(), 0, 1e-6) << "seed " << seed;
    }
  }
}

// A policy that does not know sizes decides alike whatever they are, until something ends.
TEST_P(SchedulerConformance, TheBlindDoNotLookAtSizes) {
  if (traits_of(GetParam()).clairvoyant) GTEST_SKIP() << "it knows sizes";
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    auto coflows = random_coflows(seed, ports_of(seed));
    for (auto& coflow : coflows) coflow.arrival = TimePoint{};
    World one(policy(), ports_of(seed)), other(policy(), ports_of(seed));
    one.run(coflows);
    Rng rng(seed);
    for (auto& coflow : coflows) {
      for (auto& flow : coflow.flows) flow.bytes += static_cast<double>(rng.below(100'000));
    }
    other.run(coflows);
    const std::size_t alike = std::min(one.before_ends, other.before_ends);
    ASSERT_GT(alike, 0u);
    for (std::size_t i = 0; i < alike; ++i) ASSERT_EQ(one.history[i], other.history[i]) << "seed " << seed;
  }
}

TEST(SchedulerDeadlines, WhoIsAdmittedIsInTime) {
  std::size_t admitted = 0;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    auto coflows = random_coflows(seed, 4);
    for (auto& coflow : coflows) coflow.deadline = std::chrono::seconds(1 + seed % 20);
    World world(find_policy("sebf:deadlines=1").value(), 4);
    world.run(coflows);
    admitted += world.taken;
    EXPECT_TRUE(world.late.empty()) << "seed " << seed << ": " << world.late.size() << " of " << world.taken;
  }
  EXPECT_GT(admitted, kSeeds);
}

TEST_P(SchedulerConformance, AFlowAloneGetsItsPorts) {
  World world(policy(), 3);
  world.run({{.label = 1, .flows = {{0, 1, 5000}}}});
  EXPECT_NEAR(std::chrono::duration<double>(world.now - TimePoint{}).count(), 5, 1e-3);
  EXPECT_TRUE(world.problems.empty());
}

std::vector<std::string> specs() {
  std::vector<std::string> all;
  for (const PolicyInfo& info : policies()) all.emplace_back(info.name);
  for (const char* more :
       {"bssi:levels=1", "bssi:levels=3", "bssi:levels=3,spread=1", "dclas:first=100,factor=3,queues=4",
        "dclas:first=100,local=1", "dark:first=100,factor=2", "sebf:deadlines=1"}) {
    all.emplace_back(more);
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Policies, SchedulerConformance, ::testing::ValuesIn(specs()), [](const auto& one) {
  std::string name = one.param;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return std::isalnum(c) == 0; }, '_');
  return name;
});

}  // namespace
}  // namespace clustar::coflow
