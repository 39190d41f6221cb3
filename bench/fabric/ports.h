// Queues of all ports, and the switch program of those of switches.
#pragma once

#include <cstdint>
#include <string>

#include "bench/fabric/spec.h"
#include "bench/fabric/tool.h"
#include "bench/fabric/topology.h"
#include "transport/base/result.h"

namespace clustar::bench::fabric {

inline constexpr const char* kNeedsQueues =
    "needs the queueing disciplines htb, tbf and bfifo (CONFIG_NET_SCH_HTB, CONFIG_NET_SCH_TBF, CONFIG_NET_SCH_FIFO): "
    "modprobe sch_htb sch_tbf; or --rate off, which needs none";
inline constexpr std::uint32_t kLeafClass = 0x00010010;  // 1:10, of class 0; 1:17 is that of class 7

inline constexpr int kLeafBurstBytes = 1600;  // that a class may send by its own rate, whatever its priority

// The switch program enforces the buffer; HTB's queues only hold what its virtual queue says that they hold, and what
// a late scheduler adds to that.
constexpr std::uint64_t backstop_bytes(std::uint64_t buffer_bytes) { return 4 * buffer_bytes; }

// The lines for `tc -batch` that give the end its rate behind one queue of its queue_bytes; "" without a rate. By TBF:
// a host's TCP, and UDP_SEGMENT, hand 64 KB super-packets to its queue whatever the offloads are, since the kernel cuts
// them behind it. TBF cuts what is longer than its burst before; HTB would send it at once, faster than any line,
// and does above 500 Mbit/s: there TBF's timer for each packet costs a quarter of the throughput on two cores, and 64
// KB are less than a millisecond of the line.
std::string queue_lines(const LinkEnd& end, int mtu);
// The same with eight strict classes, for a port with the switch program.
std::string class_queue_lines(const LinkEnd& end, int mtu);

// Attaches the switch program to every port of every switch, and gives every line, the hosts' too, its rate and queue.
// Where there can be no program and the spec has no rules: one bfifo per port that is the buffer itself, and `note`
// says why.
Result<void> equip_ports(const FabricSpec& spec, const Topology& topology, const Tools& tools, std::string& note);

}  // namespace clustar::bench::fabric
