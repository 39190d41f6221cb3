#include "bench/sim/collectives.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "transport/base/rng.h"

namespace clustar::bench::sim {

AllReduces::AllReduces(Testbed& bed, const AllReduce& what)
    : bed_(bed), what_(what), lanes_(std::size_t{what.ranks} * what.ranks), summed_(what.ranks) {
  for (std::uint32_t from = 0; from < what.ranks; ++from) {
    for (std::uint32_t to = 0; to < what.ranks; ++to) {
      if (from == to || (what.ring && to != (from + 1) % what.ranks)) continue;
      lanes_[from * what.ranks + to] = bed.connect(from, to);
      senders_.push_back(from);
      receivers_.push_back(to);
    }
  }
  bed.on_done([this](const Done& done) { on_done(done); });
}

mlt::SendTerms AllReduces::terms(std::uint32_t step) const {
  mlt::SendTerms terms;
  const bool sums = what_.ring ? step < what_.ranks - 1 : step == 0;
  if (what_.tolerance_ppm == 0 || !sums) return terms;
  terms.tolerant = true;
  terms.communicator = 1;
  terms.collective = number_;
  terms.stage = static_cast<std::uint16_t>(what_.ring ? step : 0);
  terms.ranks = terms.edges = static_cast<std::uint16_t>(what_.ranks);
  terms.collective_bytes = std::uint64_t{what_.ranks} * what_.message_bytes;
  terms.tolerance_ppm = what_.tolerance_ppm;
  return terms;
}

void AllReduces::send(std::uint32_t from, std::uint32_t to, std::uint32_t step) {
  bed_.send(lane(from, to), what_.message_bytes, terms(step), static_cast<std::int32_t>(step));
}

std::optional<Duration> AllReduces::run(Duration limit) {
  ++number_;
  std::fill(summed_.begin(), summed_.end(), 0);
  const TimePoint begin = bed_.now();
  for (std::uint32_t number = 0; number < senders_.size(); ++number) {
    for (std::uint32_t step = 0; step <= last_step(); ++step) {
      bed_.post(number, what_.message_bytes, static_cast<std::int32_t>(step));
    }
  }
  for (std::uint32_t number = 0; number < senders_.size(); ++number) send(senders_[number], receivers_[number], 0);
  if (!bed_.finish(limit)) return std::nullopt;
  return bed_.now() - begin;
}

void AllReduces::on_done(const Done& done) {
  sums_.bytes += done.bytes;
  sums_.missing_bytes += done.missing;
  const std::uint32_t here = receivers_[done.lane];
  const auto step = static_cast<std::uint32_t>(done.tag);
  if (step == last_step()) return;
  if (what_.ring) return send(here, (here + 1) % what_.ranks, step + 1);
  if (++summed_[here] < what_.ranks - 1) return;
  for (std::uint32_t to = 0; to < what_.ranks; ++to) {
    if (to != here) send(here, to, 1);
  }
}

AllReduces::Sums AllReduces::sums() {
  Sums sums = sums_;
  for (std::uint32_t number = 0; number < senders_.size(); ++number) {
    const auto& counters = bed_.sender(number).counters();
    sums.packets += static_cast<double>(counters.packets);
    sums.parity += static_cast<double>(counters.parity);
    sums.rebuilt += static_cast<double>(bed_.receiver(number).counters().rebuilt);
    sums.resent += static_cast<double>(counters.retransmitted);
  }
  for (std::uint32_t rank = 0; rank < what_.ranks; ++rank) {
    sums.control += static_cast<double>(bed_.network().up(rank).counters().packets);
  }
  sums.control -= sums.packets;
  return sums;
}

namespace {

// How much later than without loss the last needed packet of a message comes: rounds of losses, each a round trip.
double late_ms(std::uint32_t packets, double loss, double may_miss, double trip_ms, double packet_ms, Rng& rng) {
  const double spare = std::floor(may_miss * packets);
  std::vector<double> at;  // of losses, by when they are known
  double end = packets * packet_ms;
  for (std::uint32_t i = 0; i < packets; ++i) {
    if (rng.chance(loss)) at.push_back((i + 1) * packet_ms + trip_ms);
  }

  std::make_heap(at.begin(), at.end(), std::greater<>());
  double free = end;  // when the line has nothing fresh to send
  while (static_cast<double>(at.size()) > spare) {
    std::pop_heap(at.begin(), at.end(), std::greater<>());
    free = std::max(free, at.back()) + packet_ms;
    at.pop_back();
    if (rng.chance(loss)) {
      at.push_back(free + trip_ms);
      std::push_heap(at.begin(), at.end(), std::greater<>());
    } else {
      end = std::max(end, free);
    }
  }
  return end - packets * packet_ms;
}

}  // namespace

double ideal_all_reduce_ms(const AllReduce& what, Duration round_trip, std::uint64_t bps, double loss,
                           std::uint64_t seed) {
  constexpr std::uint32_t kRuns = 200;
  const mlt::Options options = driver_options(bps);
  const std::uint32_t packets = mlt::packet_count(what.message_bytes, options.segment);
  const double message_ms = wire_bytes(what.message_bytes, options) * 8e3 / static_cast<double>(bps);
  const double packet_ms = message_ms / packets;
  const double trip_ms = microseconds(round_trip) / 1e3;
  const std::uint32_t n = what.ranks;
  Rng rng(seed);
  double sum = 0;
  const auto may_miss = [&](std::uint32_t step) {
    return what.ring   ? (step < n - 1 ? what.tolerance_ppm / 1e6 * 2 / (n - 1) : 0)
           : step == 0 ? what.tolerance_ppm / 1e6
                       : 0;
  };
  for (std::uint32_t run = 0; run < kRuns; ++run) {
    std::vector<double> at(n, 0.0);
    const std::uint32_t steps = what.ring ? 2 * (n - 1) : 2;
    for (std::uint32_t step = 0; step < steps; ++step) {
      std::vector<double> next(n, 0.0);
      const double parts = what.ring ? 1 : n - 1;
      const double last = *std::max_element(at.begin(), at.end());
      for (std::uint32_t rank = 0; rank < n; ++rank) {
        const double begin = what.ring ? at[(rank + n - 1) % n] : last;
        // Packets of all who send here share its line.
        const auto all = static_cast<std::uint32_t>(parts * packets);
        next[rank] = std::max(at[rank], begin + parts * message_ms + trip_ms / 2 +
                                            late_ms(all, loss, may_miss(step), trip_ms, packet_ms, rng));
      }
      at = next;
    }
    sum += *std::max_element(at.begin(), at.end());
  }
  return sum / kRuns;
}

}  // namespace clustar::bench::sim
