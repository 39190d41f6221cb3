// What every coflow::Scheduler must do where it runs for months: coflows come and go and their ids are used again,
// flows come late, ports change their rates and go down.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "bench/coflow/traits.h"
#include "coflow/registry.h"
#include "tests/sanitized.h"
#include "transport/base/rng.h"

namespace clustar::coflow {
namespace {

constexpr double kPortRate = 1000;
constexpr double kPortSlack = 1e-5 * kPortRate;

// Feeds a scheduler as a daemon does, and looks at every allocation.
class Daemon {
 public:
  Daemon(const Policy& policy, std::size_t ports, std::uint64_t seed)
      : table(ports, kPortRate),
        scheduler(policy.make(table)),
        traits_(bench::coflow::traits_of(policy.spec)),
        rng_(seed) {}

  void step() {
    const double what = rng_.uniform();
    if (what < 0.3 && present.size() < kMostPresent) {
      arrive();
    } else if (what < 0.45 && !present.empty()) {
      add_flow(present[rng_.below(present.size())]);
    } else if (what < 0.55) {
      change_port(static_cast<PortId>(rng_.below(table.ports())), rng_.chance(0.3) ? 0 : 0.1 + 2 * rng_.uniform());
    } else {
      pass(Duration(static_cast<Duration::rep>(1 + rng_.below(500'000'000))));
    }
    allocate();
  }
  // Until nothing is left, with ports as they should be.
  void finish() {
    for (PortId port = 0; port < table.ports(); ++port) change_port(port, 1);
    allocate();
    for (int steps = 0; steps < 20'000 && !present.empty(); ++steps) {
      pass(std::chrono::milliseconds(500));
      allocate();
    }
    if (!present.empty()) problem(fmt::format("{} coflows do not end", present.size()));
  }

  static constexpr std::size_t kMostPresent = 12;
  Table table;
  std::unique_ptr<Scheduler> scheduler;
  TimePoint now{};
  std::vector<CoflowId> present;
  std::vector<std::string> problems;
  std::size_t arrivals = 0;

