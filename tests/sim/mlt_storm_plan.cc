#include "tests/sim/mlt_storm_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace clustar::mlt::test {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

double scaled(Rng& rng, double from, double to) { return from * std::pow(to / from, rng.uniform()); }

TimePoint StormClock::at(TimePoint now) const {
  TimePoint time = now;
  for (const Halt& halt : halts) {
    if (halt.from <= now && now < halt.until) time = std::min(time, halt.from);  // they may overlap
  }
  const TimePoint real = time;
  for (const Jump& jump : jumps) {
    if (jump.at <= real) time += jump.by;
  }
  return time;
}

namespace {

void draw_network(StormPlan& plan, Rng& rng) {
  plan.rate_bps =
      pick<std::uint64_t>(rng, {100'000'000, 1'000'000'000, 10'000'000'000, 25'000'000'000, 100'000'000'000});
  plan.round_trip = microseconds(static_cast<std::int64_t>(scaled(rng, 20, rng.chance(0.8) ? 2'000 : 100'000)));
  plan.buffer = pick<std::uint64_t>(rng, {60'000, 250'000, 1u << 20, 64u << 20});
  plan.mark_above = pick<std::uint64_t>(rng, {30'000, 100'000, 100'000, ~std::uint64_t{0}});
  plan.one_queue = rng.chance(0.3);
  plan.nic_packets = pick<std::uint32_t>(rng, {1, 4, 4, 64});
  const double length = rng.uniform();
  const double longest = length < 0.7 ? 100 : length < 0.9 ? 500 : length < 0.96 ? 3'000 : 12'000;
  plan.heal = TimePoint(microseconds(static_cast<std::int64_t>(1000 * scaled(rng, 10, longest))));
  plan.hosts.resize(between(rng, 2, 5));
}

// Two hosts and a line that long messages fill until it heals.
void narrow_network(StormPlan& plan, Rng& rng) {
  plan.hosts.resize(2);
  plan.rate_bps = pick<std::uint64_t>(rng, {1'000'000'000, 10'000'000'000});
  plan.round_trip = microseconds(static_cast<std::int64_t>(scaled(rng, 20, 1'000)));
  plan.heal = TimePoint(microseconds(static_cast<std::int64_t>(1000 * scaled(rng, 10, 300))));
}

TimePoint before_heal(const StormPlan& plan, Rng& rng) {
  return TimePoint(Duration(rng.below(static_cast<std::uint64_t>(plan.heal.time_since_epoch().count()))));
}

// Pauses are over at `heal`, whenever they began.
template <class Window>
Window pause(const StormPlan& plan, Rng& rng) {
  const TimePoint from = before_heal(plan, rng);
  const auto length = microseconds(static_cast<std::int64_t>(scaled(rng, 10, 60'000)));
  return {from, std::min(plan.heal, from + length)};
}

void draw_troubles(StormPlan& plan, Rng& rng) {
  const bool freezes = rng.chance(0.2);
  const bool jumps = rng.chance(0.08);
  const bool halts = rng.chance(0.08);
  const bool back_pressure = rng.chance(0.12);
  const bool refuses = rng.chance(0.12);
  for (StormHostPlan& host : plan.hosts) {
    for (std::uint64_t i = freezes ? between(rng, 0, 4) : 0; i > 0; --i) {
      host.freezes.push_back(pause<StormHostPlan::Freeze>(plan, rng));
    }
    for (std::uint64_t i = jumps ? between(rng, 0, 3) : 0; i > 0; --i) {
      const Duration by =
          pick<Duration>(rng, {Duration(1), milliseconds(1), milliseconds(100), seconds(10), std::chrono::hours(1)});
      host.clock.jumps.push_back({before_heal(plan, rng), by});
    }
    for (std::uint64_t i = halts ? between(rng, 0, 4) : 0; i > 0; --i) {
      host.clock.halts.push_back(pause<StormClock::Halt>(plan, rng));
    }
    host.back_pressure = back_pressure && rng.chance(0.7);
    if (refuses && rng.chance(0.7)) host.refuses_staging = pick<double>(rng, {0.1, 0.5, 1});
  }
}

}  // namespace

StormPlan storm_plan(std::uint64_t seed) {
  Rng rng(seed * kGoldenGamma + 0x570);
  StormPlan plan;
  plan.seed = seed;
  draw_network(plan, rng);
  Rng regime(mix64(seed + 0x9a5e));
  plan.unheard = regime.chance(0.09);
  if (plan.unheard) narrow_network(plan, regime);
  plan.turns = regime.chance(0.5);
  draw_troubles(plan, rng);
  draw_options(plan, rng);
  draw_workload(plan, rng);
  return plan;
}

// Somebody who looks for an error needs all of it.
std::string StormPlan::describe() const {
  const auto us = [](auto time) { return std::chrono::duration_cast<microseconds>(time).count(); };
  std::string text = fmt::format(
      "seed {}: {} hosts, {} Mbit/s, round trip {} us, buffer {}, marks above {}{}, NIC {} packets, heals at {} us, "
      "settles at {} us{}{}{}",
      seed, hosts.size(), rate_bps / 1'000'000, us(round_trip), buffer, static_cast<std::int64_t>(mark_above),
      one_queue ? ", one queue" : "", nic_packets, us(heal.time_since_epoch()), us(settle.time_since_epoch()),
      driver_options ? ", driver's options" : "", turns ? ", turns" : "",
      hostile   ? ", hostile"
      : unheard ? ", unheard"
                : "");
  const Options& o = flows[0].sender;
  text += fmt::format(
      "\n  common: {} paths, {} messages, {} staged, {} B unscheduled; the first sender: {} in flight, burst {}, pace "
      "{}, ack every {} or {} us, reorder {}, gap {} us, ask {} us, probe {} .. {} us, rtt {} and {} us, peer {} s, "
      "line {} B/s, slack {}, mouse {}{}",
      o.paths, o.max_messages, o.max_staged, o.unscheduled_bytes, o.max_in_flight, o.burst_bytes, o.pace_bytes,
      o.ack_every, us(o.ack_delay), o.reorder_packets, us(o.gap_floor), us(o.ask_cap), us(o.probe_floor),
      us(o.probe_cap), us(o.initial_rtt), us(o.base_rtt), us(o.peer_timeout) / 1'000'000, o.line_rate, o.credit_slack,
      o.mouse_bytes, o.cut_long ? ", cuts" : "");
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    const StormHostPlan& host = hosts[i];
    if (host.freezes.size() + host.clock.jumps.size() + host.clock.halts.size() > 0 || host.back_pressure ||
        host.refuses_staging > 0) {
      text += fmt::format("\n  host {}: {} freezes, {} jumps, {} halts of the clock{}, refuses staging {}", i,
                          host.freezes.size(), host.clock.jumps.size(), host.clock.halts.size(),
                          host.back_pressure ? ", back-pressure" : "", host.refuses_staging);
    }
  }
  for (std::size_t i = 0; i < flows.size(); ++i) {
    const StormFlow& flow = flows[i];
    std::uint64_t bytes = 0;
    for (const StormMessage& message : flow.messages) bytes += message.bytes;
    text +=
        fmt::format("\n  flow {}: {} to {}, {} messages, {} bytes, segments {} and {}{}", i, flow.from, flow.to,
                    flow.messages.size(), bytes, flow.sender.segment, flow.receiver.segment, flow.lies ? ", lies" : "");
  }
  return text;
}

namespace {

double in_s(Duration duration) { return std::chrono::duration<double>(duration).count(); }

// Bytes that a flow may have under way, as one of `sharers` of its receiver's credit. Who is silent for longer than the
// receiver's probe_floor loses its share of that, and starts over with two segments.
double window_of(const StormPlan& plan, const StormFlow& flow, double sharers) {
  const Options& host = plan.hosts[flow.to].options;
  if (host.probe_floor < plan.round_trip) return 2.0 * flow.sender.segment;
  const double credit = (in_s(host.base_rtt) * static_cast<double>(host.line_rate) + host.credit_slack) / sharers;
  const double records = static_cast<double>(flow.sender.max_in_flight) * flow.sender.segment;
  return std::max<double>(2.0 * flow.sender.segment, std::min({credit, records, 1048576.0}));
}

// A receiver that takes a round trip for silence asks about each window that one answer tells, again and again.
double asking_of(const StormPlan& plan, const StormFlow& flow, const StormRest& rest) {
  constexpr double kState = 170, kMostQuestions = 16;  // bytes, with the wire's own
  constexpr std::uint32_t kPerAnswer = 8;
  const double silence = in_s(std::max(flow.receiver.gap_floor, 2 * flow.receiver.base_rtt));
  const double questions = std::min(kMostQuestions, std::floor(in_s(plan.round_trip) / silence));
  return questions * std::min(rest.windows, kPerAnswer) * kState * 8 / static_cast<double>(plan.rate_bps);
}

// Round trip, the switch queues in front of it, and whatever else makes an answer wait.
double trip_of(const StormPlan& plan, const std::vector<StormRest>& rests) {
  double under_way = 0, delay = 0, asking = 0;
  for (std::size_t i = 0; i < plan.flows.size(); ++i) {
    if (rests[i].messages == 0) continue;
    under_way += window_of(plan, plan.flows[i], 1);
    delay = std::max(delay, in_s(plan.flows[i].receiver.ack_delay));
    asking += asking_of(plan, plan.flows[i], rests[i]);
  }
  const double queue = std::min(under_way, static_cast<double>(plan.buffer)) * 8 / static_cast<double>(plan.rate_bps);
  return in_s(plan.round_trip) + queue + delay + asking;
}

// A clock that jumps looks like a round trip that took so long, and one that stands still like one of no time: a packet
// in each goes on, until what is wrong is no longer believed.
double clocks_spoil(const StormPlan& plan, const std::vector<StormRest>& rests, double trip) {
  constexpr Duration kBelieved = seconds(10);
  Duration longest{0};
  bool any = false;
  for (const StormHostPlan& host : plan.hosts) {
    any = any || host.clock.jumps.size() + host.clock.halts.size() > 0;
    for (const StormClock::Jump& jump : host.clock.jumps) {
      if (jump.by <= kBelieved) longest = std::max(longest, jump.by);
    }
  }
  if (!any) return 0;
  double packets = 0;
  for (const StormRest& rest : rests) packets += static_cast<double>(rest.packets);
  return std::min(in_s(kBelieved), in_s(longest) + 2 * packets * trip);
}

// A host whose credit serves fewer connections than it has lets them take turns, of 64 KiB each, and a liar that
// delivers nothing keeps each of its own for ten probe_floors (Endpoint::end_turn).
double turns_of_liars(const StormPlan& plan, const StormFlow& flow, const StormRest& rest) {
  constexpr double kTurnBytes = 64 * 1024, kTurnFloors = 10;
  const Options& host = plan.hosts[flow.to].options;
  const double credit = in_s(host.base_rtt) * static_cast<double>(host.line_rate) + host.credit_slack;
  double connections = 0, liars = 0;
  for (const StormFlow& other : plan.flows) {
    if (other.to != flow.to) continue;
    ++connections;
    if (other.lies) ++liars;
  }
  if (std::max(1.0, std::floor(credit / (2.0 * host.segment))) >= connections) return 0;
  return (1 + static_cast<double>(rest.bytes) / kTurnBytes) * liars * kTurnFloors * in_s(host.probe_floor);
}

}  // namespace

// Patience: who was not told of a receive probes every eighth time only; and who has seen a long path alone, as while
// its packets were made late, waits for four times its round trip (RttEstimator::cap). Transfer: all bytes, with what
// each packet adds, one after the other over one port, and those of the slowest flow, whose window may be small.
// Rounds: a congestion window of a segment that grows by one in each, as RFC 5681 has it; a window of messages costs
// some more.
Duration healing_bound(const StormPlan& plan, const std::vector<StormRest>& rests) {
  const double trip = trip_of(plan, rests);
  double patience = 0, transfer = 0, slowest = 0, rounds = 0, turns = 0;
  for (std::size_t i = 0; i < plan.flows.size(); ++i) {
    const StormFlow& flow = plan.flows[i];
    const StormRest& rest = rests[i];
    if (rest.messages == 0) continue;
    const auto sharers = static_cast<double>(std::count_if(
        plan.flows.begin(), plan.flows.end(), [&](const StormFlow& other) { return other.to == flow.to; }));
    const double bytes = static_cast<double>(rest.bytes + 170 * (rest.packets + rest.messages));
    const double line = static_cast<double>(std::min(flow.sender.line_rate, flow.receiver.line_rate));
    transfer += bytes * 8 / static_cast<double>(plan.rate_bps);
    slowest = std::max(slowest, bytes / std::min(line / sharers, window_of(plan, flow, sharers) / trip));
    rounds = std::max(rounds, std::sqrt(2.0 * static_cast<double>(rest.packets)) +
                                  4.0 * static_cast<double>(rest.messages) / flow.sender.max_messages);
    turns = std::max(turns, turns_of_liars(plan, flow, rest));
    patience =
        std::max({patience, in_s(flow.sender.probe_cap), in_s(flow.receiver.probe_cap), 4 * in_s(rest.told_trip)});
  }
  const double bound =
      8 * patience + 2 * transfer + 4 * slowest + turns + 2 * (rounds + 10) * trip + clocks_spoil(plan, rests, trip);
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(bound));
}

}  // namespace clustar::mlt::test
