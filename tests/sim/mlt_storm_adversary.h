// The adversary on every cable of a trial's network: carries out tactics, and lies in the name of peers that lie.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_set>
#include <vector>

#include "tests/sim/mlt_storm_plan.h"
#include "tests/sim/mlt_storm_tactics.h"
#include "transport/sim/faults.h"
#include "transport/sim/simulation.h"
#include "transport/sim/topology.h"

namespace clustar::mlt::test {

// Changes one to three fields of a packet to odd or extreme values, which stay such that the packet parses.
void alter(Packet& packet, Rng& rng);

class Adversary {
 public:
  // Interferes on the way from each host of the star `network` until the plan's heal. All outlive it.
  Adversary(const StormPlan& plan, transport::sim::Simulation& simulation, transport::sim::Network& network);
  Adversary(const Adversary&) = delete;
  Adversary& operator=(const Adversary&) = delete;

  std::string describe() const;
  // Nothing was lost or late because of it.
  bool harmless() const { return dropped_ == 0 && delayed_ == 0; }
  std::uint64_t lies() const { return lies_; }

 private:
  void draw_tactics();
  void decide(transport::sim::SimPacket& packet, TimePoint at, transport::sim::Fate& fate);
  void carry_out(const Verdict& verdict, transport::sim::SimPacket& packet, TimePoint at, transport::sim::Fate& fate);
  void lie(const transport::sim::SimPacket& packet, TimePoint at);
  void inject(const transport::sim::SimPacket& packet, TimePoint at);

  const StormPlan& plan_;
  transport::sim::Simulation& simulation_;
  transport::sim::Network& network_;
  Rng rng_;
  std::vector<Tactic> tactics_;
  std::unordered_set<std::uint64_t> liars_;  // secrets
  std::vector<transport::sim::SimPacket> recorded_;
  Packet header_;
  double lying_ = 0;  // share of the packets that are sent once more, altered
  std::uint64_t dropped_ = 0;
  std::uint64_t delayed_ = 0;
  std::uint64_t lies_ = 0;
};

}  // namespace clustar::mlt::test
