// Which deadlines can be promised together. Pure.
//
// As Varys admits coflows (Chowdhury et al., SIGCOMM 2014, section 5.3), for what comes again and again: a class that
// needs the port for `seconds` within each `within` has that part of it. Whose parts sum to less than the port, the
// earliest deadline first meets all of them at one port (Liu and Layland, JACM 1973, by density); where coflows wait
// for each other at several ports it is a good guess, and no proof.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "coflow/core/bssi_order.h"

namespace clustar::coflow::control {

struct DeadlineClaim {
  bool promised = false;                // before: it keeps its promise as long as there is room for it
  std::uint64_t came = 0;               // among equals who came first goes first
  double within = 0;                    // seconds: the deadline, or the period if that is shorter; > 0
  std::vector<BssiItem::Load> loads{};  // seconds of each port, of an iteration or coflow
};

// Of a port no more is promised: headers, pacing, and what is more urgent need the rest.
inline constexpr double kMostPromised = 0.85;

// By claim, whether it can be kept beside those that go before it.
std::vector<bool> promise(std::span<const DeadlineClaim> claims, std::size_t ports);

}  // namespace clustar::coflow::control
