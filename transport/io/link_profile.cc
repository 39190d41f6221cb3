#include "transport/io/link_profile.h"

#include <fmt/format.h>

namespace clustar::transport::io {

using std::chrono::microseconds;
using std::chrono::nanoseconds;

const char* to_string(LinkKind kind) {
  switch (kind) {
    case LinkKind::kKernel: return "kernel";
    case LinkKind::kNic: return "nic";
    case LinkKind::kPollMode: return "poll mode";
    case LinkKind::kSimulated: return "simulated";
  }
  return "?";
}

LinkProfile LinkProfile::usual(LinkKind kind, std::uint64_t line_rate_bps) {
  switch (kind) {
    // The kernel and the scheduler make the round trip, not the fabric: a process that is not running answers when it
    // runs.
    case LinkKind::kKernel: return {kind, microseconds(100), microseconds(1000), microseconds(50), line_rate_bps};
    // A completion channel wakes by an interrupt, without the network stack behind it; the scheduler is the same, but
    // hosts with such NICs have cores to spare.
    case LinkKind::kNic: return {kind, microseconds(20), microseconds(200), nanoseconds(12'500), line_rate_bps};
    case LinkKind::kPollMode: return {kind, microseconds(15), microseconds(50), microseconds(1), line_rate_bps};
    // As mlt/core's own defaults.
    case LinkKind::kSimulated: return {kind, microseconds(20), microseconds(25), microseconds(1), line_rate_bps};
  }
  return {};
}

std::string LinkProfile::to_string() const {
  const auto us = [](Duration time) { return static_cast<double>(time.count()) / 1000; };
  return fmt::format("{}, round trip {:g} us, jitter {:g} us, wake {:g} us, {}", io::to_string(kind), us(base_rtt),
                     us(jitter), us(wake_cost),
                     line_rate_bps == 0 ? std::string("line rate unknown")
                                        : fmt::format("{:g} Gbit/s", static_cast<double>(line_rate_bps) / 1e9));
}

}  // namespace clustar::transport::io
