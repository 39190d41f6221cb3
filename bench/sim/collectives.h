// All-reduces over a testbed, as training has them: each step of each rank waits for the one before.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "bench/sim/testbed.h"

namespace clustar::bench::sim {

struct AllReduce {
  std::uint32_t ranks = 2;
  std::uint32_t message_bytes = 0;  // of each message: a ranks-th of what is reduced
  bool ring = true;                 // otherwise every rank sends each other its part, and later the sum of its own
  std::uint32_t tolerance_ppm = 0;  // of the messages that are summed up; the others are reliable
};

// One after the other, on the same connections.
class AllReduces {
 public:
  // `bed` has a host for each rank, and nobody else hears of its messages.
  AllReduces(Testbed& bed, const AllReduce& what);

  // From the first send to the last receive; nullopt: not over within `limit`.
  std::optional<Duration> run(Duration limit);

  struct Sums {
    double packets = 0, resent = 0;  // of data
    double parity = 0;               // of packets
    double rebuilt = 0;              // packets
    double control = 0;              // likewise
    double bytes = 0, missing_bytes = 0;
  };
  Sums sums();

 private:
  std::uint32_t lane(std::uint32_t from, std::uint32_t to) const { return lanes_[from * what_.ranks + to]; }
  std::uint32_t last_step() const { return what_.ring ? 2 * (what_.ranks - 1) - 1 : 1; }
  mlt::SendTerms terms(std::uint32_t step) const;
  void send(std::uint32_t from, std::uint32_t to, std::uint32_t step);
  void on_done(const Done& done);

  Testbed& bed_;
  AllReduce what_;
  std::vector<std::uint32_t> lanes_;                // by sender and receiver
  std::vector<std::uint32_t> senders_, receivers_;  // by lane
  std::vector<std::uint32_t> summed_;               // all-to-all, by rank: parts that came
  std::uint32_t number_ = 0;
  Sums sums_;
};

// What a sender would take that fills the line, learns of each loss a round trip later and sends nothing twice for
// nothing: the mean of many, in ms. Random loss only.
double ideal_all_reduce_ms(const AllReduce& what, Duration round_trip, std::uint64_t bps, double loss,
                           std::uint64_t seed);

}  // namespace clustar::bench::sim
