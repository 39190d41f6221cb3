#include "tests/sim/mlt_storm_tactics.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <unordered_map>
#include <utility>

namespace clustar::mlt::test {
namespace {

using Decide = std::function<void(const Sighting&, Verdict&)>;

constexpr const char* kTypes[] = {"data", "acks", "posted", "states", "probes"};

Duration trips(const StormPlan& plan, double count) {
  return Duration(1 + static_cast<std::int64_t>(count * static_cast<double>(plan.round_trip.count())));
}

// Packets of one type: all, most or some, always or in a rhythm.
Tactic lose_type(const StormPlan& plan, Rng& rng) {
  const std::size_t type = pick<std::size_t>(rng, {0, 1, 1, 1, 2, 3, 3, 4});
  const double probability = type == 0 ? scaled(rng, 0.01, 1) : pick<double>(rng, {1, 1, 0.9, 0.5});
  const Duration period = trips(plan, scaled(rng, 2, 100));
  const Duration part = rng.chance(0.5) ? period : period / static_cast<std::int64_t>(between(rng, 2, 5));
  return {fmt::format("{} of {} lost for {} of {} ns", probability, kTypes[type], part.count(), period.count()),
          [=, own = Rng(rng.next())](const Sighting& seen, Verdict& verdict) mutable {
            if (seen.header.index() != type || seen.at.time_since_epoch() % period >= part) return;
            verdict.drop |= own.chance(probability);
          }};
}

// Where a packet is in its message, in the order of sending.
std::uint32_t order_of(const DataHeader& data) {
  const std::uint32_t packets = packet_count(data.message_bytes, data.segment);
  const std::uint32_t first =
      data.passed > 0 || (data.open && data.open->tolerant) ? first_index(data.secret, data.message, packets) : 0;
  return data.index >= first ? data.index - first : data.index + packets - first;
}

// Counts how often it has seen each of what it is asked for.
class Copies {
 public:
  std::uint32_t count(std::uint64_t secret, std::uint32_t message, std::uint32_t which) {
    return ++seen_[mix64(secret ^ mix64(std::uint64_t{message} << 32 | which))];
  }

