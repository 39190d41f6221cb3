// What a protocol must know of a device's link to choose its times: from whom packets go to whom, and how soon either
// looks.
#pragma once

#include <cstdint>
#include <string>

#include "transport/base/time.h"

namespace clustar::transport::io {

enum class LinkKind : std::uint8_t {
  kKernel,     // packets pass the kernel's network stack: sockets, and RDMA in software
  kNic,        // a NIC's own queues; a thread sleeps until it tells
  kPollMode,   // the same, but a core looks all the time
  kSimulated,  // simulated time: nobody naps
};
const char* to_string(LinkKind kind);

struct LinkProfile {
  LinkKind kind = LinkKind::kKernel;
  Duration base_rtt{};              // of a packet and its answer while nothing queues and both processes run
  Duration jitter{};                // an answer may be so late though nothing is wrong: pauses of the scheduler
  Duration wake_cost{};             // from a packet's arrival until a thread that slept looks at it
  std::uint64_t line_rate_bps = 0;  // 0 = unknown; what virtual devices say of their speed is made up

  // What links of a kind usually have. Those of kNic and kPollMode are chosen, not measured on hardware.
  static LinkProfile usual(LinkKind kind, std::uint64_t line_rate_bps = 0);

  // How long a thread may sleep at a time on a device that tells of nothing by a descriptor.
  Duration blind_sleep() const { return 4 * wake_cost; }
  std::string to_string() const;  // "kernel, round trip 100 us, jitter 1000 us, wake 50 us, 25 Gbit/s"
};

}  // namespace clustar::transport::io
