#include "bench/coflow/replay.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "bench/coflow/shared_flows.h"
#include "bench/coflow/traits.h"

namespace clustar::bench::coflow {
namespace {

using clustar::coflow::Allocation;
using clustar::coflow::CoflowId;
using clustar::coflow::CoflowSpec;
using clustar::coflow::FlowId;
using clustar::coflow::Scheduler;
using clustar::coflow::Table;

constexpr TimePoint kNever = TimePoint::max();
constexpr double kNeverNs = 1e18;
// Of so many ticks or ns, a few sum up to a rounding error more or less.
constexpr double kRounding = 1e-9;
constexpr double kNothing = 1e-3;  // bytes; a flow with no more left has ended. CoflowSim's

double cpu_now() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

class Simulation {
 public:
  Simulation(Workload& workload, const Rules& rules, const clustar::coflow::Policy& policy, const Progress& progress)
      : workload_(workload),
        rules_(on_ticks(rules)),
        progress_(progress),
        table_(workload.ports(), rules.port_rate, rules.rate_unit),
        traits_(traits_of(policy.spec)),
        scheduler_(policy.make(table_)) {}

  Result<Replay> run(const Stop& stop);

 private:
  static constexpr std::uint32_t kNowhere = std::numeric_limits<std::uint32_t>::max();
  struct Place {
    CoflowId coflow;
    std::uint32_t at;  // in its `active`
  };
  // A flow that is sent.
  struct Active {
    FlowId flow;
    std::uint32_t sender;  // of the coflow's
    double rate, left;     // bytes per rate_unit; bytes
    double told;           // what was left when the table was told last what was sent
    double since;          // when so much was left, ns
    double ends;           // at this rate, ns
  };
  struct Ended {
    FlowId flow;
    TimePoint at;
  };
  // Of a coflow in the table.
  struct Running {
    std::size_t result = 0;
    TimePoint last_end;  // of its flows so far
    std::vector<Active> active{};
    bool changed = false;       // `active`, since the next two were found
    double first = kNeverNs;    // when the first of them ends
    double departs = kNeverNs;  // and the last, if all flows are sent
  };

  // A refill in whole ticks.
  static Rules on_ticks(Rules rules) {
    const Duration tick = std::max(rules.tick, Duration(1));
    rules.refill = (rules.refill + tick - Duration(1)) / tick * tick;
    return rules;
  }
  double units(Duration time) const {
    return static_cast<double>(time.count()) / static_cast<double>(rules_.rate_unit.count());
  }
  Duration time_for(double bytes, double rate) const;
  TimePoint admission(TimePoint arrival) const;
  Result<void> admit();
  Result<CoflowId> take();
  void allocate(TimePoint now);
  void set_rate(FlowId flow, double rate, double now);
  void remove_active(Running& running, std::size_t at);
  double now_ns() const { return static_cast<double>((now_ - TimePoint{}).count()); }
  void settle(Active& active, double now) const;
  void move(Active& active, double now) const;
  void tell_sent(CoflowId coflow, Active& active);
  void tell_all(Reads what);
  TimePoint end_of(double ns) const;
  void look_ahead();
  TimePoint next_event();
  TimePoint after(Duration time) const { return time == Duration::max() ? kNever : now_ + time; }
  TimePoint next_shared_step() const;
  std::optional<TimePoint> timeout() const;
  void advance(TimePoint to);
  void advance_shared(double time);
  void advance_one_tick();
  void end_flows();
  void end_coflow(CoflowId coflow);
  bool should_allocate() const;

