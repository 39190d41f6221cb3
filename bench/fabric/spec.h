// What a fabric is asked to be, and the numbers and names that follow from it. Values only; touches no kernel.
#pragma once

#include <cstdint>
#include <string>

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

struct FabricSpec {
  std::string name = kDefaultName;  // 1 to 32 of a-z 0-9 -, a letter or digit first and last
  int hosts = 4;
  // Of each port, in each direction, in bit/s of Ethernet frames without FCS. 0: not shaped, as fast as the CPU.
  std::uint64_t rate_bps = 1'000'000'000;
  int mtu = 1500;
  // Bytes that may wait at a switch port for the line to its host. 0: default_buffer_bytes(). Only with a rate.
  std::uint64_t buffer_bytes = 0;

  bool operator==(const FabricSpec&) const = default;
};

// "200M", "1G", "2.5g", "10gbit", "off" (= 0); decimal multiples of bit/s.
Result<std::uint64_t> parse_rate(const std::string& text);
// "100000", "100k", "64Ki", "2M": bytes; k M G are decimal, Ki Mi Gi binary, a trailing B or b changes nothing.
Result<std::uint64_t> parse_size(const std::string& text);
std::string rate_text(std::uint64_t bps);  // "200M", "2.5G", "off": what parse_rate() takes

// The same with the buffer filled in; kInvalidArgument naming what is allowed.
Result<FabricSpec> checked(FabricSpec spec);
Result<void> check_name(const std::string& name);

constexpr std::uint64_t frame_bytes(int mtu) { return static_cast<std::uint64_t>(mtu) + 14; }
// 5 ms of the line, but at least 100 kB. 0 without a rate.
std::uint64_t default_buffer_bytes(std::uint64_t rate_bps);
// HTB's bucket: 10 frames, or 50 us of the line where that is more. A smaller one loses rate on a busy CPU.
std::uint64_t burst_bytes(std::uint64_t rate_bps, int mtu);

std::string host_namespace(const std::string& fabric, int host);  // clustar-NAME-h0
std::string switch_namespace(const std::string& fabric);          // clustar-NAME-sw
std::string host_address(int host);                               // 10.88.0.(host + 1); every host has a /24
std::string host_mac(int host);
std::string port_name(int host);  // the switch's port to that host

inline constexpr const char* kHostInterface = "eth0";
inline constexpr const char* kBridge = "bridge0";
inline constexpr int kPrefixLength = 24;

// "200M per port, buffer 125000 B, MTU 1500, 4 hosts"
std::string describe(const FabricSpec& spec);

}  // namespace clustar::bench::fabric
