// What a fabric is asked to be, and the numbers and names that follow from it. Values only; touches no kernel.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/fabric/switch/rules.h"
#include "transport/base/result.h"

namespace clustar::bench::fabric {

inline constexpr int kMinHosts = 2;
inline constexpr int kMaxHosts = 250;
inline constexpr int kMinMtu = 1280;
inline constexpr int kMaxMtu = 9216;
inline constexpr std::uint64_t kMinRateBps = 1'000'000;
inline constexpr std::uint64_t kMaxRateBps = 400'000'000'000;
inline constexpr std::uint64_t kMaxBufferBytes = 1'000'000'000;
// A NIC does not drop what its own host gave it: the queue in front of a host's line is made so long that it never
// does.
inline constexpr std::uint64_t kHostQueueBytes = 16'000'000;
inline constexpr const char* kDefaultName = "clustar";
inline constexpr int kMaxSwitches = 250;
inline constexpr int kDefaultSpines = 4;
inline constexpr int kDefaultLeaves = 2;
inline constexpr std::uint64_t kMaxDelayNs = 100'000'000;

// One cable between two nodes: a host (h0, h1, ...) or a switch (see check_switch_name()).
struct LinkSpec {
  std::string a, b;
  std::uint64_t rate_bps = 0;      // each direction; 0: not shaped
  std::uint64_t buffer_bytes = 0;  // in front of the line, at each end that is a switch; 0 without a rate
  int mtu = 1500;
  std::uint64_t delay_ns = 0;  // of propagation, one way

  bool operator==(const LinkSpec&) const = default;
};

// What carries propagation delay; kAuto: netem where the kernel has it, the forwarder elsewhere.
enum class DelayBy { kAuto, kNetem, kForwarder };
const char* to_string(DelayBy by);  // "auto", "netem", "forwarder"
Result<DelayBy> parse_delay_by(const std::string& text);

// Three forms: hosts around one switch; two tiers of switches (spines > 0); any links at all (links not empty).
struct FabricSpec {
  std::string name = kDefaultName;  // 1 to 32 of a-z 0-9 -, a letter or digit first and last
  int hosts = 4;
  // Of each port, in each direction, in bit/s of Ethernet frames without FCS. 0: not shaped, as fast as the CPU.
  std::uint64_t rate_bps = 1'000'000'000;
  int mtu = 1500;
  // Bytes that may wait at a switch port for the line to its host. 0: default_buffer_bytes(). Only with a rate.
  std::uint64_t buffer_bytes = 0;
  std::uint64_t delay_ns = 0;         // of propagation on each link, one way; 0 to 100 ms
  DelayBy delay_by = DelayBy::kAuto;  // only with a delay on some link; a fabric that is up is read back as kAuto

  // Two tiers: every leaf is linked to every spine, hosts sit on the leaves in blocks of (nearly) equal size.
  int spines = 0;
  int leaves = 0;                         // 0: kDefaultLeaves
  std::uint64_t uplink_rate_bps = 0;      // 0: rate x hosts per leaf / spines, so that leaves are not oversubscribed
  std::uint64_t uplink_buffer_bytes = 0;  // 0: default_buffer_bytes() of that

  // Any other fabric. rate, MTU, buffer and delay above are then those of host 0's link.
  std::vector<std::string> switches = {};
  std::vector<LinkSpec> links = {};

  // What switches do to packets on purpose; that needs their program (eBPF). checked() brings equal ones to one form.
  SwitchRules rules = {};

  bool operator==(const FabricSpec&) const = default;
};

// "200M", "1G", "2.5g", "10gbit", "off" (= 0); decimal multiples of bit/s.
Result<std::uint64_t> parse_rate(const std::string& text);
// "100000", "100k", "64Ki", "2M": bytes; k M G are decimal, Ki Mi Gi binary, a trailing B or b changes nothing.
Result<std::uint64_t> parse_size(const std::string& text);
std::string rate_text(std::uint64_t bps);  // "200M", "2.5G", "off": what parse_rate() takes
// "50us", "1.5ms", "800ns", "0": nanoseconds, up to kMaxDelayNs.
Result<std::uint64_t> parse_delay(const std::string& text);
std::string delay_text(std::uint64_t ns);

// The same with what was left to default filled in, and links in their canonical order; kInvalidArgument naming what
// is allowed.
Result<FabricSpec> checked(FabricSpec spec);
Result<void> check_name(const std::string& name);
// "sw", the one switch that is a bridge; or edge, tor, leaf, agg, spine, core with a number from 0 to 249, a router.
// Few words, because a namespace clustar-NAME-WORD is ours to remove.
Result<void> check_switch_name(const std::string& name);
// The order of nodes in a topology: hosts by number, then switches from the edge to the core by number.
int node_rank(const std::string& name);

constexpr std::uint64_t frame_bytes(int mtu) { return static_cast<std::uint64_t>(mtu) + 14; }
// 5 ms of the line, but at least 100 kB. 0 without a rate.
std::uint64_t default_buffer_bytes(std::uint64_t rate_bps);
// HTB's bucket: 10 frames, or 50 us of the line where that is more. A smaller one loses rate on a busy CPU.
std::uint64_t burst_bytes(std::uint64_t rate_bps, int mtu);

std::string host_namespace(const std::string& fabric, int host);                   // clustar-NAME-h0
std::string switch_namespace(const std::string& fabric);                           // clustar-NAME-sw
std::string switch_namespace(const std::string& fabric, const std::string& node);  // clustar-NAME-leaf0
std::string wire_namespace(const std::string& fabric);  // clustar-NAME-wire: where cables with a delay are cut
std::string switch_address(int index);                  // 10.88.1.(index + 1), of a router
std::string host_address(int host);                     // 10.88.0.(host + 1); every host has a /24
std::string host_mac(int host);
std::string port_name(int host);                 // the switch's port to that host
std::string port_name(const std::string& node);  // to another switch: "to-spine0"
std::string host_name(int host);                 // h0
int host_number(const std::string& node);        // of "h0"; -1 for another name

inline constexpr const char* kHostInterface = "eth0";
inline constexpr const char* kBridge = "bridge0";
inline constexpr const char* kSingleSwitch = "sw";
inline constexpr int kPrefixLength = 24;

// "200M per port, buffer 125000 B, MTU 1500, 4 hosts"
std::string describe(const FabricSpec& spec);

}  // namespace clustar::bench::fabric
