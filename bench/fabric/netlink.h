// What the kernel says about links and queues of the calling thread's network namespace (rtnetlink dumps).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "transport/base/result.h"

namespace clustar::bench::fabric {

struct Link {
  int index = 0;
  std::string name;
  std::string alias;
  int mtu = 0;
  int master = 0;  // index of the bridge, 0 without
  bool up = false;
  bool carrier = false;  // the other end is up too
  bool running = false;  // and the kernel has acted on that: until then it and a bridge around it drop what comes
  std::uint64_t rx_packets = 0, rx_bytes = 0, rx_drops = 0;
  std::uint64_t tx_packets = 0, tx_bytes = 0, tx_drops = 0;
};
Result<std::vector<Link>> read_links();

// A queueing discipline, or a class of HTB.
struct Queue {
  int link = 0;
  std::string kind;
  std::uint32_t handle = 0, parent = 0;  // major << 16 | minor, as tc writes 1:1
  std::uint64_t rate_bps = 0;            // TBF's, or HTB's class
  std::uint64_t limit_bytes = 0;         // bfifo
  std::uint64_t packets = 0, bytes = 0, drops = 0, backlog_bytes = 0;
};
Result<std::vector<Queue>> read_queues();           // of every link
Result<std::vector<Queue>> read_classes(int link);  // of one link

// An IPv4 route of the main table to one address, or the default route.
struct Route {
  std::string destination;  // "10.88.0.1"; "" for the default route
  std::vector<int> links;   // the next hops' links that are alive
};
Result<std::vector<Route>> read_routes();

}  // namespace clustar::bench::fabric
