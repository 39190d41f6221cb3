// Agents and coordinators on a simulated network, for tests: connections that take time, are cut, or go silent, and
// coordinators that die and come back.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <vector>

#include "coflow/control/core/agent.h"
#include "coflow/control/core/coordinator.h"
#include "transport/base/rng.h"

namespace clustar::coflow::control {

inline ClassReport class_of(std::uint32_t job, std::uint64_t group, std::uint64_t left) {
  ClassReport report;
  report.key = {job, group, kUnknownFunction};
  report.waits = left > 0;
  report.in_all = left;
  report.left = left;
  return report;
}

class ControlNet {
 public:
  static constexpr Duration kStep = std::chrono::milliseconds(10);

  explicit ControlNet(std::uint64_t seed) : rng_(seed) {}

  // The first one is the primary, the others stand by for it.
  std::size_t add_coordinator(CoordinatorOptions options) {
    if (!coordinators_.empty()) options.standby_of = "primary";
    coordinators_.push_back({options, std::make_unique<Coordinator>(options, now_), {}, now_});
    return coordinators_.size() - 1;
  }
  std::size_t add_agent(const Hello& hello) {
    Node node;
    node.agent =
        std::make_unique<Agent>(AgentOptions{.hello = hello, .addresses = coordinators_.size()}, rng_.next(), now_);
    agents_.push_back(std::move(node));
    return agents_.size() - 1;
  }
  void set_classes(std::size_t agent, std::vector<ClassReport> classes) { agents_[agent].classes = std::move(classes); }
  void run(Duration time) {
    for (const TimePoint end = now_ + time; now_ < end;) step();
  }

  void kill(std::size_t coordinator) {
    coordinators_[coordinator].machine.reset();
    for (Wire& wire : wires_) {
      if (wire.coordinator == coordinator) wire.cut = true;
    }
  }
  // `leap`: how much its clock of terms is off.
  void restart(std::size_t coordinator, std::int64_t leap) {
    Place& place = coordinators_[coordinator];
    place.options.first_term = static_cast<std::uint64_t>(
        std::max<std::int64_t>(1, static_cast<std::int64_t>(place.options.first_term) + leap));
    place.machine = std::make_unique<Coordinator>(place.options, now_);
  }
  // Nothing passes any more, and nobody is told.
  void silence(std::size_t agent, bool silent) { agents_[agent].silent = silent; }
  void cut_off(std::size_t coordinator, bool silent) { coordinators_[coordinator].silent = silent; }
  void delay(Duration most) { most_delay_ = most; }
  // An order of earlier comes once more.
  void repeat(std::size_t agent) {
    const auto& orders = agents_[agent].orders;
    if (!orders.empty()) agents_[agent].agent->on_message(orders[rng_.below(orders.size())], now_);
  }
  void cut_one() {
    if (!wires_.empty()) wires_[rng_.below(wires_.size())].cut = true;
  }

  Agent& agent(std::size_t i) { return *agents_[i].agent; }
  Coordinator* coordinator(std::size_t i) { return coordinators_[i].machine.get(); }
  bool alive(std::size_t i) const { return coordinators_[i].machine != nullptr; }
  TimePoint now() const { return now_; }
  Rng& rng() { return rng_; }

 private:
  static constexpr std::size_t kWatcher = ~std::size_t{0};
  struct Flying {
    TimePoint at;
    Message message;
    bool to_coordinator;
    bool last;
  };
  struct Wire {
    std::size_t agent;  // kWatcher: a standby's
    std::size_t coordinator, watcher;
    Coordinator::Link link;
    std::deque<Flying> flying{};
    bool cut = false;
  };
  struct Node {
    std::unique_ptr<Agent> agent;
    std::vector<ClassReport> classes{};
    TimePoint report_at{};
    bool silent = false;
    std::vector<Order> orders{};  // that came
  };
  struct Place {
    CoordinatorOptions options;
    std::unique_ptr<Coordinator> machine;
    bool silent = false;
    TimePoint watch_at;
  };

  Wire* wire_of(std::size_t agent) {
    for (Wire& wire : wires_) {
      if (wire.agent == agent && agent != kWatcher) return &wire;
    }
    return nullptr;
  }
  void put(Wire& wire, Message message, bool to_coordinator, bool last = false) {
    TimePoint at =
        now_ + Duration(static_cast<Duration::rep>(rng_.below(static_cast<std::uint64_t>(most_delay_.count()) + 1)));
    for (const Flying& before : wire.flying) {  // TCP keeps the order of a way
      if (before.to_coordinator == to_coordinator) at = std::max(at, before.at);
    }
    wire.flying.push_back({at, std::move(message), to_coordinator, last});
  }

  bool stuck(const Wire& wire) const {
    if (coordinators_[wire.coordinator].silent) return true;
    return wire.agent == kWatcher ? coordinators_[wire.watcher].silent : agents_[wire.agent].silent;
  }