 private:
  std::unordered_map<std::uint64_t, std::uint32_t> seen_;
};

// Nullopt: of no interest; otherwise what copies of it have in common.
using Select = std::function<std::optional<std::uint32_t>(const DataHeader&)>;

std::pair<std::string, Select> draw_select(Rng& rng) {
  const auto n = static_cast<std::uint32_t>(between(rng, 1, 12));
  const auto modulus = static_cast<std::uint32_t>(between(rng, 2, 60));
  using Which = std::optional<std::uint32_t>;
  switch (rng.below(6)) {
    case 0: return {"the record", [](const DataHeader& data) { return data.open ? Which(0) : std::nullopt; }};
    case 1:
      return {fmt::format("the last {} packets", n), [n](const DataHeader& data) {
                const std::uint32_t packets = packet_count(data.message_bytes, data.segment);
                return order_of(data) + n >= packets ? Which(data.index) : std::nullopt;
              }};
    case 2:
      return {fmt::format("the first {} packets", n),
              [n](const DataHeader& data) { return order_of(data) < n ? Which(data.index) : std::nullopt; }};
    case 3:
      return {"each retransmission",
              [](const DataHeader& data) { return data.retransmission ? Which(data.index) : std::nullopt; }};
    case 4:
      return {fmt::format("packets {} modulo {}", n % modulus, modulus), [n, modulus](const DataHeader& data) {
                return data.index % modulus == n % modulus ? Which(data.index) : std::nullopt;
              }};
    default:
      return {"the ends of windows", [](const DataHeader& data) {
                const std::uint32_t at = data.index % State::kWindow;
                return at == 0 || at == State::kWindow - 1 ? Which(data.index) : std::nullopt;
              }};
  }
}

// The first k copies of chosen data packets. What was never lost of itself gives retransmissions nothing to carry, so
// some is lost at random beside.
Tactic lose_first_copies(const StormPlan&, Rng& rng) {
  const auto k = static_cast<std::uint32_t>(scaled(rng, 1, 60));
  const double beside = pick<double>(rng, {0, 0.01, 0.1});
  const std::pair<std::string, Select> chosen = draw_select(rng);
  return {fmt::format("the first {} of {} lost, and {} of data", k, chosen.first, beside),
          [=, select = chosen.second, seen = Copies(), own = Rng(rng.next())](const Sighting& sighting,
                                                                              Verdict& verdict) mutable {
            const DataHeader* data = sighting.data();
            if (data == nullptr) return;
            verdict.drop |= own.chance(beside);
            const auto which = select(*data);
            if (which) verdict.drop |= seen.count(data->secret, data->message, *which) <= k;
          }};
}

Tactic lose_stops(const StormPlan&, Rng& rng) {
  const auto k = static_cast<std::uint32_t>(scaled(rng, 1, 40));
  const double beside = pick<double>(rng, {0.01, 0.1});
  return {fmt::format("{} of each STOP lost, and {} of data", k, beside),
          [=, seen = Copies(), own = Rng(rng.next())](const Sighting& sighting, Verdict& verdict) mutable {
            if (sighting.data() != nullptr) verdict.drop |= own.chance(beside);
            const auto* state = std::get_if<State>(&sighting.header);
            if (state == nullptr || !state->stop) return;
            verdict.drop |= seen.count(state->secret, state->message, state->base) <= k;
          }};
}

Tactic blackout(const StormPlan& plan, Rng& rng) {
  const std::uint64_t way = rng.below(4);  // forward, back, both, or one host's
  const auto host = static_cast<transport::sim::HostId>(rng.below(plan.hosts.size()));
  static constexpr const char* kNames[] = {"forward", "back", "both ways", "of one host"};
  return {fmt::format("blackout {}", kNames[way]), [=](const Sighting& seen, Verdict& verdict) {
            const bool hit = way == 2 ||
                             (way == 3 && (seen.packet.source == host || seen.packet.destination == host)) ||
                             (way < 2 && seen.forward() == (way == 0));
            verdict.drop |= hit;
          }};
}

// Of all that pass, or of one direction.
Tactic lose_in_rhythm(const StormPlan& plan, Rng& rng) {
  const bool by_time = rng.chance(0.5);
  const std::uint64_t which = rng.below(3);  // both ways, forward, back
  const Duration period = trips(plan, scaled(rng, 0.1, 30));
  const double part = pick<double>(rng, {0.1, 0.5, 0.9});
  const std::uint64_t every = between(rng, 2, 40);
  const std::uint64_t run = between(rng, 1, every - 1);
  return {by_time ? fmt::format("{} of each {} ns lost, {}", part, period.count(), which)
                  : fmt::format("{} of each {} packets lost, {}", run, every, which),
          [=, count = std::uint64_t{0}](const Sighting& seen, Verdict& verdict) mutable {
            if (which != 0 && seen.forward() != (which == 1)) return;
            const auto phase = static_cast<double>((seen.at.time_since_epoch() % period).count());
            verdict.drop |= by_time ? phase < part * static_cast<double>(period.count()) : count++ % every < run;
          }};
}

Tactic lose_at_random(const StormPlan&, Rng& rng) {
  const double data = pick<double>(rng, {0.001, 0.01, 0.05, 0.2, 0.5});
  const double control = pick<double>(rng, {0, 0.01, 0.1, 0.5});
  return {fmt::format("{} of data and {} of the rest lost", data, control),
          [=, own = Rng(rng.next())](const Sighting& seen, Verdict& verdict) mutable {
            verdict.drop |= own.chance(seen.data() != nullptr ? data : control);
          }};
}

// Everything changes from time to time.
Tactic moods(const StormPlan& plan, Rng& rng) {
  struct Mood {
    double forward = 0, back = 0, delayed = 0;
    Duration delay{0};
    TimePoint until{};
  };
  return {"moods", [trip = plan.round_trip, mood = Mood(), own = Rng(rng.next())](const Sighting& seen,
                                                                                  Verdict& verdict) mutable {
            if (seen.at >= mood.until) {
              mood.forward = pick<double>(own, {0, 0, 0.01, 0.3, 1});
              mood.back = pick<double>(own, {0, 0, 0.01, 0.3, 1});
              mood.delayed = pick<double>(own, {0, 0, 0.3});
              mood.delay = trip * static_cast<std::int64_t>(between(own, 1, 50));
              mood.until = seen.at + trip * static_cast<std::int64_t>(between(own, 1, 200));
            }
            verdict.drop |= own.chance(seen.forward() ? mood.forward : mood.back);
            if (own.chance(mood.delayed)) {
              verdict.delay += Duration(own.below(static_cast<std::uint64_t>(mood.delay.count())));
            }
          }};
}

// All that would arrive within a part of each period arrives together at its end.
Tactic delay_in_spikes(const StormPlan& plan, Rng& rng) {
  const Duration period = trips(plan, scaled(rng, 5, 500));
  const Duration part = period * static_cast<std::int64_t>(between(rng, 1, 9)) / 10;
  return {fmt::format("held for {} of each {} ns", part.count(), period.count()),
          [=](const Sighting& seen, Verdict& verdict) {
            const Duration phase = seen.at.time_since_epoch() % period;
            if (phase < part) verdict.delay += part - phase;
          }};
}

// Each path and class has a delay of its own, for a while or for good.
Tactic delay_lanes(const StormPlan& plan, Rng& rng) {
  const Duration most = trips(plan, scaled(rng, 1, 100));
  const double share = pick<double>(rng, {0.1, 0.3, 1});
  const bool flaps = rng.chance(0.4);
  const std::uint64_t salt = rng.next();
  const Duration period = trips(plan, scaled(rng, 5, 50));
  return {fmt::format("{} of the lanes late by up to {} ns{}", share, most.count(), flaps ? ", in turns" : ""),
          [=](const Sighting& seen, Verdict& verdict) {
            const auto turn = static_cast<std::uint64_t>(flaps ? seen.at.time_since_epoch() / period : 0);
            const DataHeader* data = seen.data();
            const std::uint64_t lane =
                data == nullptr ? 0x700 | seen.packet.path : std::uint64_t{data->traffic_class} << 8 | data->path;
            Rng own(salt ^ mix64(turn << 16 | lane));
            if (!own.chance(share)) return;
            verdict.delay += Duration(own.below(static_cast<std::uint64_t>(most.count())));
          }};
}

Tactic reorder(const StormPlan& plan, Rng& rng) {
  const Duration most = trips(plan, scaled(rng, 0.1, 100));
  const double share = pick<double>(rng, {0.01, 0.3, 1});
  return {fmt::format("{} reordered by up to {} ns", share, most.count()),
          [=, own = Rng(rng.next())](const Sighting&, Verdict& verdict) mutable {
            if (!own.chance(share)) return;
            verdict.delay += Duration(own.below(static_cast<std::uint64_t>(most.count())));
          }};
}

Tactic duplicate(const StormPlan& plan, Rng& rng) {
  const auto copies = static_cast<std::uint32_t>(scaled(rng, 1, 20));
  const double share = rng.chance(0.5) ? 0.3 : 0.02;
  const Duration gap = trips(plan, scaled(rng, 0.001, 100));
  return {fmt::format("{} arrive {} times more, {} ns apart", share, copies, gap.count()),
          [=, own = Rng(rng.next())](const Sighting&, Verdict& verdict) mutable {
            if (!own.chance(share)) return;
            verdict.copies = copies;
            verdict.gap = gap;
          }};
}

Tactic replay(const StormPlan&, Rng& rng) {
  const double record = scaled(rng, 0.01, 0.5);
  const double again = scaled(rng, 0.01, 0.5);
  return {fmt::format("{} recorded, {} replayed", record, again),
          [=, own = Rng(rng.next())](const Sighting&, Verdict& verdict) mutable {
            verdict.record |= own.chance(record);
            verdict.replay |= own.chance(again);
          }};
}

// Paths, or a class of data.
Tactic kill_lanes(const StormPlan& plan, Rng& rng) {
  const bool a_class = rng.chance(0.4);
  const auto dead_class = static_cast<std::uint8_t>(rng.below(8));
  std::uint32_t dead_paths = static_cast<std::uint32_t>(rng.next() | rng.next());
  if (rng.chance(0.8)) dead_paths &= ~(1u << rng.below(plan.hosts[0].options.paths));
  const bool data_only = rng.chance(0.5);
  return {a_class ? fmt::format("class {} is dead", dead_class)
                  : fmt::format("paths {:x} are dead{}", dead_paths, data_only ? " to data" : ""),
          [=](const Sighting& seen, Verdict& verdict) {
            const DataHeader* data = seen.data();
            if (a_class) {
              verdict.drop |= (data == nullptr ? 7 : data->traffic_class) == dead_class;
            } else {
              verdict.drop |= (data != nullptr || !data_only) && (dead_paths >> (seen.packet.path % 32) & 1) != 0;
            }
          }};
}

Tactic mark_all(const StormPlan&, Rng& rng) {
  const double share = pick<double>(rng, {1, 1, 0.5});
  return {fmt::format("{} are marked", share),
          [=, own = Rng(rng.next())](const Sighting&, Verdict& verdict) mutable { verdict.mark |= own.chance(share); }};
}

Tactic shrink_buffers(const StormPlan&, Rng& rng) {
  const std::uint64_t room = between(rng, 3'000, 12'000);
  return {fmt::format("buffers of {} B", room),
          [=](const Sighting& seen, Verdict& verdict) { verdict.drop |= seen.queued > room; }};
}

}  // namespace

Tactic draw_tactic(const StormPlan& plan, Rng& rng) {
  using Make = Tactic (*)(const StormPlan&, Rng&);
  constexpr Make kMakes[] = {lose_type,         lose_type,         lose_type,     lose_first_copies,
                             lose_first_copies, lose_first_copies, lose_stops,    blackout,
                             lose_in_rhythm,    lose_at_random,    moods,         delay_in_spikes,
                             delay_lanes,       reorder,           duplicate,     replay,
                             kill_lanes,        mark_all,          shrink_buffers};
  Tactic tactic = kMakes[rng.below(std::size(kMakes))](plan, rng);
  const auto heal = static_cast<std::uint64_t>(plan.heal.time_since_epoch().count());
  tactic.from = rng.chance(0.5) ? TimePoint() : TimePoint(Duration(rng.below(heal)));
  tactic.until = rng.chance(0.6) ? plan.heal : std::min(plan.heal, tactic.from + Duration(rng.below(heal)));
  return tactic;
}

// What arrives is not heard of, while what does not is hidden behind it: nobody may wait for acknowledgements.
Tactic lose_answers_in_phases(const StormPlan& plan, Rng& rng) {
  struct Phase {
    double data = 0, rest = 0;
    TimePoint until{};
  };
  const bool probes = rng.chance(0.7);
  return {"answers lost in phases",
          [=, trip = plan.round_trip, phase = Phase(), own = Rng(rng.next())](const Sighting& seen,
                                                                              Verdict& verdict) mutable {
            if (seen.at >= phase.until) {
              phase.data = pick<double>(own, {0, 0, 0.02, 0.3, 0.6});
              phase.rest = pick<double>(own, {0.1, 0.5, 0.9, 1});
              phase.until = seen.at + trip * static_cast<std::int64_t>(between(own, 1, 100));
            }
            if (!probes && std::holds_alternative<Probe>(seen.header)) return;
            verdict.drop |= own.chance(seen.data() != nullptr ? phase.data : phase.rest);
          },
          TimePoint(), plan.heal};
}

Tactic long_blackout(const StormPlan& plan, Rng& rng) {
  Tactic tactic = blackout(plan, rng);
  tactic.from = TimePoint(Duration(rng.below(static_cast<std::uint64_t>(plan.heal.time_since_epoch().count() / 4))));
  tactic.until = plan.heal;
  return tactic;
}

}  // namespace clustar::mlt::test
