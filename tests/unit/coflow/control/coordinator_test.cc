#include "coflow/control/core/coordinator.h"

#include <gtest/gtest.h>

#include "tests/unit/coflow/control/control_net.h"

namespace clustar::coflow::control {
namespace {

using std::chrono::milliseconds;

Hello host(std::uint64_t number, std::uint32_t job = 1) {
  Hello hello;
  hello.agent = number;
  hello.job = job;
  hello.host = "host" + std::to_string(number);
  hello.nic = "eth0";
  hello.bytes_per_second = 1'000'000;
  hello.addresses = {static_cast<std::uint32_t>(100 + number)};
  return hello;
}

std::uint32_t place(ControlNet& net, std::size_t agent, const ClassKey& key) {
  const Placed* placed = net.agent(agent).place_of(key);
  return placed == nullptr ? 0 : placed->place;
}

TEST(Coordinator, AllAgentsHaveOneOrder) {
  ControlNet net(1);
  CoordinatorOptions options;
  options.policy = OrderPolicy::kBssi;
  net.add_coordinator(options);
  net.add_agent(host(0));
  net.add_agent(host(1));
  net.set_classes(0, {class_of(1, 10, 5'000'000), class_of(1, 11, 1'000'000)});
  net.set_classes(1, {class_of(1, 10, 5'000'000), class_of(1, 11, 1'000'000)});
  net.run(milliseconds(500));
  for (const std::size_t agent : {0u, 1u}) {
    ASSERT_TRUE(net.agent(agent).ordered());
    EXPECT_GT(place(net, agent, {1, 10, kUnknownFunction}), place(net, agent, {1, 11, kUnknownFunction}));
  }
  EXPECT_EQ(place(net, 0, {1, 10, kUnknownFunction}), place(net, 1, {1, 10, kUnknownFunction}));
}

// What one host alone cannot see: the class that is small here is large where it matters.
TEST(Coordinator, TheBottleneckIsAnothersPort) {
  ControlNet net(1);
  CoordinatorOptions options;
  options.policy = OrderPolicy::kBssi;
  net.add_coordinator(options);
  for (std::uint64_t i = 0; i < 3; ++i) net.add_agent(host(i));
  ClassReport wide = class_of(1, 10, 1'000'000), narrow = class_of(1, 11, 2'000'000);
  wide.peers = {{102, 1'000'000}};
  narrow.peers = {{101, 2'000'000}};
  net.set_classes(0, {wide, narrow});
  wide.left = wide.in_all = 8'000'000;
  wide.peers = {{102, 8'000'000}};
  net.set_classes(1, {wide});
  net.run(milliseconds(500));
  // By its own port alone host 0 would send class 10 first.
  EXPECT_LT(place(net, 0, {1, 11, kUnknownFunction}), place(net, 0, {1, 10, kUnknownFunction}));
}

TEST(Coordinator, AnOrderEndsWithItsLease) {
  ControlNet net(1);
  net.add_coordinator({});
  net.add_agent(host(0));
  net.set_classes(0, {class_of(1, 10, 1'000'000)});
  net.run(milliseconds(500));
  ASSERT_TRUE(net.agent(0).ordered());
  while (net.agent(0).news()) {
  }
  net.kill(0);
  net.run(milliseconds(150));
  EXPECT_TRUE(net.agent(0).ordered()) << "it is good for its lease";
  net.run(milliseconds(300));
  EXPECT_FALSE(net.agent(0).ordered());
  EXPECT_EQ(net.agent(0).place_of({1, 10, kUnknownFunction}), nullptr);
  net.run(std::chrono::seconds(20));
  int bad = 0, all = 0;
  while (const auto news = net.agent(0).news()) {
    ++all;
    bad += news->bad ? 1 : 0;
  }
  EXPECT_EQ(bad, 1) << "one line for an outage";
  EXPECT_LE(all, 4);
  net.restart(0, 0);
  net.run(std::chrono::seconds(6));
  EXPECT_TRUE(net.agent(0).ordered());
}

TEST(Coordinator, AStandbyTakesOverAndStepsDown) {
  ControlNet net(1);
  CoordinatorOptions options;
  options.first_term = 50;
  net.add_coordinator(options);
  net.add_coordinator(options);
  net.add_agent(host(0));
  net.set_classes(0, {class_of(1, 10, 1'000'000)});
  net.run(std::chrono::seconds(1));
  ASSERT_TRUE(net.agent(0).ordered());
  ASSERT_FALSE(net.coordinator(1)->in_charge());
  const std::uint64_t before = net.agent(0).seen().term;
  net.kill(0);
  net.run(std::chrono::seconds(3));
  EXPECT_TRUE(net.coordinator(1)->in_charge());
  EXPECT_TRUE(net.agent(0).ordered());
  const std::uint64_t during = net.agent(0).seen().term;
  EXPECT_GT(during, before);
  net.restart(0, -49);  // it does not know what was
  net.run(std::chrono::seconds(8));
  EXPECT_FALSE(net.coordinator(1)->in_charge());
  EXPECT_TRUE(net.agent(0).ordered());
  EXPECT_GT(net.agent(0).seen().term, during);
}

TEST(Coordinator, OnlyWhatHasChangedIsTold) {
  ControlNet net(1);
  net.add_coordinator({});
  for (std::uint64_t i = 0; i < 4; ++i) {
    net.add_agent(host(i));
    net.set_classes(i, {class_of(1, 10, 1'000'000), class_of(1, 11, 2'000'000)});
  }
  net.run(std::chrono::seconds(2));
  const auto before = net.coordinator(0)->counters();
  net.run(std::chrono::seconds(2));
  const auto after = net.coordinator(0)->counters();
  EXPECT_EQ(after.orders, before.orders);
  EXPECT_GT(after.renewals, before.renewals);
  EXPECT_EQ(after.rounds - before.rounds, 0u) << "nothing was new: nothing is computed";
}

TEST(Coordinator, WhatIsTooMuchIsRefused) {
  const TimePoint start(std::chrono::seconds(1));
  CoordinatorOptions options;
  options.most_agents = 2;
  options.most_classes = 3;
  Coordinator coordinator(options, start);
  const auto refusal = [&](Coordinator::Link link) -> std::optional<RefusalReason> {
    std::optional<RefusalReason> found;
    while (auto out = coordinator.poll()) {
      if (const auto* refused = std::get_if<Refusal>(&out->message); refused != nullptr && out->link == link) {
        EXPECT_TRUE(out->last);
        found = refused->reason;
      }
    }
    return found;
  };
  coordinator.on_message(1, host(1), start);
  coordinator.on_message(2, host(2), start);
  EXPECT_EQ(refusal(2), std::nullopt);
  coordinator.on_message(3, host(3), start);
  EXPECT_EQ(refusal(3), RefusalReason::kFull);
  Report five;
  for (std::uint64_t group = 0; group < 5; ++group) five.classes.push_back(class_of(1, group, 1000));
  coordinator.on_message(1, five, start);
  EXPECT_EQ(coordinator.classes(start).size(), 3u);
  EXPECT_EQ(coordinator.counters().too_many, 2u);
  Report foreign;
  foreign.classes.push_back(class_of(9, 1, 1000));
  coordinator.on_message(2, foreign, start);
  EXPECT_EQ(refusal(2), RefusalReason::kNonsense);
  for (int i = 0; i < 400; ++i) coordinator.on_message(1, Report{}, start);
  EXPECT_EQ(refusal(1), RefusalReason::kTooFast);
  EXPECT_TRUE(coordinator.classes(start).empty());
}

TEST(Coordinator, AnAgentThatSaysNothingIsForgotten) {
  ControlNet net(1);
  net.add_coordinator({});
  net.add_agent(host(0));
  net.set_classes(0, {class_of(1, 10, 1'000'000)});
  net.run(std::chrono::seconds(10));
  EXPECT_EQ(net.coordinator(0)->classes(net.now()).size(), 1u) << "it says that it is there";
  net.silence(0, true);
  net.run(std::chrono::seconds(10));
  EXPECT_TRUE(net.coordinator(0)->classes(net.now()).empty());
}

TEST(Coordinator, PeriodicJobsAreHeldBackOnce) {
  ControlNet net(1);
  net.add_coordinator({});
  net.add_agent(host(0, 1));
  Hello beside = host(0, 2);  // another process of the same host
  beside.agent = 1;
  net.add_agent(beside);
  for (const std::uint32_t job : {1u, 2u}) {
    ClassReport report = class_of(job, 10 * job, 0);
    report.repeats = true;
    report.in_all = 200'000;  // 200 ms of the line
    report.period_us = 1'000'000;
    report.since_us = 50'000;
    net.set_classes(job - 1, {report});
  }
  net.run(std::chrono::seconds(1));
  EXPECT_TRUE(net.agent(0).take_holds().empty());
  const auto held = net.agent(1).take_holds();
  ASSERT_EQ(held.size(), 1u);
  EXPECT_NEAR(held[0].hold_us, 200'000, 30'000);
}

// Two jobs that share a port: half a second's bytes each, every second.
ClassReport half_a_second(std::uint32_t job, std::uint32_t deadline_ms) {
  ClassReport report = class_of(job, 10 * job, 400'000);
  report.repeats = true;
  report.period_us = 1'000'000;
  report.deadline_us = deadline_ms * 1000;
  report.peers = {{100 + job, 400'000}};
  return report;
}

TEST(Coordinator, APromisedDeadlineGoesFirst) {
  ControlNet net(1);
  CoordinatorOptions options;
  options.shifts = false;
  options.policy = OrderPolicy::kBssi;
  net.add_coordinator(options);
  net.add_agent(host(0, 1));
  Hello beside = host(0, 2);
  beside.agent = 1;
  net.add_agent(beside);
  ClassReport small = class_of(2, 20, 1000);
  net.set_classes(0, {half_a_second(1, 600)});
  net.set_classes(1, {small});
  net.run(milliseconds(300));
  const ClassKey promised{1, 10, kUnknownFunction}, other{2, 20, kUnknownFunction};
  EXPECT_LT(place(net, 0, promised), place(net, 1, other)) << "the smaller would go first";
  EXPECT_EQ(net.agent(0).place_of(promised)->promise, Promise::kGiven);
  EXPECT_EQ(net.agent(1).place_of(other)->promise, Promise::kNone);
  // It is late: then the others are not to be late, too.
  net.run(milliseconds(600));
  net.set_classes(1, {small, class_of(2, 21, 2000)});
  net.run(milliseconds(200));
  EXPECT_GT(place(net, 0, promised), place(net, 1, other));
  net.set_classes(0, {class_of(1, 10, 0)});
  net.run(milliseconds(200));
  const auto classes = net.coordinator(0)->classes(net.now());
  const auto seen = std::find_if(classes.begin(), classes.end(), [&](const auto& one) { return one.key == promised; });
  ASSERT_NE(seen, classes.end());
  EXPECT_EQ(seen->in_time, 0u);
  EXPECT_EQ(seen->late, 1u);
}

TEST(Coordinator, MoreThanAPortCarriesIsNotPromised) {
  ControlNet net(1);
  net.add_coordinator({});
  for (const std::uint32_t job : {1u, 2u, 3u}) {
    Hello hello = host(0, job);
    hello.agent = job;
    net.add_agent(hello);
  }
  net.set_classes(0, {half_a_second(1, 900)});
  net.run(milliseconds(300));
  net.set_classes(1, {half_a_second(2, 500)});
  net.run(milliseconds(300));
  const ClassKey first{1, 10, kUnknownFunction}, second{2, 20, kUnknownFunction};
  ASSERT_NE(net.agent(1).place_of(second), nullptr);
  EXPECT_EQ(net.agent(0).place_of(first)->promise, Promise::kGiven);
  EXPECT_EQ(net.agent(1).place_of(second)->promise, Promise::kRefused);
  bool said = false;
  while (const auto news = net.agent(1).news())
    said = said || news->line.find("CLUSTAR_DEADLINE_MS") != std::string::npos;
  EXPECT_TRUE(said);
  // There is room for it when the first one is gone.
  net.set_classes(0, {});
  net.run(milliseconds(300));
  EXPECT_EQ(net.agent(1).place_of(second)->promise, Promise::kGiven);
}

// Near an iteration's end only the slowest peer's bytes are queued: that is not where all of them go.
TEST(Coordinator, APromiseIsKeptToTheIterationsEnd) {
  ControlNet net(1);
  CoordinatorOptions options;
  options.topology.leaves = {{"host0", "leaf"}, {"host1", "leaf"}, {"host2", "leaf"}};
  options.topology.uplinks = {{"leaf", 100'000}};
  net.add_coordinator(options);
  for (std::uint64_t i = 0; i < 3; ++i) net.add_agent(host(i));
  ClassReport first = class_of(1, 10, 400'000);
  first.repeats = true;
  first.period_us = 1'000'000;
  first.deadline_us = 600'000;
  const ClassKey key{1, 10, kUnknownFunction};
  for (int iteration = 0; iteration < 3; ++iteration) {
    for (std::uint32_t i = 0; i < 3; ++i) {
      ClassReport own = first;
      own.left = own.in_all;
      own.waits = true;
      own.peers = {{100 + (i + 1) % 3, 200'000}, {100 + (i + 2) % 3, 200'000}};
      net.set_classes(i, {own});
    }
    net.run(milliseconds(300));
    ASSERT_EQ(net.agent(0).place_of(key)->promise, Promise::kGiven) << "iteration " << iteration;
    for (std::uint32_t i = 0; i < 3; ++i) {  // all that is left goes to host 0, whose own part has ended
      ClassReport own = first;
      own.left = i == 0 ? 0 : 50'000;
      own.waits = i != 0;
      if (own.waits) own.peers = {{100, 50'000}};
      net.set_classes(i, {own});
    }
    net.run(milliseconds(300));
    ASSERT_EQ(net.agent(0).place_of(key)->promise, Promise::kGiven) << "iteration " << iteration;
  }
}

TEST(Coordinator, HostsOfOneNameAreToldApartByTheirAddresses) {
  ControlNet net(1);
  net.add_coordinator({});
  for (const std::uint32_t job : {1u, 2u}) {
    Hello hello = host(job, job);
    hello.host = "container";
    net.add_agent(hello);
    ClassReport report = half_a_second(job, 500);
    report.peers = {{999, 400'000}};  // a host without an agent
    net.set_classes(job - 1, {report});
  }
  net.run(milliseconds(300));
  for (const std::uint32_t job : {1u, 2u}) {
    const Placed* placed = net.agent(job - 1).place_of({job, 10 * job, kUnknownFunction});
    ASSERT_NE(placed, nullptr);
    EXPECT_EQ(placed->promise, Promise::kGiven) << "each has a port of its own";
  }
}

TEST(Coordinator, ATenantsCapIsSharedByWhatWaits) {
  ControlNet net(1);
  CoordinatorOptions options;
  options.caps["batch"] = 600'000;
  net.add_coordinator(options);
  Hello batch = host(0, 1), free = host(1, 2);
  batch.tenant = "batch";
  net.add_agent(batch);
  net.add_agent(free);
  net.set_classes(0, {class_of(1, 10, 1000), class_of(1, 11, 1000), class_of(1, 12, 0)});
  net.set_classes(1, {class_of(2, 20, 1000)});
  net.run(milliseconds(500));
  EXPECT_EQ(net.agent(0).place_of({1, 10, kUnknownFunction})->cap, 300'000u);
  EXPECT_EQ(net.agent(0).place_of({1, 12, kUnknownFunction})->cap, 200'000u);
  EXPECT_EQ(net.agent(1).place_of({2, 20, kUnknownFunction})->cap, 0u);
}

// A term that nobody can have had would leave no room for later ones.
TEST(Coordinator, LiesAboutTermsAreNotBelieved) {
  const TimePoint start(std::chrono::seconds(1));
  CoordinatorOptions options;
  options.first_term = 1'800'000'000'000;
  Coordinator coordinator(options, start);
  Hello hello = host(1);
  for (const std::uint64_t lie : {~std::uint64_t{0}, kMostTerm, kMostTerm - 1, options.first_term * 2}) {
    hello.seen.term = lie;
    coordinator.on_message(lie, hello, start);
    EXPECT_EQ(coordinator.term(), options.first_term);
  }
  hello.seen.term = options.first_term + 1'000'000;
  coordinator.on_message(7, hello, start);
  EXPECT_EQ(coordinator.term(), hello.seen.term + 1);
}

// An agent that heard such a lie believes its coordinator again after some leases.
TEST(Coordinator, AnAgentGetsOverALie) {
  ControlNet net(1);
  net.add_coordinator({});
  net.add_agent(host(0));
  net.set_classes(0, {class_of(1, 10, 1'000'000)});
  net.run(std::chrono::seconds(1));
  ASSERT_TRUE(net.agent(0).ordered());
  net.agent(0).on_message(Order{{kMostTerm, 1}, milliseconds(300), true, {}}, net.now());
  EXPECT_LT(net.agent(0).seen().term, kMostTerm);
  net.agent(0).on_message(Order{{kMostTerm - 1, 1}, milliseconds(300), true, {}}, net.now());
  EXPECT_EQ(net.agent(0).seen().term, kMostTerm - 1);
  net.run(std::chrono::seconds(20));
  EXPECT_TRUE(net.agent(0).ordered());
  EXPECT_LT(net.agent(0).seen().term, kMostTerm - 1);
}

TEST(Coordinator, OneThatStandsByItselfIsNobodysPrimary) {
  const TimePoint start(std::chrono::seconds(1));
  CoordinatorOptions options;
  options.standby_of = "10.0.0.1:7480";
  Coordinator coordinator(options, start);
  Hello hello = host(1);
  hello.role = Role::kStandby;
  coordinator.on_message(1, hello, start);
  const auto out = coordinator.poll();
  ASSERT_TRUE(out && std::holds_alternative<Refusal>(out->message));
  EXPECT_EQ(std::get<Refusal>(out->message).reason, RefusalReason::kStandby);
  EXPECT_EQ(std::get<Refusal>(out->message).address, options.standby_of);
}

// What a job had is forgotten with its last agent, and what nobody's line can carry is not believed.
TEST(Coordinator, ServiceThatCannotBeIsNotCounted) {
  const TimePoint start(std::chrono::seconds(1));
  CoordinatorOptions options;
  Coordinator coordinator(options, start);
  Hello hello = host(1);
  hello.bytes_per_second = 1000;
  coordinator.on_message(1, hello, start);
  Report report;
  report.classes.push_back(class_of(1, 10, 500));
  coordinator.on_message(1, report, start);
  report.classes[0].attained = ~std::uint64_t{0};
  coordinator.on_message(1, report, start + std::chrono::seconds(1));
  const auto agents = coordinator.agents(start + std::chrono::seconds(1));
  ASSERT_EQ(agents.size(), 1u);
  EXPECT_LE(agents[0].attained, 2'300u);
}

TEST(Coordinator, ItsEndIsToldToAll) {
  ControlNet net(1);
  net.add_coordinator({});
  net.add_agent(host(0));
  net.run(std::chrono::seconds(1));
  net.coordinator(0)->stop(net.now());
  net.run(milliseconds(20));
  EXPECT_NE(net.agent(0).state(), Agent::State::kServed);
}

TEST(Coordinator, UplinksCount) {
  ControlNet net(1);
  CoordinatorOptions options;
  options.policy = OrderPolicy::kBssi;
  options.topology.leaves = {{"host0", "a"}, {"host1", "a"}, {"host2", "b"}};
  options.topology.uplinks = {{"a", 100'000}, {"b", 100'000}};
  net.add_coordinator(options);
  for (std::uint64_t i = 0; i < 3; ++i) net.add_agent(host(i));
  // Both are equally large at the port; one crosses a tenth of its speed.
  ClassReport crosses = class_of(1, 10, 1'000'000), stays = class_of(1, 11, 2'000'000);
  crosses.peers = {{102, 1'000'000}};
  stays.peers = {{101, 2'000'000}};
  ClassReport also = class_of(1, 12, 100'000);
  also.peers = {{102, 100'000}};
  net.set_classes(0, {crosses, stays});
  net.set_classes(1, {also});
  net.run(milliseconds(500));
  EXPECT_LT(place(net, 1, {1, 12, kUnknownFunction}), place(net, 0, {1, 10, kUnknownFunction}));
}

}  // namespace
}  // namespace clustar::coflow::control
