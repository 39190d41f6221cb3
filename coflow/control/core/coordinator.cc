#include "coflow/control/core/coordinator.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "coflow/control/core/shifts.h"

namespace clustar::coflow::control {
namespace {

// What an agent with many classes needs for one interval, and what it may be behind.
constexpr double kReportsPerInterval = 2.0 * kMostClasses / kMostReported;
constexpr double kReportBurst = 4 * kReportsPerInterval;
constexpr std::uint32_t kMostTooFast = 256;  // reports in a row: then it is no mistake
// First terms are milliseconds: a coordinator that ran 35 years ahead of this one's clock is a lie.
constexpr std::uint64_t kFarthestTerm = std::uint64_t{1} << 40;
// A coflow of unknown size counts as if as much were to come as was sent (LAS; Aalo, SIGCOMM 2015).
constexpr std::uint64_t kUnknownSize = 1024 * 1024;
// Level i of three has four times the bytes of the one before (Crux, SIGCOMM 2024).
constexpr std::array<double, 2> kLevelEnds{1.0 / 21, 5.0 / 21};
constexpr int kShiftEvery = 5;  // periods: until it shows what the last one did

double seconds(std::uint64_t bytes, std::uint64_t bytes_per_second) {
  return static_cast<double>(bytes) / static_cast<double>(bytes_per_second);
}

std::uint64_t bytes_to_come(const ClassReport& report) {
  if (report.waits) return report.in_all > 0 ? report.left : std::max(report.attained, kUnknownSize);
  return report.repeats ? report.in_all : 0;
}

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
  agent.told.emplace(report.key, std::pair<std::uint32_t, std::uint8_t>(0, 0));
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
  served_[job_port] += seconds(sent, ports_.bytes_per_second(agent.port));
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

double Coordinator::weight_of(const Class& one) const {
  double weight = 0;
  for (const auto& [link, report] : one.parts) {
    const Hello& hello = agents_.at(link).hello;
    const auto tenant = options_.tenants.find(hello.tenant);
    weight = std::max(weight, hello.weight * (tenant == options_.tenants.end() ? 1 : tenant->second));
  }
  return weight > 0 ? weight : 1;
}

ClassLoad Coordinator::load_of(const ClassKey& key, const Class& one) {
  ClassLoad load;
  load.job = key.job;
  load.came = one.came;
  load.waits = one.waiting > 0;
  load.weight = weight_of(one);
  load.urgency = std::numeric_limits<std::uint8_t>::max();
  for (const auto& [link, report] : one.parts) {
    const Agent& agent = agents_.at(link);
    load.urgency = std::min(load.urgency, report.urgency);
    ports_.add(agent.port, report, bytes_to_come(report));
    const std::uint64_t bytes = std::max(report.in_all, bytes_to_come(report));
    load.largest = std::max(load.largest, seconds(bytes, ports_.bytes_per_second(agent.port)));
  }
  load.loads = ports_.take_loads();
  return load;
}

void Coordinator::count_service() {
  std::map<std::uint32_t, std::pair<double, double>> most;  // by job: at its busiest port; its weight
  for (const auto& [job_port, time] : served_) {
    auto& [busiest, weight] = most[job_port.first];
    busiest = std::max(busiest, time);
    weight = 1;
  }
  served_.clear();
  for (const auto& [key, one] : classes_) {
    if (const auto job = most.find(key.job); job != most.end()) job->second.second = weight_of(one);
  }
  for (const auto& [job, served] : most) service_.served(job, served.first, served.second);
}

void Coordinator::make_order() {
  ++counters_.rounds;
  count_service();
  ports_.begin();
  std::vector<Class*> all;
  std::vector<ClassLoad> loads;
  for (auto& [key, one] : classes_) {
    all.push_back(&one);
    loads.push_back(load_of(key, one));
  }
  const std::vector<std::uint32_t> order = total_order(loads, ports_.loads(), options_.policy, service_);
  std::vector<Class*> ordered;
  std::vector<std::uint32_t> known;
  std::vector<double> needs;
  for (const std::uint32_t at : order) {
    ordered.push_back(all[at]);
    known.push_back(all[at]->place);
    needs.push_back(loads[at].waits ? loads[at].largest : 0);
  }
  const std::vector<std::uint32_t> numbers = PlaceNumbers::number(known);
  for (std::size_t i = 0; i < ordered.size(); ++i) ordered[i]->place = numbers[i];
  give_levels(ordered, needs);
}

void Coordinator::give_levels(const std::vector<Class*>& ordered, const std::vector<double>& needs) {
  double all = 0, before = 0;
  for (const double need : needs) all += need;
  for (std::size_t i = 0; i < ordered.size(); ++i) {
    const auto above = [&](double end) { return before > 0 && before >= end * all; };
    ordered[i]->level = static_cast<std::uint8_t>(std::count_if(kLevelEnds.begin(), kLevelEnds.end(), above));
    before += needs[i];
  }
}

void Coordinator::shift(TimePoint now) {
  struct Job {
    std::uint64_t came = std::numeric_limits<std::uint64_t>::max();
    Periodic periodic{};
    TimePoint phase_at = TimePoint::max();
  };
  std::map<std::uint32_t, std::map<std::uint32_t, Job>> ports;  // by port, by job
  for (const auto& [key, one] : classes_) {
    for (const auto& [link, report] : one.parts) {
      if (!report.repeats || report.period_us == 0 || report.in_all == 0) continue;
      const std::uint32_t port = agents_.at(link).port;
      Job& job = ports[port][key.job];
      job.came = std::min(job.came, one.came);
      job.phase_at = std::min(job.phase_at, one.phase_at);
      job.periodic.period = std::max<Duration>(job.periodic.period, std::chrono::microseconds(report.period_us));
      const double busy = seconds(report.in_all, ports_.bytes_per_second(port));
      job.periodic.busy += Duration(static_cast<Duration::rep>(std::min(busy, 3600.0) * 1e9));
    }
  }
  std::map<std::uint32_t, Duration> held;  // by job, the longest
  for (auto& [port, jobs] : ports) {
    std::vector<std::pair<std::uint64_t, std::uint32_t>> by_coming;
    for (const auto& [job, one] : jobs) by_coming.emplace_back(one.came, job);
    std::sort(by_coming.begin(), by_coming.end());
    std::vector<Periodic> periodic;
    for (const auto& [came, job] : by_coming) {
      periodic.push_back(jobs[job].periodic);
      periodic.back().since = now - jobs[job].phase_at;
    }
    const std::vector<Duration> holds_here = holds(periodic);
    for (std::size_t i = 0; i < by_coming.size(); ++i) {
      Duration& longest = held[by_coming[i].second];
      longest = std::max(longest, holds_here[i]);
    }
  }
  for (auto& [key, one] : classes_) {
    const auto hold = held.find(key.job);
    if (hold == held.end() || hold->second == Duration(0)) continue;
    Duration period{0};
    for (const auto& [link, report] : one.parts) {
      period = std::max<Duration>(period, std::chrono::microseconds(report.period_us));
    }
    if (period == Duration(0)) continue;
    if (one.held_at != TimePoint::min() && now - one.held_at < kShiftEvery * period) continue;
    one.held_at = now;
    one.hold_us = static_cast<std::uint32_t>(std::min(hold->second, period) / std::chrono::microseconds(1));
    ++counters_.holds;
  }
}

void Coordinator::tell_all(TimePoint now) {
  ++number_;
  std::vector<Link> links;
  for (const auto& [link, agent] : agents_) links.push_back(link);
  std::sort(links.begin(), links.end());
  for (const Link link : links) tell(link, agents_.at(link), now);
  for (auto& [key, one] : classes_) one.hold_us = 0;
}

void Coordinator::tell(Link link, Agent& agent, TimePoint now) {
  Order order{{term_, number_}, options_.lease(), agent.fresh && agent.reported, {}};
  for (auto& [key, told] : agent.told) {
    const Class& one = classes_.at(key);
    const auto place = std::pair(one.place, one.level);
    if (one.place == 0 || (told == place && one.hold_us == 0 && !agent.fresh)) continue;
    told = place;
    order.classes.push_back({key, one.place, one.level, one.hold_us});
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
    make_order();
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
