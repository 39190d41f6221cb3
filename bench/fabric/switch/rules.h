// What a switch port is asked to do to packets, as values. Touches no kernel.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "transport/base/result.h"

namespace clustar::bench::fabric {

inline constexpr int kClasses = 8;
inline constexpr std::uint64_t kNeverDrop = std::numeric_limits<std::uint64_t>::max();
inline constexpr std::uint64_t kMinBurstPeriodNs = 1'000'000;
inline constexpr std::uint64_t kMaxBurstPeriodNs = 3'600'000'000'000;

// Of one of the eight classes (DSCP >> 3; 7 goes first) of packets that leave by the port. Depths are bytes of frames
// without FCS.
struct ClassRules {
  // RED on the class's depth of the moment, the packet included: never up to min, with `probability` at max, always
  // above. min = max is a step. Only ECN-capable packets are marked, none is dropped for it. probability 0: no marking.
  std::uint64_t mark_min_bytes = 0, mark_max_bytes = 0;
  double mark_probability = 0;  // 0 to 1
  // The class's packets are dropped while more than this waits at the port, of all classes together (MLT, DLCP).
  std::uint64_t drop_above_bytes = kNeverDrop;
  // What the buffer cannot hold is cut to its headers instead (IPv4 UDP only) and goes on in class 7.
  bool trim = false;

  bool operator==(const ClassRules&) const = default;
};

// Two states with a loss each; which one holds is drawn before every packet (Gilbert 1960, Elliott 1963).
struct GilbertElliott {
  bool on = false;
  double to_bad = 0, to_good = 0;  // chance per packet to leave the good, the bad state
  double loss_good = 0, loss_bad = 1;
  double mean_loss() const;

  bool operator==(const GilbertElliott&) const = default;
};

// Every `every_ns` a burst of `length_ns`, in which packets are lost with `loss`. The first period begins with the
// first packet after the rules were set. every_ns 0: none.
struct Bursts {
  std::uint64_t every_ns = 0, length_ns = 0;
  double loss = 0;
  // Length and loss of each burst are drawn separately, evenly from the above up to these; 0: they are the above.
  std::uint64_t longest_ns = 0;
  double highest_loss = 0;
  // Each begins up to so much later than its period, drawn too. With the longest burst it fits in the period.
  std::uint64_t jitter_ns = 0;

  bool operator==(const Bursts&) const = default;
};

// Of one direction of a port; a packet that any of them takes is lost, before it meets the queue.
struct LossRules {
  double random = 0;  // 0 to 1, each packet by itself
  GilbertElliott gilbert_elliott;
  Bursts bursts;
  bool dead = false;  // everything is lost

  bool operator==(const LossRules&) const = default;
};

// `to_host` speaks of packets that leave by the port, `from_host` of those that come in there; towards another switch,
// too.
struct PortRules {
  std::array<ClassRules, kClasses> classes;
  LossRules to_host, from_host;
  std::uint64_t seed = 1;  // of losses and marks; ports with the same seed differ from each other

  bool operator==(const PortRules&) const = default;
};

// The rules of all switches' ports: those of `ports` by name (see places.h), and `all` for the others.
struct SwitchRules {
  PortRules all;
  std::map<std::string, PortRules> ports;

  const PortRules& of(const std::string& port) const;
  bool operator==(const SwitchRules&) const = default;
};

// The line that the rules are for.
struct PortLine {
  std::uint64_t rate_bps = 0;  // 0: not shaped, no queue
  std::uint64_t buffer_bytes = 0;
};

// The same with probabilities as the switch keeps them (multiples of 2^-32); kInvalidArgument naming what is allowed.
Result<PortRules> checked(PortRules rules, const PortLine& line);

// "" for no rules; otherwise "loss 1%, dead inwards, class 1 dropped above 20000 B".
std::string describe(const PortRules& rules);

nlohmann::json to_json(const PortRules& rules);
// kInvalidArgument for what is no such object; unknown keys are left alone, missing ones are no rule.
Result<PortRules> rules_from_json(const nlohmann::json& json);

}  // namespace clustar::bench::fabric
