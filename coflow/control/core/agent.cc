#include "coflow/control/core/agent.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace clustar::coflow::control {
namespace {

constexpr Duration kInterval = std::chrono::milliseconds(100);  // before a coordinator says another
constexpr std::size_t kMostNews = 16;
constexpr Duration kLeastInterval = std::chrono::milliseconds(10), kMostLease = std::chrono::seconds(1000);
// After so many it believes what it hears: what it had seen before was a lie.
constexpr int kMostInVain = 5;

}  // namespace

Agent::Agent(const AgentOptions& options, std::uint64_t seed, TimePoint now)
    : options_(options), rng_(seed), pause_(options.least_pause), interval_(kInterval), try_at_(now) {}

void Agent::say(const std::string& line, bool bad) {
  if (news_.size() >= kMostNews || said_.size() >= kMostNews || !said_.insert(line).second) return;
  news_.push_back({line, bad && !complained_});
  complained_ = complained_ || bad;
}

std::optional<Agent::News> Agent::news() {
  if (news_.empty()) return std::nullopt;
  News first = std::move(news_.front());
  news_.pop_front();
  return first;
}

void Agent::retry(TimePoint now, bool seldom) {
  state_ = State::kAlone;
  told_.clear();
  address_ = (address_ + 1) % options_.addresses;
  if (seldom) pause_ = options_.most_pause;
  // Agents that lost one coordinator together do not come back together.
  const auto half = static_cast<std::uint64_t>(pause_.count() / 2);
  try_at_ = now + Duration(static_cast<Duration::rep>(half + rng_.below(half + 1)));
  // Another address may be alive: only when all were tried is it worth to wait longer.
  if (address_ == 0) pause_ = std::min(options_.most_pause, 2 * pause_);
}

void Agent::lose(const std::string& why, TimePoint now, bool seldom) {
  if (state_ == State::kServed) {
    if (++in_vain_ >= kMostInVain) {
      seen_ = {};
      in_vain_ = 0;
    }
    ++counters_.lost;
    pause_ = options_.least_pause;
    say(fmt::format("coordinator lost: {}", why), false);
  } else {
    say(fmt::format("no coordinator: {}; this host orders alone meanwhile", why), true);
  }
  retry(now, seldom);
}

void Agent::on_connected(TimePoint now) {
  if (state_ != State::kConnecting) return;
  state_ = State::kJoining;
  until_ = now + options_.connect_within;
  Hello hello = options_.hello;
  hello.role = Role::kAgent;
  hello.seen = seen_;
  out_.push_back(Send{hello});
}

void Agent::on_closed(const std::string& why, TimePoint now) {
  if (state_ != State::kAlone) lose(why, now, false);
}

void Agent::on_message(const Message& message, TimePoint now) {
  if (state_ != State::kJoining && state_ != State::kServed) return;
  if (const auto* welcome = std::get_if<Welcome>(&message)) {
    const bool sense = kLeastInterval <= welcome->interval && welcome->interval <= welcome->lease &&
                       welcome->lease <= kMostLease && welcome->term < kMostTerm;
    if (state_ == State::kServed || !sense) return;
    state_ = State::kServed;
    heard_ = now;
    interval_ = welcome->interval;
    lease_ = welcome->lease;
    pause_ = options_.least_pause;
    said_.clear();
    complained_ = false;
    say("coordinator found: it orders this host's bytes", false);
    return;
  }
  if (const auto* refusal = std::get_if<Refusal>(&message)) {
    const bool elsewhere = refusal->reason == RefusalReason::kStandby || refusal->reason == RefusalReason::kStopping;
    out_.push_back(Close{});
    std::string why = fmt::format("it refuses: {}", to_string(refusal->reason));
    if (!refusal->text.empty()) why += " (" + refusal->text + ")";
    return lose(why, now, !elsewhere);
  }
  if (const auto* order = std::get_if<Order>(&message); order != nullptr && state_ == State::kServed) {
    on_order(*order, now);
  }
}