  void step() {
    now_ += kStep;
    for (std::size_t i = 0; i < agents_.size(); ++i) drive_agent(i);
    for (std::size_t i = 0; i < coordinators_.size(); ++i) drive_coordinator(i);
    for (std::size_t i = 1; i < coordinators_.size(); ++i) watch(i);
    deliver();
    drop_cut();
  }

  void drive_agent(std::size_t i) {
    Node& node = agents_[i];
    node.agent->on_timeout(now_);
    if (now_ >= node.report_at) {
      node.agent->on_classes(node.classes);
      node.report_at = now_ + node.agent->interval();
    }
    while (auto action = node.agent->poll()) {
      if (const auto* connect = std::get_if<Agent::Connect>(&*action)) {
        std::erase_if(wires_, [&](const Wire& wire) { return close_if(wire, wire.agent == i); });
        if (!alive(connect->address)) {
          node.agent->on_closed("connection refused", now_);
          continue;
        }
        wires_.push_back({i, connect->address, 0, ++links_});
        if (!stuck(wires_.back())) node.agent->on_connected(now_);
      } else if (auto* send = std::get_if<Agent::Send>(&*action)) {
        if (Wire* wire = wire_of(i)) put(*wire, std::move(send->message), true);
      } else {
        std::erase_if(wires_, [&](const Wire& wire) { return close_if(wire, wire.agent == i); });
      }
    }
  }

  // The coordinator hears of it, unless nothing passes.
  bool close_if(const Wire& wire, bool which) {
    if (which && alive(wire.coordinator)) coordinators_[wire.coordinator].machine->on_closed(wire.link, now_);
    return which;
  }

  void drive_coordinator(std::size_t i) {
    if (!alive(i)) return;
    Coordinator& machine = *coordinators_[i].machine;
    if (const auto next = machine.next_timeout(); next && now_ >= *next) machine.on_timeout(now_);
    while (auto out = machine.poll()) {
      const auto wire =
          std::find_if(wires_.begin(), wires_.end(), [&](const Wire& one) { return one.link == out->link; });
      if (wire != wires_.end()) put(*wire, std::move(out->message), false, out->last);
    }
  }

  void watch(std::size_t i) {
    Place& standby = coordinators_[i];
    if (standby.machine == nullptr || now_ < standby.watch_at) return;
    standby.watch_at = now_ + standby.options.interval;
    for (const Wire& wire : wires_) {
      if (wire.agent == kWatcher && wire.watcher == i) return;
    }
    if (!alive(0)) return;
    wires_.push_back({kWatcher, 0, i, ++links_});
    Hello hello;
    hello.role = Role::kStandby;
    hello.agent = 1'000'000 + i;
    hello.seen = {standby.machine->term(), 0};
    put(wires_.back(), hello, true);
  }

  void deliver() {
    for (std::size_t w = 0; w < wires_.size(); ++w) {
      if (stuck(wires_[w])) continue;
      while (!wires_[w].cut) {
        auto& flying = wires_[w].flying;
        std::size_t first = 0;
        while (first < flying.size() && flying[first].at > now_) ++first;
        if (first == flying.size()) break;
        const Flying one = std::move(flying[first]);
        flying.erase(flying.begin() + static_cast<std::ptrdiff_t>(first));
        Wire& wire = wires_[w];
        if (one.to_coordinator) {
          if (!alive(wire.coordinator)) break;
          coordinators_[wire.coordinator].machine->on_message(wire.link, one.message, now_);
        } else if (wire.agent == kWatcher) {
          const auto* welcome = std::get_if<Welcome>(&one.message);
          const auto* order = std::get_if<Order>(&one.message);
          Coordinator* standby = coordinators_[wire.watcher].machine.get();
          if (welcome != nullptr && standby != nullptr) standby->on_primary(welcome->term, now_);
          if (order != nullptr && standby != nullptr) standby->on_primary(order->version.term, now_);
        } else {
          Node& node = agents_[wire.agent];
          if (const auto* order = std::get_if<Order>(&one.message)) node.orders.push_back(*order);
          node.agent->on_message(one.message, now_);
        }
        if (one.last) wire.cut = true;
      }
    }
  }

  void drop_cut() {
    for (std::size_t w = 0; w < wires_.size();) {
      if (!wires_[w].cut || stuck(wires_[w])) {
        ++w;
        continue;
      }
      const Wire wire = std::move(wires_[w]);
      wires_.erase(wires_.begin() + static_cast<std::ptrdiff_t>(w));
      if (alive(wire.coordinator)) coordinators_[wire.coordinator].machine->on_closed(wire.link, now_);
      if (wire.agent != kWatcher) agents_[wire.agent].agent->on_closed("connection reset", now_);
    }
  }

  Rng rng_;
  TimePoint now_ = TimePoint(std::chrono::seconds(1));
  std::vector<Place> coordinators_;
  std::vector<Node> agents_;
  std::vector<Wire> wires_;
  Coordinator::Link links_ = 0;
  Duration most_delay_{0};
};

}  // namespace clustar::coflow::control
