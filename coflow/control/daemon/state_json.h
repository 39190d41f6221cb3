// What the coordinator and its daemon know, as JSON for the page and for programs.
#pragma once

#include <cstdint>
#include <string>

#include "coflow/control/core/coordinator.h"
#include "coflow/control/daemon/connections.h"
#include "transport/base/time.h"

namespace clustar::coflow::control {

// What a round took: from the moment that it was due, or that the loop came to it, until all was written.
struct RoundTimes {
  Duration latest{0}, latest_cpu{0};
  Duration longest{0}, longest_cpu{0};  // since the start
  Duration late{0};                     // how long after it was due it began, the latest
};

struct DaemonView {
  Duration uptime{0};
  Duration cpu{0};  // of the process
  bool stopping = false;
  std::string standby_of{};    // empty: it is a primary
  bool hears_primary = false;  // a standby
  Duration interval{0}, lease{0};
  std::string policy{};
  std::size_t connections = 0, strangers = 0;
  Connections::Counters doors{};
  std::uint64_t accept_failures = 0;
  RoundTimes rounds{};
};

// Of each list; how many there are in all is beside it.
inline constexpr std::size_t kMostShown = 1000;

std::string state_json(const Coordinator& coordinator, const DaemonView& view, TimePoint now);

}  // namespace clustar::coflow::control
