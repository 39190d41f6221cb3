// Whatever happens to coordinators, agents and the network between them: no order outlives its lease, no agent goes
// back to an earlier one, and when all is well again all agents have one order.
//
// CLUSTAR_TEST_CHAOS=100000 runs so many seeds.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>

#include "tests/unit/coflow/control/control_net.h"

namespace clustar::coflow::control {
namespace {

constexpr std::size_t kAgents = 4;

std::uint64_t seeds() {
  const char* text = std::getenv("CLUSTAR_TEST_CHAOS");
  return text == nullptr ? 400 : std::strtoull(text, nullptr, 10);
}

std::vector<ClassReport> some_classes(Rng& rng, std::uint32_t job) {
  std::vector<ClassReport> all;
  for (std::uint64_t group = 1; group <= 4; ++group) {
    if (rng.below(3) == 0) continue;
    all.push_back(class_of(job, group, rng.below(1000) * 10'000));
    if (rng.below(4) == 0) all.back().deadline_us = static_cast<std::uint32_t>(1 + rng.below(2'000'000));
  }
  return all;
}

class Chaos {
 public:
  explicit Chaos(std::uint64_t seed) : net_(seed) {
    Rng& rng = net_.rng();
    CoordinatorOptions options;
    options.interval = std::chrono::milliseconds(50 + 50 * rng.below(3));
    options.policy = rng.below(2) == 0 ? OrderPolicy::kBssi : OrderPolicy::kTurns;
    options.first_term = 1'000;
    if (rng.below(2) == 0) options.caps["batch"] = 1 + rng.below(1'000'000);
    coordinators_ = 1 + rng.below(2);
    for (std::size_t i = 0; i < coordinators_; ++i) net_.add_coordinator(options);
    net_.delay(std::chrono::milliseconds(rng.below(40)));
    for (std::uint64_t i = 0; i < kAgents; ++i) {
      Hello hello;
      hello.agent = i + 1;
      hello.job = static_cast<std::uint32_t>(1 + i % 2);
      hello.host = "host" + std::to_string(i / 2);
      hello.nic = "eth0";
      hello.tenant = i % 3 == 0 ? "batch" : "";
      net_.add_agent(hello);
      seen_.push_back({});
      change(i);
    }
  }

  void run() {
    Rng& rng = net_.rng();
    for (int event = 0; event < 20; ++event) {
      happen(rng);
      for (std::uint64_t steps = rng.below(40); steps-- > 0;) {
        net_.run(ControlNet::kStep);
        check();
      }
    }
    heal();
    // The longest pause of an agent, its attempts at dead addresses, two leases and some rounds.
    for (int steps = 0; steps < 2000; ++steps) {
      net_.run(ControlNet::kStep);
      check();
    }
    check_agreement();
  }

 private:
  void change(std::size_t i) { net_.set_classes(i, some_classes(net_.rng(), static_cast<std::uint32_t>(1 + i % 2))); }

  void happen(Rng& rng) {
    const std::size_t agent = rng.below(kAgents), coordinator = rng.below(coordinators_);
    switch (rng.below(10)) {
      case 0: net_.kill(coordinator); break;
      case 1:
        // Its clock may have leapt back behind its own earlier terms.
        if (!net_.alive(coordinator)) net_.restart(coordinator, static_cast<std::int64_t>(rng.below(2000)) - 1000);
        break;
      case 2: net_.silence(agent, true); break;
      case 3: net_.silence(agent, false); break;
      case 4: net_.cut_off(coordinator, true); break;
      case 5: net_.cut_off(coordinator, false); break;
      case 6: net_.cut_one(); break;
      case 7: net_.repeat(agent); break;
      default: change(agent);
    }
  }

  void heal() {
    for (std::size_t i = 0; i < coordinators_; ++i) {
      net_.cut_off(i, false);
      if (!net_.alive(i)) net_.restart(i, 0);
    }
    for (std::size_t i = 0; i < kAgents; ++i) net_.silence(i, false);
  }

  void check() {
    for (std::size_t i = 0; i < kAgents; ++i) {
      Agent& agent = net_.agent(i);
      ASSERT_LE(seen_[i], agent.seen());
      if (seen_[i] != agent.seen()) heard_[i] = net_.now();
      seen_[i] = agent.seen();
      // The longest lease is 3 intervals of 150 ms; it is looked at once in a step.
      const Duration since = agent.ordered() ? net_.now() - heard_[i] : Duration(0);
      ASSERT_LE(since, std::chrono::milliseconds(450) + ControlNet::kStep);
    }
  }

  void check_agreement() {
    ASSERT_TRUE(net_.coordinator(0)->in_charge());
    for (std::size_t i = 1; i < coordinators_; ++i) ASSERT_FALSE(net_.coordinator(i)->in_charge());
    std::map<ClassKey, std::uint32_t> all;
    std::map<ClassKey, Promise> promises;
    for (std::size_t i = 0; i < kAgents; ++i) {
      Agent& agent = net_.agent(i);
      ASSERT_EQ(agent.state(), Agent::State::kServed) << "agent " << i;
      ASSERT_TRUE(agent.ordered());
      ASSERT_EQ(agent.seen().term, net_.coordinator(0)->term());
      for (const auto& [key, placed] : agent.places()) {
        ASSERT_EQ(all.emplace(key, placed.place).first->second, placed.place) << "agents differ";
        ASSERT_EQ(promises.emplace(key, placed.promise).first->second, placed.promise) << "agents differ";
      }
    }
    std::set<std::uint32_t> places;
    for (const auto& [key, place] : all) ASSERT_TRUE(place > 0 && places.insert(place).second);
    ASSERT_EQ(all.size(), net_.coordinator(0)->classes(net_.now()).size());
  }

  ControlNet net_;
  std::size_t coordinators_ = 1;
  std::vector<Version> seen_;
  std::map<std::size_t, TimePoint> heard_;
};

TEST(ControlChaos, OneOrderWhenAllIsWellAgain) {
  for (std::uint64_t seed = 1; seed <= seeds(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Chaos(seed).run();
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace clustar::coflow::control
