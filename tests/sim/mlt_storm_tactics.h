// What an adversary on the network may do to the packets of this protocol, whose headers it reads: each a rule with
// parameters of its own, drawn at random.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "mlt/core/wire.h"
#include "tests/sim/mlt_storm_plan.h"
#include "transport/sim/packet.h"

namespace clustar::mlt::test {

// One packet as it passes.
struct Sighting {
  const transport::sim::SimPacket& packet;
  const Packet& header;
  TimePoint at;
  std::uint64_t queued;  // bytes that wait for the link to its destination

  const DataHeader* data() const { return std::get_if<DataHeader>(&header); }
  bool forward() const { return data() != nullptr || std::holds_alternative<Probe>(header); }
  std::uint64_t secret() const {
    return std::visit([](const auto& packet_header) { return packet_header.secret; }, header);
  }
};

struct Verdict {
  bool drop = false;
  bool mark = false;
  Duration delay{0};
  std::uint32_t copies = 0;
  Duration gap{0};      // between copies
  bool record = false;  // for replays
  bool replay = false;  // something recorded arrives again, too
};

struct Tactic {
  std::string name;  // with its parameters
  std::function<void(const Sighting&, Verdict&)> decide;
  TimePoint from{};
  TimePoint until{};
};

Tactic draw_tactic(const StormPlan& plan, Rng& rng);
// Until the network heals most of what is not data is lost, and of data from time to time some.
Tactic lose_answers_in_phases(const StormPlan& plan, Rng& rng);
// Nothing passes until the network heals.
Tactic long_blackout(const StormPlan& plan, Rng& rng);

}  // namespace clustar::mlt::test
