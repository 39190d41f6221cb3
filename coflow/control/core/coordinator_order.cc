// What the coordinator says: who goes first, who waits once, who is promised a deadline, who is capped.
#include <algorithm>
#include <array>
#include <limits>

#include "coflow/control/core/coordinator.h"
#include "coflow/control/core/deadlines.h"
#include "coflow/control/core/shifts.h"

namespace clustar::coflow::control {
namespace {

// A coflow of unknown size counts as if as much were to come as was sent (LAS; Aalo, SIGCOMM 2015).
constexpr std::uint64_t kUnknownSize = 1024 * 1024;
// Level i of three has four times the bytes of the one before (Crux, SIGCOMM 2024).
constexpr std::array<double, 2> kLevelEnds{1.0 / 21, 5.0 / 21};
// A class whose size is another by more has another claim.
constexpr double kSameSize = 0.1;
constexpr int kShiftEvery = 5;  // periods: until it shows what the last one did

std::uint64_t bytes_to_come(const ClassReport& report) {
  if (report.waits) return report.in_all > 0 ? report.left : std::max(report.attained, kUnknownSize);
  return report.repeats ? report.in_all : 0;
}

}  // namespace

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
    load.largest = std::max(load.largest, ports_.seconds(agent.port, bytes));
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

void Coordinator::learn_claims(Class& one) {
  Duration least{0};
  for (const auto& [link, report] : one.parts) {
    const Duration deadline = std::chrono::microseconds(report.deadline_us);
    if (deadline > Duration(0) && (least == Duration(0) || deadline < least)) least = deadline;
  }
  one.deadline = least;
  std::erase_if(one.claims, [&](const auto& claim) { return !one.parts.contains(claim.first); });
  if (least == Duration(0)) return;
  for (const auto& [link, report] : one.parts) {
    // Where its bytes go to is seen of those that are queued, and near the end these are the slowest peer's alone.
    if (!report.waits || report.in_all == 0 || 2 * report.left < report.in_all || report.peers.empty()) continue;
    PartClaim& claim = one.claims[link];
    const auto differs =
        static_cast<double>(std::max(report.in_all, claim.in_all) - std::min(report.in_all, claim.in_all));
    const bool another = differs > kSameSize * static_cast<double>(claim.in_all);
    if (!another && report.left <= claim.seen) continue;
    ports_.add(agents_.at(link).port, report, report.in_all);
    claim = {another ? report.in_all : claim.in_all, report.left, ports_.take_loads()};
  }
}

void Coordinator::make_promises(const std::vector<Class*>& classes, std::vector<ClassLoad>& loads, TimePoint now) {
  const auto in_seconds = [](Duration time) { return std::chrono::duration<double>(time).count(); };
  std::vector<std::size_t> claimants;
  std::vector<DeadlineClaim> claims;
  for (std::size_t i = 0; i < classes.size(); ++i) {
    Class& one = *classes[i];
    learn_claims(one);
    Duration within = one.deadline;
    bool comes = one.waiting > 0;
    for (const auto& [link, report] : one.parts) {
      comes = comes || report.repeats;
      if (report.period_us > 0) within = std::min<Duration>(within, std::chrono::microseconds(report.period_us));
    }
    if (one.deadline == Duration(0) || one.claims.size() < one.parts.size() || !comes) {
      one.promise = Promise::kNone;
      continue;
    }
    claimants.push_back(i);
    claims.push_back({one.promise == Promise::kGiven, one.came, in_seconds(within), {}});
    std::map<std::uint32_t, double> needs;  // by port, of all parts
    for (const auto& [link, claim] : one.claims) {
      for (const BssiItem::Load& load : claim.loads) needs[load.port] += load.bytes;
    }
    for (const auto& [port, seconds] : needs) claims.back().loads.push_back({port, seconds});
  }
  const std::vector<bool> kept = promise(claims, ports_.loads());
  for (std::size_t i = 0; i < claimants.size(); ++i) {
    Class& one = *classes[claimants[i]];
    one.promise = kept[i] ? Promise::kGiven : Promise::kRefused;
    // What is late already has nothing left of its promise: those that are not would be late, too.
    const double left = in_seconds(one.waiting > 0 ? one.deadline - (now - one.began) : one.deadline);
    if (kept[i] && left > 0) loads[claimants[i]].due = left;
  }
}

void Coordinator::count_capped() {
  capped_.clear();
  if (options_.caps.empty()) return;
  for (const auto& [key, one] : classes_) {
    for (const auto& [link, report] : one.parts) {
      const Agent& agent = agents_.at(link);
      if (report.waits && options_.caps.contains(agent.hello.tenant)) ++capped_[{agent.port, agent.hello.tenant}];
    }
  }
}

std::uint64_t Coordinator::cap_of(Link link, const Agent& agent, const Class& one) const {
  const auto cap = options_.caps.find(agent.hello.tenant);
  if (cap == options_.caps.end()) return 0;
  const auto found = capped_.find({agent.port, agent.hello.tenant});
  const std::uint64_t waiting = found == capped_.end() ? 0 : found->second;
  // One that begins has its part from the beginning.
  const std::uint64_t parts = waiting + (one.parts.at(link).waits ? 0 : 1);
  return std::max<std::uint64_t>(1, cap->second / parts);
}

void Coordinator::make_order(TimePoint now) {
  ++counters_.rounds;
  count_service();
  ports_.begin();
  std::vector<Class*> all;
  std::vector<ClassLoad> loads;
  for (auto& [key, one] : classes_) {
    all.push_back(&one);
    loads.push_back(load_of(key, one));
  }
  make_promises(all, loads, now);
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
      const double busy = ports_.seconds(port, report.in_all);
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

}  // namespace clustar::coflow::control
