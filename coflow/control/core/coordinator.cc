#include "coflow/control/core/coordinator.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace clustar::coflow::control {
namespace {

// What an agent with many classes needs for one interval, and what it may be behind.
constexpr double kReportsPerInterval = 2.0 * kMostClasses / kMostReported;
constexpr double kReportBurst = 4 * kReportsPerInterval;
constexpr std::uint32_t kMostTooFast = 256;  // reports in a row: then it is no mistake
// First terms are milliseconds: a coordinator that ran 35 years ahead of this one's clock is a lie.
constexpr std::uint64_t kFarthestTerm = std::uint64_t{1} << 40;

}  // namespace

Coordinator::Coordinator(const CoordinatorOptions& options, TimePoint now)
    : options_(options),
      term_(options.first_term),
      next_round_(now + options.interval),
      primary_heard_(now),
      ports_(options.topology, options.bytes_per_second) {
  if (options_.standby_of.empty()) take_charge(now);
}

void Coordinator::take_charge(TimePoint now) {
  in_charge_ = true;
  next_round_ = now + options_.interval;
  ++counters_.takeovers;
}

void Coordinator::step_down(TimePoint now) {
  in_charge_ = false;
  std::vector<Link> links;
  for (const auto& [link, agent] : agents_) links.push_back(link);
  std::sort(links.begin(), links.end());
  for (const Link link : links) refuse(link, RefusalReason::kStandby, "the primary is back", now);
}

void Coordinator::on_primary(std::uint64_t term, TimePoint now) {
  primary_heard_ = now;
  raise_term(term);
  if (in_charge_ && !options_.standby_of.empty()) step_down(now);
}

void Coordinator::raise_term(std::uint64_t seen) {
  if (seen < term_ || seen >= kMostTerm || seen - options_.first_term > kFarthestTerm) return;
  term_ = seen + 1;
  number_ = 0;
  for (auto& [link, agent] : agents_) agent.fresh = true;
  dirty_ = true;
}

void Coordinator::refuse(Link link, RefusalReason reason, const std::string& text, TimePoint now) {
  ++counters_.refused;
  out_.push_back({link, Refusal{reason, text, options_.standby_of}, true});
  forget(link, now);
}

void Coordinator::stop(TimePoint now) {
  stopping_ = true;
  std::vector<Link> links;
  for (const auto& [link, agent] : agents_) links.push_back(link);
  std::sort(links.begin(), links.end());
  for (const Link link : links) refuse(link, RefusalReason::kStopping, "", now);
}

void Coordinator::on_message(Link link, const Message& message, TimePoint now) {
  if (const auto* hello = std::get_if<Hello>(&message)) return on_hello(link, *hello, now);
  const auto found = agents_.find(link);
  if (found == agents_.end()) return;  // it was refused: what it still says counts for nothing
  if (const auto* report = std::get_if<Report>(&message)) return on_report(link, found->second, *report, now);
  if (std::holds_alternative<Bye>(message)) return forget(link, now);
  refuse(link, RefusalReason::kNonsense, "agents send hello, report and bye", now);
}

void Coordinator::on_hello(Link link, const Hello& hello, TimePoint now) {
  if (agents_.contains(link)) return refuse(link, RefusalReason::kNonsense, "a second hello", now);
  if (stopping_) return refuse(link, RefusalReason::kStopping, "", now);
  const bool standby = hello.role == Role::kStandby;
  if (!in_charge_) return refuse(link, RefusalReason::kStandby, "", now);
  if (agents_.size() >= options_.most_agents) {
    return refuse(link, RefusalReason::kFull, fmt::format("{} agents", options_.most_agents), now);
  }
  // A standby that was in charge, or an agent that heard of one that was.
  raise_term(hello.seen.term == term_ && hello.seen.number <= number_ ? 0 : hello.seen.term);
  if (!standby) {
    const auto before = by_agent_.find(hello.agent);
    if (before != by_agent_.end()) refuse(before->second, RefusalReason::kSameName, "", now);
    by_agent_[hello.agent] = link;
  }
  Agent& agent = agents_[link];
  agent.hello = hello;
  agent.standby = standby;
  agent.heard = agent.told_at = agent.refilled = now;
  agent.reports_left = kReportBurst;
  agent.reported_at = now;
  if (!standby) {
    agent.port = ports_.take(hello);
    ++jobs_[hello.job];
  }
  out_.push_back({link, Welcome{term_, options_.interval, options_.lease()}});
}

