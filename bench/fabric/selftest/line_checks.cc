// What a port does at the rate that was asked for. These are the checks that need the machine to keep up: where others
// use its cores, a rate that is too low proves nothing, and is no failure.
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cmath>

#include "bench/fabric/ports.h"
#include "bench/fabric/selftest/lab.h"

namespace clustar::bench::fabric::selftest {
namespace {

constexpr double kTolerance = 0.03;
constexpr int kTries = 3;
constexpr double kOverload = 1.6;       // what is offered, in parts of the rate
constexpr double kLeastOverload = 1.1;  // less does not fill the queue

Interval around(double value) { return {value * (1 - kTolerance), value * (1 + kTolerance)}; }

struct Flow {
  int traffic_class = 0;
  double share = 0;  // of the rate
};

// Sends every flow's share each millisecond. Does not catch up: what a busy machine made late would come as a burst
// that nobody asked for.
Result<void> offer(Range& range, const std::vector<Flow>& flows, double seconds) {
  constexpr double kTickMs = 1;
  const double tick_bytes = static_cast<double>(range.rate_bps()) / 8e3 * kTickMs;
  const auto frame = static_cast<double>(range.full_frame());
  std::vector<double> owed(flows.size(), 0);
  const std::int64_t begin = now_ns(), until = begin + static_cast<std::int64_t>(seconds * 1e9);
  for (std::int64_t next = begin; now_ns() < until;) {
    if (const auto ok = range.check_signals(); !ok) return ok;
    for (std::size_t i = 0; i < flows.size(); ++i) {
      for (owed[i] += flows[i].share * tick_bytes; owed[i] >= frame; owed[i] -= frame) {
        const auto ok = range.send_one(tos_of(flows[i].traffic_class), range.full_frame());
        if (!ok) return ok;
      }
    }
    range.take();
    next = std::max(next + static_cast<std::int64_t>(kTickMs * 1e6), now_ns() - 1'000'000);
    const std::int64_t left = next - now_ns();
    const timespec pause{0, std::max<std::int64_t>(left, 0)};
    if (left > 0) ppoll(nullptr, 0, &pause, nullptr);
  }
  return {};
}

// At least so long that a packet more or less is nothing.
double seconds_of(const Lab& lab, const Range& range) {
  const double frames = 300 * 8.0 * static_cast<double>(range.full_frame()) / static_cast<double>(range.rate_bps());
  return std::max(lab.options().quick ? 0.5 : 2.0, frames);
}

// Bits per second between the first and the last of those arrivals; 0 when there are too few.
double rate_of(const std::vector<Arrival>& arrivals, std::size_t skip, int traffic_class) {
  double bits = 0;
  std::int64_t first = 0, last = 0;
  std::size_t seen = 0;
  for (const Arrival& one : arrivals) {
    if (traffic_class >= 0 && one.tos >> 5 != traffic_class) continue;
    if (seen++ < skip) continue;
    if (first == 0) {
      first = one.at_ns;
      continue;
    }
    bits += 8.0 * one.frame_bytes;
    last = one.at_ns;
  }
  return last > first ? bits * 1e9 / static_cast<double>(last - first) : 0;
}

double offered_rate(const Range& range, int traffic_class) {
  double bits = 0;
  std::int64_t first = 0, last = 0;
  for (const Sent& one : range.sent()) {
    if (traffic_class >= 0 && one.tos >> 5 != traffic_class) continue;
    if (first == 0) {
      first = one.before_ns;
      continue;
    }
    bits += 8.0 * static_cast<double>(one.frame_bytes);
    last = one.before_ns;
  }
  return last > first ? bits * 1e9 / static_cast<double>(last - first) : 0;
}

Result<void> overload(Lab& lab, Range& range, const char* check, const PortRules& rules,
                      const std::vector<Flow>& flows) {
  if (const auto ok = lab.begin(range, check, rules); !ok) return ok;
  {
    const Pinned pinned;
    if (const auto ok = offer(range, flows, seconds_of(lab, range)); !ok) return ok;
    if (const auto settled = range.settle(); !settled) return tl::unexpected(settled.error());
  }
  if (const auto ok = range.collect(); !ok) return ok;
  return lab.compare(range, check);
}

std::string too_slow(double offered, const Range& range) {
  return fmt::format("this machine sent {:.0f} Mbit/s, too little to fill a line of {:.0f} Mbit/s; try a lower --rate",
                     offered / 1e6, static_cast<double>(range.rate_bps()) / 1e6);
}

Result<void> check_rate(Lab& lab, Range& range) {
  const auto asked = static_cast<double>(range.rate_bps());
  const Interval allowed = around(asked);
  // HTB's bucket goes out at once: the steady state begins behind it.
  const std::size_t bucket = 2 * range.bucket_bytes() / range.full_frame();
  double rate = 0, offered = 0;
  std::string busy;
  for (int i = 0; i < kTries; ++i) {
    const BusyWatch watch;
    if (const auto ok = overload(lab, range, "rate", {}, {{0, kOverload}}); !ok) return ok;
    rate = rate_of(range.arrivals(), bucket, -1);
    offered = offered_rate(range, -1);
    busy = watch.reason();
    if (allowed.contains(rate) || rate > allowed.high) break;
  }
  if (rate < allowed.low && offered < kLeastOverload * asked) {
    lab.skip("rate", "under steady overload", busy.empty() ? too_slow(offered, range) : busy);
    return {};
  }
  lab.judge(row("rate", "under steady overload", asked, rate, allowed, "bit/s"), Excused::kBelow, busy);
  return {};
}

// What a full buffer leaves at: HTB's own rate, which the virtual queue hides under overload.
Result<void> check_drain(Lab& lab, Range& range) {
  const auto asked = static_cast<double>(range.rate_bps());
  const std::uint64_t frame = range.full_frame();
  const auto count = static_cast<int>(range.buffer_bytes() * 95 / 100 / frame);
  const auto bucket = static_cast<double>(range.bucket_bytes());
  Check best;
  std::string busy;
  for (int i = 0; i < kTries; ++i) {
    const BusyWatch watch;
    const Pinned pinned;
    if (const auto ok = lab.begin(range, "drain", {}); !ok) return ok;
    if (const auto ok = range.send(tos_of(0), frame, count); !ok) return ok;
    const auto settled = range.settle();
    if (!settled) return tl::unexpected(settled.error());
    if (const auto ok = range.collect(); !ok) return ok;
    if (const auto ok = lab.compare(range, "drain"); !ok) return ok;
    if (range.arrivals().empty()) return clustar::fail(ErrorCode::kSystem, "nothing of the burst arrived");
    const double seconds = static_cast<double>(range.arrivals().back().at_ns - range.sent().front().before_ns) / 1e9;
    const double bits = 8.0 * (static_cast<double>(frame * range.arrivals().size()) - bucket);
    Interval allowed = around(asked);
    // The class's own bucket, and the packet that goes while there is anything in it.
    allowed.high += 8.0 * static_cast<double>(kLeafBurstBytes + frame) / seconds;
    if (range.carried(*settled) > 0.5 * static_cast<double>(range.buffer_bytes())) {
      lab.skip("drain", "of a full buffer", too_slow(offered_rate(range, -1), range));
      return {};
    }
    busy = watch.reason();
    best = row("drain", "of a full buffer", asked, bits / seconds, allowed, "bit/s");
    if (bits / seconds >= allowed.low) break;
  }
  lab.judge(best, Excused::kBelow, busy);
  return {};
}

Result<void> check_isolation(Lab& lab, Range& range) {
  PortRules rules;
  for (std::size_t c = 0; c < 5; ++c) rules.classes[c].drop_above_bytes = range.buffer_bytes() / 2;
  // Class 5 comes behind what class 1 has filled, or there would be room for it in any switch.
  constexpr double kShare = 0.25;
  double lost = 0, rate = 0, offered = 0;
  std::string busy;
  for (int i = 0; i < kTries; ++i) {
    const BusyWatch watch;
    if (const auto ok = overload(lab, range, "isolation", rules, {{1, kOverload}, {5, kShare}}); !ok) return ok;
    lost = static_cast<double>(sent(range, 5) - arrived(range, 5));
    rate = rate_of(range.arrivals(), 0, 5);
    offered = offered_rate(range, 5);
    busy = watch.reason();
    if (lost > 0 || around(offered).contains(rate)) break;
  }
  const Check loss = row("isolation", "class 5 lost beside an overload of class 1", 0, lost, {0, 0}, "packets");
  // Without a full queue nothing was isolated from anything; but a loss is a loss.
  const double all = offered_rate(range, -1);
  const bool full = all >= kLeastOverload * static_cast<double>(range.rate_bps()) && sent(range, 1) > arrived(range, 1);
  if (!full && lost == 0) {
    lab.skip("isolation", loss.what, busy.empty() ? too_slow(all, range) : busy);
    return {};
  }
  lab.judge(loss, Excused::kAbove, busy);  // a queue that empties late overflows behind the switch program
  lab.judge(row("isolation", "class 5 passed at its own rate", offered, rate, around(offered), "bit/s"),
            Excused::kBelow, busy);
  return {};
}

// TCP between the hosts, which merges where it may; sockets in the switch see every packet.
Result<void> check_packets(Lab& lab, Range& range) {
  if (const auto ok = lab.begin(range, "packets", {}); !ok) return ok;
  const auto proof = range.fabric().prove();
  if (!proof) return tl::unexpected(proof.error());
  Check made = row("packets", "largest one that passed the switch", static_cast<double>(proof->allowed_bytes),
                   static_cast<double>(proof->largest_bytes), {kHeaderBytes, static_cast<double>(proof->allowed_bytes)},
                   "bytes");
  lab.judge(made);
  lab.judge(row("packets", "super-packets among those that passed", 0, static_cast<double>(proof->oversized_packets),
                {0, 0}, "packets"));
  return {};
}

}  // namespace

std::vector<RangeCheck> line_checks() {
  return {{"rate", false, check_rate},
          {"drain", false, check_drain},
          {"isolation", true, check_isolation},
          {"packets", false, check_packets}};
}

}  // namespace clustar::bench::fabric::selftest