void Agent::on_order(const Order& order, TimePoint now) {
  if (order.version <= seen_ || order.version.term >= kMostTerm) {
    ++counters_.stale;
    return;
  }
  const bool another = order.version.term != seen_.term;
  seen_ = order.version;
  in_vain_ = 0;
  heard_ = now;  // an order that it may not obey is as good as none
  ++counters_.orders;
  lease_ends_ = now + std::min<Duration>(order.lease, kMostLease);
  // Places of an earlier coordinator are no places of this one.
  if (order.all || another) places_.clear();
  for (const Placed& one : order.classes) {
    places_[one.key] = one;
    if (one.hold_us > 0) holds_.push_back(one);
    if (one.promise == Promise::kRefused && !std::exchange(told_of_deadline_, true)) {
      news_.push_back(
          {fmt::format("the deadline of communicator {:#x} of job {} is not promised: the ports that it needs "
                       "are promised to others; a longer CLUSTAR_DEADLINE_MS may be",
                       one.key.group, one.key.job),
           true});
    }
  }
  // What an agent may not know of, since it reported no more, is no reason to grow.
  while (places_.size() > 2 * kMostClasses) places_.erase(places_.begin());
  if (!ordered_ || another || order.all || !order.classes.empty()) ++changes_;
  ordered_ = true;
}

void Agent::on_classes(std::span<const ClassReport> classes) {
  std::map<ClassKey, const ClassReport*> present;
  for (const ClassReport& one : classes) {
    if (present.size() < kMostClasses) present.emplace(one.key, &one);
  }
  for (auto at = places_.begin(); at != places_.end();) {
    at = present.contains(at->first) ? std::next(at) : places_.erase(at);
  }
  if (state_ != State::kServed) return;
  Report report;
  bool flushed = false;
  const auto flush_if_full = [&] {
    if (report.classes.size() < kMostReported) return;
    out_.push_back(Send{std::exchange(report, Report{})});
    flushed = true;
  };
  for (auto at = told_.begin(); at != told_.end();) {
    if (present.contains(at->first)) {
      ++at;
      continue;
    }
    ClassReport gone;
    gone.key = at->first;
    gone.gone = true;
    report.classes.push_back(gone);
    at = told_.erase(at);
    flush_if_full();
  }
  for (const auto& [key, one] : present) {
    const auto [known, added] = told_.try_emplace(key, *one);
    // How long ago it began changes all the time, and says nothing new.
    ClassReport same = *one;
    same.since_us = known->second.since_us;
    if (!added && known->second == same) continue;
    known->second = *one;
    report.classes.push_back(*one);
    flush_if_full();
  }
  // Once in a lease it says at least that it is there.
  const bool says = !report.classes.empty();
  quiet_ = says || flushed ? 0 : quiet_ + 1;
  if (says || quiet_ * interval_ >= lease_) {
    out_.push_back(Send{std::move(report)});
    quiet_ = 0;
  }
}

void Agent::expire() {
  ordered_ = false;
  places_.clear();
  holds_.clear();
  ++changes_;
  ++counters_.expired;
  say("the coordinator's order has expired: this host orders alone", true);
}

void Agent::on_timeout(TimePoint now) {
  if (stopped_) return;
  if (ordered_ && now >= lease_ends_) expire();
  switch (state_) {
    case State::kAlone:
      if (now < try_at_) return;
      state_ = State::kConnecting;
      until_ = now + options_.connect_within;
      out_.push_back(Connect{address_});
      return;
    case State::kConnecting:
    case State::kJoining:
      if (now < until_) return;
      out_.push_back(Close{});
      return lose("it does not answer", now, false);
    case State::kServed:
      if (now - heard_ < lease_) return;
      out_.push_back(Close{});
      return lose("it says nothing any more", now, false);
  }
}

std::optional<TimePoint> Agent::next_timeout() const {
  if (stopped_) return std::nullopt;
  TimePoint next = TimePoint::max();
  switch (state_) {
    case State::kAlone: next = try_at_; break;
    case State::kConnecting:
    case State::kJoining: next = until_; break;
    case State::kServed: next = heard_ + lease_; break;
  }
  return ordered_ ? std::min(next, lease_ends_) : next;
}

std::optional<Agent::Action> Agent::poll() {
  if (out_.empty()) return std::nullopt;
  Action first = std::move(out_.front());
  out_.pop_front();
  return first;
}

void Agent::stop() {
  if (stopped_) return;
  stopped_ = true;
  if (state_ == State::kServed || state_ == State::kJoining) out_.push_back(Send{Bye{}});
  state_ = State::kAlone;
}

const Placed* Agent::place_of(const ClassKey& key) const {
  const auto found = places_.find(key);
  return ordered_ && found != places_.end() ? &found->second : nullptr;
}

std::vector<Placed> Agent::take_holds() { return std::exchange(holds_, {}); }

}  // namespace clustar::coflow::control
