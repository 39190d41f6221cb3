// Settings that concern every transport.
#pragma once

#include <string>
#include <vector>

#include "transport/base/setting.h"
#include "transport/base/time.h"

namespace clustar {

struct TransportSettings {
  std::string transport = "auto";    // the best that works here, or a name: then what does not work is an error
  std::vector<std::string> require;  // one of these must be in use, otherwise communicators fail to form; empty: any
  Duration stall_timeout{0};  // a silent live peer fails the connection after it; 0: it is only named in a warning

  static const TypedTable<TransportSettings>& table();
};

struct SendOrderSettings {
  // fifo: by arrival | class: by the communicators' trafficClass, the larger first, strictly | coflow: coflow/enforce
  std::string order = "fifo";
  // Under an order other than fifo: what the line carries in so many microseconds, and 16 KiB, may be handed to the
  // kernel or the NIC, where nothing overtakes it any more; 0 = no bound.
  int ahead_us = 20;
  int job = 0;  // number of this process's training job, for orders that tell jobs apart
  // Of `coflow`:
  int weight = 1;              // of the job, among those that share the NIC
  int pace = 93;               // percent of the line that bulk fills where mice or other processes are there, too
  std::string push = "off";    // iterations press harder on shared links the more of them was sent; off: all alike
  std::string by_size = "on";  // among bulk of one urgency the smaller coflow goes first; off: by arrival
  // Of `coflow`, on TCP: LevelClasses, the DSCP by what goes first; empty: the communicator's class.
  std::string dscp{};
  // HOST:PORT of the coordinator and of those that stand by (coflow/control); empty: this host orders alone.
  std::vector<std::string> coordinators{};
  std::string coordinator_key_file{};  // shared with it; empty: none
  std::string tenant{};                // whose weight the coordinator knows
  int deadline_ms = 0;                 // of each iteration or coflow, which the coordinator may promise; 0: none

  static const TypedTable<SendOrderSettings>& table();
};

}  // namespace clustar