  Workload& workload_;
  const Rules rules_;
  const Progress& progress_;
  Table table_;
  const Traits traits_;
  const std::unique_ptr<Scheduler> scheduler_;
  Replay replay_;
  TimePoint now_{};
  TimePoint allocated_at_{};
  bool flows_ended_ = false;  // since the last allocation
  bool departed_ = false;
  std::size_t ended_count_ = 0;  // coflows
  const clustar::coflow::PortShares* shares_ = nullptr;
  SharedFlows shared_;
  FlowId shared_below_ = 0;         // flows that shared_ has been given
  bool stepped_over_ends_ = false;  // the last step's
  std::vector<Running> running_;    // by coflow
  std::vector<Place> places_;       // by flow
  std::vector<CoflowId> sending_;   // coflows that have active flows, and some that had
  std::vector<bool> listed_;        // by coflow: is in sending_
  TimePoint next_flow_end_{kNever}, next_departure_{kNever};
  std::vector<Ended> ended_;
};

// How long it takes to send so much: in whole ticks, one or 1 ns at least.
Duration Simulation::time_for(double bytes, double rate) const {
  const double ns = (bytes - kNothing) / rate * static_cast<double>(rules_.rate_unit.count());
  if (!(ns < 1e18)) return Duration::max();
  const auto at_least_one = [](double count) { return std::max<Duration::rep>(static_cast<Duration::rep>(count), 1); };
  if (rules_.tick == Duration::zero()) return Duration(at_least_one(std::ceil(ns)));
  return rules_.tick * at_least_one(std::ceil(ns / static_cast<double>(rules_.tick.count()) - kRounding));
}

// The start of the epoch in which it comes; what comes at its very end still does.
TimePoint Simulation::admission(TimePoint arrival) const {
  if (rules_.epoch == Duration::zero()) return arrival;
  const Duration since = arrival - TimePoint{};
  if (since <= rules_.epoch) return TimePoint{};
  return TimePoint((since - Duration(1)) / rules_.epoch * rules_.epoch);
}

Result<CoflowId> Simulation::take() {
  const CoflowSpec spec = workload_.take();
  const auto id = table_.add(spec, now_);
  if (!id) return id;
  places_.resize(table_.flows(), {*id, kNowhere});
  const auto& coflow = table_.coflow(*id);
  CoflowResult result;
  result.label = spec.label;
  result.arrival = spec.arrival;
  result.began = result.ended = now_;
  result.bytes = coflow.bytes;
  result.weight = coflow.weight;
  for (const auto& flow : spec.flows) result.longest_flow = std::max(result.longest_flow, flow.bytes);
  result.isolated_s =
      table_.bottleneck(*id) / rules_.port_rate * std::chrono::duration<double>(rules_.rate_unit).count();
  result.flows = coflow.unfinished;
  result.senders = coflow.senders.size();
  result.receivers = coflow.receivers.size();
  running_.push_back({replay_.coflows.size(), now_});
  listed_.push_back(false);
  replay_.coflows.push_back(result);
  return id;
}

Result<void> Simulation::admit() {
  bool any = false;
  workload_.reached(now_);
  for (auto next = workload_.next_arrival(); next && admission(*next) <= now_; next = workload_.next_arrival()) {
    if (!any) tell_all(Reads::kAll);
    const auto id = take();
    if (!id) return tl::unexpected(id.error());
    const bool empty = table_.coflow(*id).unfinished == 0;
    replay_.coflows.back().rejected = !empty && !scheduler_->admits(*id, now_);
    if (empty || replay_.coflows.back().rejected) {
      ++ended_count_;
      workload_.ended(replay_.coflows.size() - 1, now_);
      continue;
    }
    scheduler_->arrived(*id, now_);
    any = true;
  }
  if (any) allocate(now_);
  return {};
}

// The end of a flow in whole ticks or ns.
TimePoint Simulation::end_of(double ns) const {
  if (!(ns < kNeverNs)) return kNever;
  const auto tick = std::max<Duration::rep>(rules_.tick.count(), 1);
  return TimePoint(Duration(static_cast<Duration::rep>(std::ceil(ns / static_cast<double>(tick) - kRounding)) * tick));
}

// What is left by now, and when it ends.
void Simulation::settle(Active& active, double now) const {
  const double unit = static_cast<double>(rules_.rate_unit.count());
  constexpr double kLeast = 0.5;  // ns: a flow takes a tick or a ns at least
  active.since = now;
  active.ends = now + std::max((active.left - kNothing) / active.rate * unit, kLeast);
}

void Simulation::move(Active& active, double now) const {
  const double sent = active.rate * (now - active.since) / static_cast<double>(rules_.rate_unit.count());
  if (active.since < now) active.left -= std::min(sent, active.left);
  active.since = now;
}

void Simulation::tell_sent(CoflowId coflow, Active& active) {
  table_.sent(coflow, active.sender, active.told - active.left);
  active.told = active.left;
}

// The table what flows have sent by now.
void Simulation::tell_all(Reads what) {
  if (what == Reads::kNone) return;
  const double now = now_ns();
  for (const CoflowId coflow : sending_) {
    for (Active& one : running_[coflow].active) {
      move(one, now);
      tell_sent(coflow, one);
      if (what == Reads::kAll) table_.lessened(one.flow, table_.flow(one.flow).left - one.left);
    }
  }
}

void Simulation::set_rate(FlowId flow, double rate, double now) {
  const auto [coflow, at] = places_[flow];
  Running& running = running_[coflow];
  running.changed = true;
  if (rate > 0 && at == kNowhere) {
    places_[flow].at = static_cast<std::uint32_t>(running.active.size());
    const double left = table_.flow(flow).left;
    running.active.push_back({flow, table_.flow(flow).sender, rate, left, left, now, 0});
    settle(running.active.back(), now);
    if (!listed_[coflow]) sending_.push_back(coflow);
    listed_[coflow] = true;
    return;
  }
  if (at == kNowhere) return;
  Active& active = running.active[at];
  move(active, now);
  if (rate > 0) {
    active.rate = rate;
    settle(active, now);
    return;
  }
  // The table is told by itself only of what is sent.
  tell_sent(coflow, active);
  table_.lessened(flow, table_.flow(flow).left - active.left);
  remove_active(running, at);
}

void Simulation::remove_active(Running& running, std::size_t at) {
  auto& active = running.active;
  running.changed = true;
  places_[active[at].flow].at = kNowhere;
  active[at] = active.back();
  active.pop_back();
  if (at < active.size()) places_[active[at].flow].at = static_cast<std::uint32_t>(at);
}

void Simulation::allocate(TimePoint now) {
  tell_all(departed_ ? Reads::kAll : traits_.reads);
  const Allocation allocation = scheduler_->allocate(now);
  ++replay_.allocations;
  replay_.changes += allocation.changes.size();
  allocated_at_ = now;
  flows_ended_ = departed_ = false;
  shares_ = allocation.shares;
  const double ns = now_ns();
  for (const auto& change : allocation.changes) set_rate(change.flow, change.rate, ns);
  if (shares_ != nullptr) {
    for (; shared_below_ < table_.flows(); ++shared_below_) shared_.add(shared_below_, table_.flow(shared_below_));
  }
}

// When the first flow, and the first coflow, will have ended. Only coflows whose rates changed are looked through.
void Simulation::look_ahead() {
  double first = kNeverNs, departs = kNeverNs;
  for (std::size_t i = 0; i < sending_.size();) {
    const CoflowId coflow = sending_[i];
    Running& running = running_[coflow];
    if (running.active.empty()) {
      listed_[coflow] = false;
      sending_[i] = sending_.back();
      sending_.pop_back();
      continue;
    }
    if (std::exchange(running.changed, false)) {
      running.first = kNeverNs;
      double last = 0;
      for (const Active& one : running.active) {
        running.first = std::min(running.first, one.ends);
        last = std::max(last, one.ends);
      }
      running.departs = running.active.size() == table_.coflow(coflow).unfinished ? last : kNeverNs;
    }
    first = std::min(first, running.first);
    departs = std::min(departs, running.departs);
    ++i;
  }
  next_flow_end_ = end_of(first);
  next_departure_ = end_of(departs);
}

std::optional<TimePoint> Simulation::timeout() const {
  const auto asked = scheduler_->next_timeout(allocated_at_);
  if (!asked) return asked;
  const Duration tick = std::max(rules_.tick, Duration(1));
  const Duration ahead = std::max<Duration>(*asked - allocated_at_, Duration(1));
  return allocated_at_ + (ahead + tick - Duration(1)) / tick * tick;
}

TimePoint Simulation::next_event() {
  TimePoint next = kNever;
  if (const auto arrival = workload_.next_arrival()) next = std::max(now_, admission(*arrival));
  if (const auto asked = timeout()) next = std::min(next, std::max(*asked, now_ + Duration(1)));
  if (shares_ != nullptr) return shared_.empty() ? next : std::min(next, next_shared_step());
  look_ahead();
  if (sending_.empty()) return next;
  if (!scheduler_->reallocates_at_flow_ends()) return std::min(next, next_departure_);
  if (rules_.refill == Duration::zero()) return std::min(next, next_flow_end_);
  // A departure does not wait: other coflows may follow from it.
  const TimePoint refill = allocated_at_ + rules_.refill;
  return std::min({next, next_departure_, flows_ended_ ? std::max(refill, now_) : std::max(next_flow_end_, refill)});
}

// A refill, or the time until a flow ends where that may be longer.
TimePoint Simulation::next_shared_step() const {
  const Duration step = std::max(rules_.refill, rules_.tick);
  if (stepped_over_ends_ && step > Duration::zero()) return now_ + step;
  return after(std::max(step, time_for(shared_.first_end(*shares_) + kNothing, 1)));
}

void Simulation::advance_shared(double time) {
  stepped_over_ends_ = false;
  for (const SharedFlows::Ended& one : shared_.advance(time, *shares_, kNothing)) {
    table_.moved(one.flow, one.bytes);
    ended_.push_back({one.flow, now_ + time_for(one.before, one.rate)});
    stepped_over_ends_ = true;
  }
}

// In the order of flows, each by itself: as CoflowSim does it, rounding errors and all.
void Simulation::advance_one_tick() {
  std::sort(sending_.begin(), sending_.end());
  const double next = now_ns() + static_cast<double>(rules_.tick.count());
  for (const CoflowId coflow : sending_) {
    auto& active = running_[coflow].active;
    running_[coflow].changed = true;
    std::sort(active.begin(), active.end(), [](const Active& a, const Active& b) { return a.flow < b.flow; });
    std::size_t kept = 0;
    for (Active one : active) {
      table_.moved(one.flow, std::min(one.rate * units(rules_.tick), table_.flow(one.flow).left));
      if (table_.flow(one.flow).left <= kNothing) {
        places_[one.flow].at = kNowhere;
        ended_.push_back({one.flow, now_ + rules_.tick});
        continue;
      }
      one.left = one.told = table_.flow(one.flow).left;
      settle(one, next);
      places_[one.flow].at = static_cast<std::uint32_t>(kept);
      active[kept++] = one;
    }
    active.resize(kept);
  }
}

void Simulation::advance(TimePoint to) {
  if (rules_.tick_by_tick && !sending_.empty()) {
    while (now_ < to && !departed_) {
      advance_one_tick();
      if (!ended_.empty()) end_flows();  // told at the start of the tick, as CoflowSim reckons
      now_ += rules_.tick;
    }
    return;
  }
  if (shares_ != nullptr) {
    advance_shared(units(to - now_));
    now_ = to;
    end_flows();
    return;
  }
  // By the same rounding as next_event()'s, or what ends then might never do so.
  for (const CoflowId coflow : sending_) {
    Running& running = running_[coflow];
    if (end_of(running.first) > to) continue;
    for (std::size_t i = 0; i < running.active.size();) {
      const Active one = running.active[i];
      if (end_of(one.ends) > to) {
        ++i;
        continue;
      }
      Active last = one;
      last.left = 0;
      tell_sent(coflow, last);
      ended_.push_back({one.flow, std::min(end_of(one.ends), to)});
      remove_active(running, i);
    }
  }
  now_ = to;
  for (const Ended& one : ended_) table_.lessened(one.flow, table_.flow(one.flow).left);
  end_flows();
}

void Simulation::end_flows() {
  for (const Ended& one : ended_) {
    const CoflowId coflow = table_.flow(one.flow).coflow;
    table_.finish(one.flow);
    scheduler_->flow_ended(one.flow, now_);
    flows_ended_ = true;
    running_[coflow].last_end = std::max(running_[coflow].last_end, one.at);
    if (table_.coflow(coflow).unfinished == 0) end_coflow(coflow);
  }
  ended_.clear();
}

void Simulation::end_coflow(CoflowId coflow) {
  const Running& running = running_[coflow];
  CoflowResult& result = replay_.coflows[running.result];
  result.ended = running.last_end;
  if (const auto& due = table_.coflow(coflow).due) {
    const auto allowed =
        Duration(static_cast<Duration::rep>(static_cast<double>((*due - result.began).count()) * rules_.late_share));
    result.late = result.ended > *due + std::max(rules_.late_by, allowed);
  }
  scheduler_->departed(coflow, now_);
  departed_ = true;
  ++ended_count_;
  workload_.ended(running.result, result.ended);
}

bool Simulation::should_allocate() const {
  if (departed_) return true;
  if (const auto asked = timeout(); asked && *asked <= now_) return true;
  return flows_ended_ && scheduler_->reallocates_at_flow_ends() && now_ >= allocated_at_ + rules_.refill;
}

Result<Replay> Simulation::run(const Stop& stop) {
  const double begin = cpu_now();
  std::uint64_t steps = 0;
  while (true) {
    if (stop && stop()) return fail(ErrorCode::kUnavailable, "interrupted");
    if (const auto admitted = admit(); !admitted) return tl::unexpected(admitted.error());
    if (ended_count_ == replay_.coflows.size() && !workload_.next_arrival()) break;
    const TimePoint next = next_event();
    if (next == kNever) {
      return fail(ErrorCode::kInternal,
                  fmt::format("{} coflows have flows that never get a rate", replay_.coflows.size() - ended_count_));
    }
    advance(next);
    if (should_allocate()) allocate(rules_.tick_by_tick ? now_ - rules_.tick : now_);
    constexpr std::uint64_t kStepsBetweenWords = 1024;
    if (progress_ && steps++ % kStepsBetweenWords == 0) progress_(ended_count_, replay_.coflows.size(), now_);
  }
  replay_.cpu_s = cpu_now() - begin;
  return std::move(replay_);
}

}  // namespace

Rules coflowsim_rules() {
  Rules rules;
  rules.port_rate = 1 << 27;
  rules.rate_unit = std::chrono::milliseconds(1024);
  rules.epoch = std::chrono::milliseconds(10240);
  rules.tick = std::chrono::milliseconds(8);
  rules.late_by = std::chrono::milliseconds(100);
  rules.late_share = 1.03 * 1.024 - 1;  // 3 %, of a second of 1,024 ms
  return rules;
}

Result<Replay> replay(Workload& workload, const Rules& rules, const clustar::coflow::Policy& policy,
                      const Progress& progress, const Stop& stop) {
  return Simulation(workload, rules, policy, progress).run(stop);
}

}  // namespace clustar::bench::coflow