 private:
  FlowSpec random_flow() {
    return {static_cast<PortId>(rng_.below(table.ports())), static_cast<PortId>(rng_.below(table.ports())),
            static_cast<double>(1 + rng_.below(rng_.chance(0.2) ? 3000 : 300))};
  }
  void arrive() {
    CoflowSpec spec;
    spec.label = ++arrivals;
    spec.weight = rng_.chance(0.3) ? 0.1 + 5 * rng_.uniform() : 1;
    spec.job = rng_.below(4);
    const std::uint64_t flows = 1 + rng_.below(8);
    for (std::uint64_t i = 0; i < flows; ++i) spec.flows.push_back(random_flow());
    const CoflowId id = table.add(spec, now).value();
    if (!scheduler->admits(id, now)) return table.retire(id);
    present.push_back(id);
    scheduler->arrived(id, now);
  }
  void add_flow(CoflowId coflow) { scheduler->flow_added(table.add_flow(coflow, random_flow()).value(), now); }
  void change_port(PortId port, double share) {
    ASSERT_TRUE(table.set_rate(port, share * kPortRate, share * kPortRate));
    scheduler->port_changed(port, now);
  }
  double rate(FlowId flow) const {
    if (shares_ != nullptr) return shares_->of(table.flow(flow));
    const auto found = rates_.find(flow);
    return found == rates_.end() ? 0 : found->second;
  }
  std::vector<FlowId> unfinished() const {
    std::vector<FlowId> all;
    for (const CoflowId coflow : present) {
      for (const Receiver& receiver : table.coflow(coflow).receivers) {
        for (const FlowId flow : table.flows_to(receiver)) all.push_back(flow);
      }
    }
    return all;
  }
  void pass(Duration time) {
    if (const auto timeout = scheduler->next_timeout(now)) time = std::min(time, std::max(*timeout - now, Duration(1)));
    now += time;
    for (const FlowId flow : unfinished()) {
      const double sent = std::min(rate(flow) * std::chrono::duration<double>(time).count(), table.flow(flow).left);
      const CoflowId coflow = table.flow(flow).coflow;
      table.moved(flow, sent);
      if (table.flow(flow).left > 1e-3) continue;
      table.finish(flow);
      rates_.erase(flow);
      scheduler->flow_ended(flow, now);
      if (table.coflow(coflow).unfinished > 0) continue;
      std::erase(present, coflow);
      scheduler->departed(coflow, now);
      departed_.push_back(coflow);
    }
  }
  void allocate() {
    const Allocation allocation = scheduler->allocate(now);
    shares_ = allocation.shares;
    for (const RateChange& change : allocation.changes) {
      if (!std::isfinite(change.rate) || change.rate < 0) problem(fmt::format("rate {}", change.rate));
      if (change.rate == rate(change.flow)) problem(fmt::format("flow {} did not change", change.flow));
      if (table.flow(change.flow).left <= 0) problem(fmt::format("flow {} has ended", change.flow));
      rates_[change.flow] = change.rate;
    }
    check_ports();
    for (const CoflowId coflow : departed_) table.retire(coflow);
    departed_.clear();
  }
  void check_ports() {
    std::vector<double> out(table.ports(), 0), in(table.ports(), 0);
    const auto flows = unfinished();
    for (const FlowId flow : flows) {
      out[table.flow(flow).src] += rate(flow);
      in[table.flow(flow).dst] += rate(flow);
    }
    for (PortId port = 0; port < table.ports(); ++port) {
      if (out[port] > table.rates_out()[port] + kPortSlack) problem(fmt::format("port {} sends {}", port, out[port]));
      if (in[port] > table.rates_in()[port] + kPortSlack) problem(fmt::format("port {} receives {}", port, in[port]));
    }
    if (!traits_.work_conserving || (traits_.one_at_a_time && uneven())) return;
    for (const FlowId flow : flows) {
      const Flow& one = table.flow(flow);
      const double room = std::min(table.rates_out()[one.src] - out[one.src], table.rates_in()[one.dst] - in[one.dst]);
      if (room > kPortSlack)
        problem(fmt::format("flow {} from {} to {} could have {} more", flow, one.src, one.dst, room));
    }
  }
  bool uneven() const {
    const auto other = [](double rate) { return rate != kPortRate; };
    return std::ranges::any_of(table.rates_out(), other) || std::ranges::any_of(table.rates_in(), other);
  }
  void problem(const std::string& what) {
    if (problems.size() < 5) problems.push_back(fmt::format("at {} ns: {}", now.time_since_epoch().count(), what));
  }

  const bench::coflow::Traits traits_;
  Rng rng_;
  std::map<FlowId, double> rates_;
  const PortShares* shares_ = nullptr;
  std::vector<CoflowId> departed_;  // since the last allocation
};

class SchedulerDaemon : public ::testing::TestWithParam<std::string> {};

TEST_P(SchedulerDaemon, ServesWhatComesAndGoesWithinWhatPortsHave) {
  constexpr std::uint64_t kDays = tests::kSanitized ? 6 : 40;
  std::size_t arrivals = 0;
  for (std::uint64_t seed = 1; seed <= kDays; ++seed) {
    Daemon daemon(find_policy(GetParam()).value(), 2 + seed % 7, seed);
    for (int steps = 0; steps < 400 && daemon.problems.empty(); ++steps) daemon.step();
    daemon.finish();
    for (const std::string& problem : daemon.problems) ADD_FAILURE() << "seed " << seed << " " << problem;
    if (HasFailure()) return;
    arrivals += daemon.arrivals;
    // Those present, those that departed since the last allocation, and one that is not admitted.
    EXPECT_LE(daemon.table.coflows(), 2 * Daemon::kMostPresent + 1) << "ids are used again";
  }
  EXPECT_GT(arrivals, kDays * 10);
}

std::vector<std::string> daemon_specs() {
  std::vector<std::string> all;
  for (const PolicyInfo& info : policies()) all.emplace_back(info.name);
  for (const char* more : {"bssi:levels=3", "dclas:first=100,factor=3,queues=4", "dclas:first=100,local=1"}) {
    all.emplace_back(more);
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Policies, SchedulerDaemon, ::testing::ValuesIn(daemon_specs()), [](const auto& one) {
  std::string name = one.param;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return std::isalnum(c) == 0; }, '_');
  return name;
});

}  // namespace
}  // namespace clustar::coflow
