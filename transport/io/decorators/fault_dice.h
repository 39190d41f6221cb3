// What becomes of each packet under a FaultSpec: the random part of FaultyIo, alone. Every fault draws from a stream of
// its own and draws for every packet in scope, whatever the others do, so that turning one on leaves the others'
// decisions as they were.
#pragma once

#include <cstdint>

#include "transport/base/rng.h"
#include "transport/io/decorators/fault_spec.h"

namespace clustar::transport::io {

struct Fate {
  bool lost = false;        // by `loss`
  bool burst_lost = false;  // by `burst`, and not lost already
  bool duplicated = false;
  bool held_back = false;
  bool corrupted = false;
  std::uint64_t corrupt_draw = 0;  // which bit: a fraction of 2^64
  bool delayed = false;
  Duration delay{0};  // jitter included

  bool dropped() const { return lost || burst_lost; }
  // Leaves as it came, at once and once.
  bool untouched() const { return !(dropped() || duplicated || held_back || corrupted || delayed); }
  bool operator==(const Fate&) const = default;
};

class FaultDice {
 public:
  // `stream` tells several dice of one spec apart.
  FaultDice(const FaultSpec& spec, std::uint64_t stream);

  // Of the next packet; one outside of the spec's scope draws nothing.
  Fate roll(std::uint8_t path, std::uint8_t traffic_class);

 private:
  FaultSpec spec_;
  Rng loss_;
  Rng burst_;
  Rng reorder_;
  Rng duplicate_;
  Rng corrupt_;
  Rng jitter_;
  bool bad_ = false;
};

}  // namespace clustar::transport::io