void Coordinator::on_closed(Link link, TimePoint now) { forget(link, now); }

void Coordinator::forget(Link link, TimePoint now) {
  const auto found = agents_.find(link);
  if (found == agents_.end()) return;
  const Agent agent = std::move(found->second);
  agents_.erase(found);
  if (agent.standby) return;
  for (const auto& [key, told] : agent.told) drop_part(link, key, now);
  if (const auto own = by_agent_.find(agent.hello.agent); own != by_agent_.end() && own->second == link) {
    by_agent_.erase(own);
  }
  ports_.give_back(agent.port);
  if (const auto job = jobs_.find(agent.hello.job); --job->second == 0) {
    service_.forget(job->first);
    jobs_.erase(job);
  }
  dirty_ = true;
}

bool Coordinator::may_report(Agent& agent, TimePoint now) const {
  const double intervals = std::chrono::duration<double>(now - agent.refilled) / options_.interval;
  agent.refilled = now;
  agent.reports_left = std::min(kReportBurst, agent.reports_left + intervals * kReportsPerInterval);
  if (agent.reports_left < 1) return false;
  agent.reports_left -= 1;
  return true;
}

void Coordinator::on_report(Link link, Agent& agent, const Report& report, TimePoint now) {
  agent.heard = now;
  if (agent.standby) return refuse(link, RefusalReason::kNonsense, "a standby has no classes", now);
  if (!may_report(agent, now)) {
    ++counters_.too_fast;
    if (++agent.too_fast >= kMostTooFast) refuse(link, RefusalReason::kTooFast, "", now);
    return;
  }
  agent.too_fast = 0;
  agent.reported = true;
  ++counters_.reports;
  for (const ClassReport& one : report.classes) {
    if (one.key.job != agent.hello.job) {
      return refuse(link, RefusalReason::kNonsense, "a class of another job than the hello's", now);
    }
    hear(link, agent, one, now);
  }
  agent.reported_at = now;
}

void Coordinator::hear(Link link, Agent& agent, const ClassReport& report, TimePoint now) {
  dirty_ = true;
  if (report.gone) {
    if (agent.told.erase(report.key) > 0) drop_part(link, report.key, now);
    return;
  }
  auto found = classes_.find(report.key);
  const bool room = found != classes_.end() || classes_.size() < options_.most_classes;
  if (!room || (!agent.told.contains(report.key) && agent.told.size() >= kMostClasses)) {
    ++counters_.too_many;
    return;
  }
  if (found == classes_.end()) {
    found = classes_.emplace(report.key, Class{}).first;
    found->second.came = ++came_;
  }
  agent.told.emplace(report.key, Told{});
  Class& one = found->second;
  const auto [part, added] = one.parts.try_emplace(link);
  const ClassReport before = std::exchange(part->second, report);
  // What it sent before this connection is not known to be of now.
  std::uint64_t sent = added || report.attained < before.attained ? 0 : report.attained - before.attained;
  // No more than twice what the line carries in that time: the rest is a lie, or a line that is faster than it says.
  const double most = 2 * static_cast<double>(ports_.bytes_per_second(agent.port)) *
                      std::chrono::duration<double>(now - agent.reported_at + options_.interval).count();
  if (static_cast<double>(sent) > most) sent = static_cast<std::uint64_t>(most);
  agent.attained += sent;
  const auto job_port = std::pair(report.key.job, agent.port);
  served_[job_port] += ports_.seconds(agent.port, sent);
  count_waiting(one, !added && before.waits, report.waits, now);
  if (report.period_us > 0) one.phase_at = now - std::chrono::microseconds(report.since_us);
}

void Coordinator::count_waiting(Class& one, bool before, bool after, TimePoint now) {
  if (before == after) return;
  if (after) {
    if (one.waiting++ == 0) one.began = now;
    return;
  }
  if (--one.waiting == 1) one.alone_at = now;
  if (one.waiting > 0) return;
  ++one.iterations;
  one.latest = now - one.began;
  if (one.deadline > Duration(0)) ++(one.latest <= one.deadline ? one.in_time : one.late);
}

void Coordinator::drop_part(Link link, const ClassKey& key, TimePoint now) {
  const auto found = classes_.find(key);
  if (found == classes_.end()) return;
  const auto part = found->second.parts.find(link);
  if (part == found->second.parts.end()) return;
  count_waiting(found->second, part->second.waits, false, now);
  found->second.parts.erase(part);
  if (found->second.parts.empty()) classes_.erase(found);
}

