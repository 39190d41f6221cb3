// Reads a fabric out of the kernel: what there is, what is missing, what passed. Changes nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/fabric/delay/wire.h"
#include "bench/fabric/spec.h"
#include "bench/fabric/switch/switch_program.h"
#include "transport/base/result.h"

namespace clustar::bench::fabric {

struct Traffic {
  std::uint64_t packets = 0, bytes = 0, drops = 0;  // frames without FCS; drops did not count as passed
  std::uint64_t waiting_bytes = 0;
};

// What keeps a port's buffer.
enum class BufferKind {
  kNone,           // nothing waits: no rate
  kBfifo,          // HTB's one queue, without a switch program
  kSwitchProgram,  // the switch program's virtual queue
};
const char* to_string(BufferKind kind);

// A host's, and the switch port towards it.
struct PortStatus {
  int host = 0;
  std::string host_namespace;
  std::string address;
  int mtu = 0;
  std::uint64_t rate_bps = 0, buffer_bytes = 0;  // of the switch port, towards the host
  std::uint64_t host_rate_bps = 0;               // of the host's own line
  Traffic to_host;
  Traffic from_host;                   // its drops and what waits are those of the host's own queue
  std::optional<ProgramPort> program;  // these two: of the switch port
  std::uint64_t backstop_drops = 0;
};

struct SwitchPortStatus {
  std::string interface;
  std::string peer;  // the node at the other end: h0, leaf0
  bool up = false;   // both ends are
  int mtu = 0;
  std::uint64_t rate_bps = 0, buffer_bytes = 0;
  Traffic sent;                        // into the line, towards the peer
  Traffic received;                    // packets and bytes only
  std::optional<ProgramPort> program;  // the switch program at the port; its drops are among those of `sent`
  std::uint64_t backstop_drops = 0;    // by HTB behind the program: 0, unless the CPU was far behind the line
};

struct SwitchStatus {
  std::string name;  // sw, leaf0
  std::string net_namespace;
  std::vector<SwitchPortStatus> ports;
};

struct FabricStatus {
  FabricSpec spec;                // as the kernel has it, not as it was asked for
  std::vector<PortStatus> ports;  // one per host
  std::vector<SwitchStatus> switches;
  DelayStatus delay;
  // What is missing or differs from port to port, one sentence each. Empty: whole.
  std::vector<std::string> problems;

  BufferKind buffer_kind = BufferKind::kNone;
  bool exists = false;  // anything of that name, half-made or whole
};

// Needs root. `exists` is false when there is nothing of that name.
Result<FabricStatus> inspect(const std::string& fabric);

}  // namespace clustar::bench::fabric
