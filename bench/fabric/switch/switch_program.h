// The eBPF program of a switch's ports: loaded, attached and read in the calling thread's network namespace. The kernel
// is the state: the ports hold the program, the program its maps, and any later process finds them there; all of it
// goes with the namespace. Needs root, and no tool at run time.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "bench/fabric/switch/rules.h"
#include "transport/base/result.h"

namespace clustar::bench::fabric {

struct PortPlan {
  std::string interface;
  PortLine line;
  PortRules rules;        // checked()
  std::string name = {};  // in its fabric: ports with the same seed lose different packets. "": the interface
};

// Bytes are those of frames without FCS; "deepest" is of the virtual queue.
struct ClassCounters {
  std::uint64_t packets = 0, bytes = 0;  // passed on in this class, trimmed ones in class 7
  std::uint64_t marked = 0;
  std::uint64_t dropped_buffer = 0, dropped_selective = 0, dropped_loss = 0;
  std::uint64_t trimmed = 0;  // came in this class and went on in class 7
  std::uint64_t largest_bytes = 0, super_packets = 0;
  std::uint64_t depth_bytes = 0, deepest_bytes = 0;

  std::uint64_t dropped() const { return dropped_buffer + dropped_selective + dropped_loss; }
  // Counts are added; of the largest and the deepest the larger stays, of the depth the later, `more`'s.
  ClassCounters& operator+=(const ClassCounters& more);
};

// What came from the host. Lost packets did not count as packets.
struct FromHostCounters {
  std::uint64_t packets = 0, bytes = 0, dropped_loss = 0, largest_bytes = 0, super_packets = 0;
};

struct PortCounters {
  std::array<ClassCounters, kClasses> classes;  // towards the host
  std::uint64_t depth_bytes = 0, deepest_bytes = 0;
  FromHostCounters from_host;

  // All classes; the depths are the port's own. What came = packets + dropped().
  ClassCounters to_host() const;
};

struct ProgramPort {
  std::string interface;
  bool attached = false;         // in both directions
  std::uint32_t program_id = 0;  // the kernel's number of the egress program, as bpftool prog shows it
  PortLine line;
  PortRules rules;
  PortCounters counters;
};

// Loads one instance and attaches it to every port. kUnavailable with the reason and the fix when this build or this
// kernel cannot; nothing is attached then. kInvalidUsage when a switch program is there.
Result<void> attach_switch(std::span<const PortPlan> ports);

// The ports of this namespace's switch program, by name; none without one.
Result<std::vector<ProgramPort>> read_switch();

// Puts other rules on a port while packets pass: each packet sees all of the old ones or of the new. Random numbers and
// bursts start over; counters and depth go on. kUnavailable without a program or for a port that it does not have.
Result<void> change_port(const std::string& interface, const PortRules& rules);

// Of every port; depths and the sequence of losses go on.
Result<void> reset_counters();

}  // namespace clustar::bench::fabric
