// What the simulator makes use of, and tests look at, beyond what a scheduler says of itself: where work can be left
// out without a difference.
#pragma once

#include <cstdint>
#include <string_view>

namespace clustar::bench::coflow {

enum class Reads : std::uint8_t {
  kNone,
  kSent,  // what coflows and senders have sent
  kAll,   // and what is left of flows, senders and receivers
};

struct Traits {
  // It looks at what is left of flows. The others know only what was sent.
  bool clairvoyant = true;
  // No flow is left with less than it could have while both of its ports have more to give; of those that serve one
  // flow at a time per port only where all ports have the same rate.
  bool work_conserving = true;
  // Flows share ports, so that the end of one changes the rates of many: ends may be gathered.
  bool shares_ports = false;
  bool one_at_a_time = false;  // a port serves one flow
  // What allocate() looks at though no coflow came or went since it last did. The table need not be up to date about
  // the rest until one does.
  Reads reads = Reads::kAll;
};

// `spec`: a policy as clustar::coflow::find_policy takes it.
Traits traits_of(std::string_view spec);

}  // namespace clustar::bench::coflow