void Coordinator::tell_all(TimePoint now) {
  ++number_;
  std::vector<Link> links;
  for (const auto& [link, agent] : agents_) links.push_back(link);
  std::sort(links.begin(), links.end());
  count_capped();
  for (const Link link : links) tell(link, agents_.at(link), now);
  for (auto& [key, one] : classes_) one.hold_us = 0;
}

void Coordinator::tell(Link link, Agent& agent, TimePoint now) {
  Order order{{term_, number_}, options_.lease(), agent.fresh && agent.reported, {}};
  for (auto& [key, told] : agent.told) {
    const Class& one = classes_.at(key);
    const Told place{one.place, one.level, cap_of(link, agent, one), one.promise};
    if (one.place == 0 || (told == place && one.hold_us == 0 && !agent.fresh)) continue;
    told = place;
    order.classes.push_back({key, place.place, place.level, one.hold_us, place.cap, place.promise});
  }
  const bool says = order.all || !order.classes.empty();
  if (!says && now - agent.told_at < options_.lease() / 3) return;
  ++(says ? counters_.orders : counters_.renewals);
  agent.told_at = now;
  if (agent.reported) agent.fresh = false;
  out_.push_back({link, std::move(order)});
}

void Coordinator::drop_silent(TimePoint now) {
  std::vector<Link> links;
  for (const auto& [link, agent] : agents_) {
    if (!agent.standby && now - agent.heard > options_.silent_leases * options_.lease()) links.push_back(link);
  }
  std::sort(links.begin(), links.end());
  for (const Link link : links) refuse(link, RefusalReason::kSilent, "", now);
}

void Coordinator::on_timeout(TimePoint now) {
  if (stopping_) return;
  if (!in_charge_) {
    if (now - primary_heard_ >= options_.lease()) take_charge(now);
    return;
  }
  if (now < next_round_) return;
  next_round_ = now + options_.interval;
  drop_silent(now);
  if (dirty_) {
    make_order(now);
    if (options_.shifts) shift(now);
    dirty_ = false;
  }
  tell_all(now);
}

std::optional<TimePoint> Coordinator::next_timeout() const {
  if (stopping_) return std::nullopt;
  return in_charge_ ? next_round_ : primary_heard_ + options_.lease();
}

std::optional<Coordinator::Outgoing> Coordinator::poll() {
  if (out_.empty()) return std::nullopt;
  Outgoing first = std::move(out_.front());
  out_.pop_front();
  return first;
}

std::vector<Coordinator::ClassView> Coordinator::classes(TimePoint now) const {
  std::vector<ClassView> all;
  for (const auto& [key, one] : classes_) {
    ClassView view;
    view.key = key;
    view.level = one.level;
    view.place = one.place;
    view.agents = static_cast<std::uint32_t>(one.parts.size());
    view.waiting = one.waiting;
    view.iterations = one.iterations;
    view.latest = one.latest;
    view.deadline = one.deadline;
    view.promise = one.promise;
    view.in_time = one.in_time;
    view.late = one.late;
    view.urgency = std::numeric_limits<std::uint8_t>::max();
    for (const auto& [link, report] : one.parts) {
      const Hello& hello = agents_.at(link).hello;
      view.tenant = hello.tenant;
      view.urgency = std::min(view.urgency, report.urgency);
      view.in_all += report.in_all;
      view.left += report.left;
      view.attained += report.attained;
      view.period = std::max<Duration>(view.period, std::chrono::microseconds(report.period_us));
      if (report.waits && one.waiting == 1 && one.parts.size() > 1 && now - one.alone_at >= options_.interval) {
        view.lags = hello.host;
      }
    }
    all.push_back(std::move(view));
  }
  std::sort(all.begin(), all.end(), [](const ClassView& a, const ClassView& b) { return a.place < b.place; });
  return all;
}

std::vector<Coordinator::AgentView> Coordinator::agents(TimePoint now) const {
  std::vector<std::pair<Link, const Agent*>> sorted;
  for (const auto& [link, agent] : agents_) {
    if (!agent.standby) sorted.emplace_back(link, &agent);
  }
  std::sort(sorted.begin(), sorted.end());
  std::vector<AgentView> all;
  for (const auto& [link, agent] : sorted) {
    all.push_back({agent->hello.host, agent->hello.nic, agent->hello.tenant, agent->hello.job,
                   static_cast<std::uint32_t>(agent->told.size()), ports_.bytes_per_second(agent->port),
                   agent->attained, now - agent->heard});
  }
  return all;
}

}  // namespace clustar::coflow::control
