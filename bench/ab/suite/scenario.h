// The troubles in which training is compared: a fabric, what its switches lose, who else sends. Values only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/fabric/spec.h"
#include "transport/base/result.h"

namespace clustar::bench::ab::suite {

// What the switch loses at the ports at a place (see bench/fabric/places.h).
struct PortLoss {
  std::string place;
  fabric::LossRules to_host, from_host;
};

// Hosts that do not train send bursts to the host of rank `target`, all at once, over TCP with the kernel's defaults.
struct Background {
  int senders = 0;  // the hosts behind the ranks'; 0: none
  int target = 0;
  std::uint64_t bytes = 0;  // of each sender's burst
  int every_ms = 0;         // a burst that has not ended by then takes the next one's turn
};

// Ranks sit on the hosts from 0 on, in order unless they are shuffled.
struct Scenario {
  std::string name;
  std::string title;
  std::string question;
  int ranks = 4;
  fabric::FabricSpec fabric;  // its hosts: ranks and senders of the background
  std::vector<PortLoss> losses = {};
  bool loses_everywhere = false;  // the same losses at each rank's port
  bool shuffled = false;          // see hosts_of()
  Background background = {};
  std::vector<std::string> notes = {};
};

// What the command line changes; 0 or empty: the scenario's own.
struct Changes {
  int ranks = 0;
  std::string rate = {};    // as fabric::parse_rate()
  std::string buffer = {};  // as fabric::parse_size()
  int mtu = 0;
};

// The names that there are, in the order in which they run.
std::vector<std::string> scenario_names();
// Those that run when none is named.
std::vector<std::string> default_scenarios();
// The named ones in that order. kInvalidArgument: no such name, listing all; ranks, rate, buffer out of range.
Result<std::vector<Scenario>> choose_scenarios(const std::vector<std::string>& names, const Changes& changes);

// Called `name`, marking and with everything filled in, but without losses: they begin with each run. Errors: as
// fabric::checked().
Result<fabric::FabricSpec> fabric_of(const Scenario& scenario, const std::string& name);
// The same with the losses in its rules, for looking at and for checks.
Result<fabric::FabricSpec> lossy_fabric_of(const Scenario& scenario, const std::string& name, std::uint64_t seed);
// What puts `loss` among the rules of a port.
void set_loss(const PortLoss& loss, std::uint64_t seed, fabric::PortRules& rules);
// The host of each rank: in order, or, of a shuffled scenario, in the random order that `seed` gives, of which ranks
// know nothing.
std::vector<int> hosts_of(const Scenario& scenario, std::uint64_t seed);
// "h1: loss 1%, ...", one per place.
std::vector<std::string> describe_losses(const Scenario& scenario);

}  // namespace clustar::bench::ab::suite
