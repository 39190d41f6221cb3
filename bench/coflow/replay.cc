#include "bench/coflow/replay.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "bench/coflow/shared_flows.h"

namespace clustar::bench::coflow {
namespace {

using clustar::coflow::Allocation;
using clustar::coflow::CoflowId;
using clustar::coflow::CoflowSpec;
using clustar::coflow::Flow;
using clustar::coflow::FlowId;
using clustar::coflow::Scheduler;
using clustar::coflow::Table;

constexpr TimePoint kNever = TimePoint::max();
constexpr double kNothing = 1e-3;  // bytes; a flow with no more left has ended. CoflowSim's

double cpu_now() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

class Simulation {
 public:
  Simulation(Workload& workload, const Rules& rules, const MakeScheduler& make, const Progress& progress)
      : workload_(workload),
        rules_(on_ticks(rules)),
        progress_(progress),
        table_(workload.ports(), rules.port_rate, rules.rate_unit),
        scheduler_(make(table_)) {}

  Result<Replay> run();

 private:
  static constexpr std::uint32_t kNowhere = std::numeric_limits<std::uint32_t>::max();
  // A flow that is sent.
  struct Active {
    FlowId flow;
    double rate;
  };
  struct Ended {
    FlowId flow;
    TimePoint at;
  };
  // Of a coflow in the table.
  struct Running {
    std::size_t result = 0;
    TimePoint last_end;      // of its flows so far
    std::uint32_t sent = 0;  // next_departure()'s: flows that are sent, and when the last of them ends
    TimePoint departs;
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
  void set_rate(FlowId flow, double rate);
  void remove_active(std::size_t at);
  TimePoint next_event() const;
  TimePoint next_flow_end() const;
  TimePoint after(Duration time) const { return time == Duration::max() ? kNever : now_ + time; }
  TimePoint next_shared_step() const;
  TimePoint next_departure() const;
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
  std::vector<Active> active_;
  std::vector<std::uint32_t> place_;      // by flow: in active_
  mutable std::vector<Running> running_;  // by coflow
  std::vector<Ended> ended_;
};

// How long it takes to send so much: in whole ticks, one or 1 ns at least.
Duration Simulation::time_for(double bytes, double rate) const {
  const double ns = (bytes - kNothing) / rate * static_cast<double>(rules_.rate_unit.count());
  if (!(ns < 1e18)) return Duration::max();
  const auto at_least_one = [](double count) { return std::max<Duration::rep>(static_cast<Duration::rep>(count), 1); };
  if (rules_.tick == Duration::zero()) return Duration(at_least_one(std::ceil(ns)));
  // Of so many ticks, a few sum up to a rounding error more or less.
  return rules_.tick * at_least_one(std::ceil(ns / static_cast<double>(rules_.tick.count()) - 1e-9));
}

// The begin of the epoch in which it comes; what comes at its very end still does.
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
  place_.resize(table_.flows(), kNowhere);
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
  running_.push_back({replay_.coflows.size(), now_, 0, now_});
  replay_.coflows.push_back(result);
  return id;
}

Result<void> Simulation::admit() {
  bool any = false;
  workload_.reached(now_);
  for (auto next = workload_.next_arrival(); next && admission(*next) <= now_; next = workload_.next_arrival()) {
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

void Simulation::set_rate(FlowId flow, double rate) {
  std::uint32_t& place = place_[flow];
  if (rate > 0 && place == kNowhere) {
    place = static_cast<std::uint32_t>(active_.size());
    active_.push_back({flow, rate});
  } else if (rate > 0) {
    active_[place].rate = rate;
  } else if (place != kNowhere) {
    remove_active(place);
  }
}

void Simulation::remove_active(std::size_t at) {
  place_[active_[at].flow] = kNowhere;
  active_[at] = active_.back();
  active_.pop_back();
  if (at < active_.size()) place_[active_[at].flow] = static_cast<std::uint32_t>(at);
}

void Simulation::allocate(TimePoint now) {
  const Allocation allocation = scheduler_->allocate(now);
  ++replay_.allocations;
  replay_.changes += allocation.changes.size();
  allocated_at_ = now;
  flows_ended_ = departed_ = false;
  shares_ = allocation.shares;
  for (const auto& change : allocation.changes) set_rate(change.flow, change.rate);
  if (shares_ != nullptr) {
    for (; shared_below_ < table_.flows(); ++shared_below_) shared_.add(shared_below_, table_.flow(shared_below_));
  }
  if (rules_.tick_by_tick) {
    std::sort(active_.begin(), active_.end(), [](const Active& a, const Active& b) { return a.flow < b.flow; });
    for (std::size_t i = 0; i < active_.size(); ++i) place_[active_[i].flow] = static_cast<std::uint32_t>(i);
  }
}

TimePoint Simulation::next_flow_end() const {
  double soonest = std::numeric_limits<double>::infinity();
  for (const Active& one : active_) soonest = std::min(soonest, (table_.flow(one.flow).left - kNothing) / one.rate);
  // Of what has the least time: in its ticks.
  return after(time_for(soonest + kNothing, 1));
}

// For schedulers that take no notice of flows: when the first coflow has ended.
TimePoint Simulation::next_departure() const {
  for (const Active& one : active_) {
    Running& running = running_[table_.flow(one.flow).coflow];
    running.sent = 0;
    running.departs = now_;
  }
  TimePoint soonest = kNever;
  for (const Active& one : active_) {
    const Flow& flow = table_.flow(one.flow);
    const Duration time = time_for(flow.left, one.rate);
    if (time == Duration::max()) continue;
    Running& running = running_[flow.coflow];
    running.departs = std::max(running.departs, now_ + time);
    if (++running.sent == table_.coflow(flow.coflow).unfinished) soonest = std::min(soonest, running.departs);
  }
  return soonest;
}

std::optional<TimePoint> Simulation::timeout() const {
  const auto asked = scheduler_->next_timeout(allocated_at_);
  if (!asked) return asked;
  const Duration tick = std::max(rules_.tick, Duration(1));
  const Duration ahead = std::max<Duration>(*asked - allocated_at_, Duration(1));
  return allocated_at_ + (ahead + tick - Duration(1)) / tick * tick;
}

TimePoint Simulation::next_event() const {
  TimePoint next = kNever;
  if (const auto arrival = workload_.next_arrival()) next = std::max(now_, admission(*arrival));
  if (const auto asked = timeout()) next = std::min(next, std::max(*asked, now_ + Duration(1)));
  if (shares_ != nullptr) return shared_.empty() ? next : std::min(next, next_shared_step());
  if (active_.empty()) return next;
  if (!scheduler_->reallocates_at_flow_ends()) return std::min(next, next_departure());
  if (rules_.refill == Duration::zero()) return std::min(next, next_flow_end());
  // A departure does not wait: other coflows may follow from it.
  return std::min({next, next_departure(), std::max(next_flow_end(), allocated_at_ + rules_.refill)});
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
  const double time = units(rules_.tick);
  std::size_t kept = 0;
  for (const Active one : active_) {
    table_.moved(one.flow, std::min(one.rate * time, table_.flow(one.flow).left));
    if (table_.flow(one.flow).left <= kNothing) {
      place_[one.flow] = kNowhere;
      ended_.push_back({one.flow, now_ + rules_.tick});
      continue;
    }
    place_[one.flow] = static_cast<std::uint32_t>(kept);
    active_[kept++] = one;
  }
  active_.resize(kept);
}

void Simulation::advance(TimePoint to) {
  const double time = units(to - now_);
  if (rules_.tick_by_tick && !active_.empty()) {
    while (now_ < to && !departed_) {
      advance_one_tick();
      if (!ended_.empty()) end_flows();  // told at the begin of the tick, as CoflowSim reckons
      now_ += rules_.tick;
    }
    return;
  }
  if (shares_ != nullptr) {
    advance_shared(time);
  } else {
    for (std::size_t i = 0; i < active_.size();) {
      const Active one = active_[i];
      const double left = table_.flow(one.flow).left;
      const double moved = one.rate * time;
      if (moved < left - kNothing) {
        table_.moved(one.flow, moved);
        ++i;
        continue;
      }
      table_.moved(one.flow, left);
      ended_.push_back({one.flow, std::min(to, now_ + time_for(left, one.rate))});
      remove_active(i);
    }
  }
  now_ = to;
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
  const auto& due = table_.coflow(coflow).due;
  result.late = due && result.ended > *due;
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

Result<Replay> Simulation::run() {
  const double begin = cpu_now();
  std::uint64_t steps = 0;
  while (true) {
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
  return rules;
}

Result<Replay> replay(Workload& workload, const Rules& rules, const MakeScheduler& make, const Progress& progress) {
  return Simulation(workload, rules, make, progress).run();
}

}  // namespace clustar::bench::coflow
