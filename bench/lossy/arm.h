// What is compared: transports, each with the settings that decide how it meets loss.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "transport/base/result.h"

namespace clustar::bench::lossy {

enum class Carrier : std::uint8_t {
  kTcp,         // plain kernel TCP sockets
  kMptcp,       // the same with IPPROTO_MPTCP
  kClustarTcp,  // transport/tcp through waist 1
  kMlt,         // mlt/driver through waist 1
};

enum class MltMode : std::uint8_t { kNormal, kGoBackN, kStaticDeadline };

inline constexpr std::uint32_t kDefaultRtoUs = 200'000;

struct Arm {
  std::string name;   // on the command line and in the JSON
  std::string label;  // for people
  Carrier carrier = Carrier::kTcp;
  std::string congestion = {};  // of TCP's sockets
  // Both of the hosts' namespaces while this arm's connections are made; the kernel's defaults.
  std::uint32_t rto_min_us = kDefaultRtoUs;
  bool ecn = false;  // asks for it (tcp_ecn 1), otherwise only when the peer asks (2)
  MltMode mode = MltMode::kNormal;
  std::uint32_t tolerance_ppm = 0;  // of each round's bytes at a receiver; 0 = reliable
  int paths = 0;                    // of MLT; 0 = its own choice
  std::string io = "udp";           // of MLT, as CLUSTAR_IO
  // Of io "dpdk": the driver, on the host's interface beside the kernel.
  std::string driver = "net_af_packet";
};

// Those that a scenario leaves out unless they are named, because of what they need, are among them.
const std::vector<Arm>& all_arms();
// kInvalidArgument naming the arms that there are.
Result<Arm> find_arm(const std::string& name);
const char* to_string(Carrier carrier);
// Whether the kernel's TCP moves its messages, so that the kernel's settings are the arm's.
bool is_kernel_tcp(const Arm& arm);

}  // namespace clustar::bench::lossy
