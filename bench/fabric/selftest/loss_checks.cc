// Losses on purpose: which of the numbered packets did not arrive.
#include <poll.h>

#include <algorithm>
#include <cmath>

#include "bench/fabric/selftest/lab.h"

namespace clustar::bench::fabric::selftest {
namespace {

constexpr std::uint64_t kSmall = 100;  // bytes of a frame

Result<void> send_and_collect(Lab& lab, Range& range, const char* check, const PortRules& rules, int count) {
  const Pinned pinned;
  if (const auto ok = lab.begin(range, check, rules); !ok) return ok;
  if (const auto ok = range.send(tos_of(0), kSmall, count); !ok) return ok;
  if (const auto settled = range.settle(); !settled) return tl::unexpected(settled.error());
  if (const auto ok = range.collect(); !ok) return ok;
  return lab.compare(range, check);
}

std::vector<bool> arrived_of(const Range& range) {
  std::vector<bool> there(range.sent().size(), false);
  for (const Arrival& one : range.arrivals()) {
    if (one.sequence < there.size()) there[one.sequence] = true;
  }
  return there;
}

std::uint64_t lost_of(const Range& range) {
  const auto there = arrived_of(range);
  return static_cast<std::uint64_t>(std::count(there.begin(), there.end(), false));
}

int packets_of(const Lab& lab) { return lab.options().quick ? 20'000 : 100'000; }

Result<void> check_loss(Lab& lab, Range& range) {
  constexpr double kLoss = 0.01;
  PortRules rules;
  rules.to_host.random = kLoss;
  const int count = packets_of(lab);
  if (const auto ok = send_and_collect(lab, range, "loss", rules, count); !ok) return ok;
  lab.judge(row("loss", "lost at random", kLoss * count, static_cast<double>(lost_of(range)),
                binomial_interval(static_cast<std::uint64_t>(count), kLoss), "packets"));
  return {};
}

Result<void> check_gilbert(Lab& lab, Range& range) {
  constexpr double kToBad = 0.01, kToGood = 0.2;
  PortRules rules;
  rules.to_host.gilbert_elliott = {true, kToBad, kToGood, 0, 1};
  const int count = packets_of(lab);
  if (const auto ok = send_and_collect(lab, range, "gilbert-elliott", rules, count); !ok) return ok;
  std::uint64_t runs = 0;
  bool before = true;
  for (const bool there : arrived_of(range)) {
    runs += before && !there ? 1U : 0U;
    before = there;
  }
  const auto lost = static_cast<double>(lost_of(range));
  lab.judge(row("gilbert-elliott", "lost share", kToBad / (kToBad + kToGood), lost / count,
                gilbert_loss_interval(static_cast<std::uint64_t>(count), kToBad, kToGood), "of packets"));
  lab.judge(row("gilbert-elliott", "mean length of a run of losses", 1 / kToGood,
                runs == 0 ? 0 : lost / static_cast<double>(runs), gilbert_run_interval(runs, kToGood), "packets"));
  return {};
}

// When a packet met the switch: after it was sent, and before the next one arrived that was sent no earlier.
struct Meeting {
  std::int64_t from_ns = 0, to_ns = 0;
};

std::vector<Meeting> meetings(const Range& range, std::int64_t settled_ns) {
  std::vector<std::int64_t> arrival(range.sent().size(), 0);
  for (const Arrival& one : range.arrivals()) {
    if (one.sequence < arrival.size()) arrival[one.sequence] = one.at_ns;
  }
  std::vector<Meeting> all(arrival.size());
  std::int64_t latest = settled_ns;
  for (std::size_t i = arrival.size(); i-- > 0;) {
    if (arrival[i] != 0) latest = std::min(latest, arrival[i]);
    all[i] = {range.sent()[i].before_ns, latest};
  }
  return all;
}

struct Inside {
  std::uint64_t in = 0, in_lost = 0, out = 0, out_lost = 0;
};

// The first period begins with the first packet. Packets that may have met an edge of a burst count for neither.
Inside sort_out(const std::vector<Meeting>& met, const std::vector<bool>& there, const Bursts& bursts) {
  const auto every = static_cast<std::int64_t>(bursts.every_ns), length = static_cast<std::int64_t>(bursts.length_ns);
  Inside found;
  for (std::size_t i = 0; i < met.size(); ++i) {
    const std::int64_t least = std::max<std::int64_t>(met[i].from_ns - met[0].to_ns, 0);
    const std::int64_t most = met[i].to_ns - met[0].from_ns;
    if (least / every != most / every) continue;
    if (most % every < length) {
      ++found.in;
      found.in_lost += there[i] ? 0U : 1U;
    } else if (least % every >= length) {
      ++found.out;
      found.out_lost += there[i] ? 0U : 1U;
    }
  }
  return found;
}

Result<void> check_bursts(Lab& lab, Range& range) {
  constexpr std::uint64_t kEvery = 50'000'000, kLength = 10'000'000;
  constexpr double kLoss = 0.75;
  PortRules rules;
  rules.to_host.bursts = {kEvery, kLength, kLoss};
  const Pinned pinned;
  if (const auto ok = lab.begin(range, "bursts", rules); !ok) return ok;
  const std::int64_t until = now_ns() + (lab.options().quick ? 500'000'000 : 2'000'000'000);
  while (now_ns() < until) {
    if (const auto ok = range.send_one(tos_of(0), kSmall); !ok) return ok;
    const timespec pause{0, 50'000};
    ppoll(nullptr, 0, &pause, nullptr);
    if (const auto ok = range.check_signals(); !ok) return ok;
    range.take();
  }
  const auto settled = range.settle();
  if (!settled) return tl::unexpected(settled.error());
  if (const auto ok = range.collect(); !ok) return ok;
  if (const auto ok = lab.compare(range, "bursts"); !ok) return ok;
  const Inside found = sort_out(meetings(range, *settled), arrived_of(range), rules.to_host.bursts);
  if (found.in < 50 || found.out < 50) {
    lab.skip("bursts", "", "the machine was too busy to tell packets within a burst from those outside");
    return {};
  }
  lab.judge(row("bursts", "lost within", kLoss * static_cast<double>(found.in), static_cast<double>(found.in_lost),
                binomial_interval(found.in, kLoss, kTimedConfidence), "packets"));
  lab.judge(row("bursts", "lost outside", 0, static_cast<double>(found.out_lost), {0, 0}, "packets"));
  return {};
}

Result<void> check_dead(Lab& lab, Range& range) {
  constexpr int kCount = 500;
  PortRules rules;
  rules.to_host.dead = true;
  if (const auto ok = send_and_collect(lab, range, "dead-link", rules, kCount); !ok) return ok;
  lab.judge(row("dead-link", "arrived over it", 0, static_cast<double>(range.arrivals().size()), {0, 0}, "packets"));
  if (const auto ok = send_and_collect(lab, range, "dead-link", {}, kCount); !ok) return ok;
  lab.judge(row("dead-link", "arrived after the repair", kCount, static_cast<double>(range.arrivals().size()),
                {kCount, kCount}, "packets"));
  return {};
}

}  // namespace

std::vector<RangeCheck> loss_checks() {
  return {{"loss", true, check_loss},
          {"gilbert-elliott", true, check_gilbert},
          {"bursts", true, check_bursts},
          {"dead-link", true, check_dead}};
}

}  // namespace clustar::bench::fabric::selftest
