// A fabric whose first host is sent packets to, one by one and counted, through a port of the test's choosing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/fabric/switch/switch_program.h"
#include "tests/fabric/fabric_under_test.h"

namespace clustar::bench::fabric {

inline constexpr std::uint8_t kEct0 = 2;  // RFC 3168, section 5
inline constexpr std::uint8_t kCe = 3;
constexpr std::uint8_t tos_of(int traffic_class, std::uint8_t ecn = 0) {
  return static_cast<std::uint8_t>(traffic_class << 5 | ecn);
}

struct Received {
  std::uint32_t sequence = 0;
  std::size_t payload_bytes = 0;
  std::uint8_t tos = 0;
};

// Datagrams that host 0 receives, kept by its kernel until they are asked for.
class Receiver {
 public:
  explicit Receiver(const Fabric& fabric);
  ~Receiver();
  Receiver(const Receiver&) = delete;
  Receiver& operator=(const Receiver&) = delete;

  // Waits until `count` have come, at most 10 s; and takes what else is there.
  std::vector<Received> take(std::size_t count) const;
  std::uint16_t port() const { return port_; }

 private:
  int fd_ = -1;
  std::uint16_t port_ = 0;
};

class SwitchTest : public FabricTest {
 protected:
  void SetUp() override;  // skips with the reason where there can be no switch program

  // Makes the fabric, and lets its hosts know each other, so that no ARP packet passes unasked.
  Fabric must_switch(std::uint64_t rate_bps, std::uint64_t buffer_bytes, const PortRules& rules, int hosts = 2);
  // Host 1 sends without its own line's shaping from now on: bursts reach the switch at once.
  void unleash(const Fabric& fabric) const;

  // Sends frames of `frame_bytes` (56 at least) from host 1 to the receiver, numbered from `first`; waits after every
  // hundred until the switch has seen them, at most 5 s.
  void send(const Fabric& fabric, const Receiver& to, std::uint8_t tos, int count, std::size_t frame_bytes = 100,
            std::uint32_t first = 0) const;
  PortCounters counters(const Fabric& fabric, int host = 0) const;
  void change(const Fabric& fabric, const PortRules& rules) const;  // of host 0's port
};

}  // namespace clustar::bench::fabric
