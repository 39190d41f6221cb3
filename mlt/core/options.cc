#include "mlt/core/options.h"

#include "mlt/core/options_check.h"
#include "mlt/core/wire.h"

namespace clustar::mlt {

void Options::check() const {
  constexpr Duration kSecond = std::chrono::seconds(1);
  require_option(segment >= kMinSegment, "mlt: segment must be 64 .. 65535 B");
  require_option(paths >= 1 && paths <= kMaxPaths, "mlt: paths must be 1 .. 32");
  require_option(burst_bytes >= 1 && burst_bytes <= 1u << 20, "mlt: burst_bytes must be 1 .. 1 MiB");
  require_option(pace_bytes <= 1u << 20, "mlt: pace_bytes must be at most 1 MiB");
  require_option(unscheduled_bytes <= 1u << 20, "mlt: unscheduled_bytes must be at most 1 MiB");
  require_option(max_messages >= 1 && max_messages <= kMaxOutstanding, "mlt: max_messages must be 1 .. 4096");
  require_option(max_staged <= kMaxOutstanding, "mlt: max_staged must be at most 4096");
  require_option(max_tags >= 1 && max_tags <= 1u << 20, "mlt: max_tags must be 1 .. 1048576");
  require_option(max_in_flight >= 1 && max_in_flight <= kMaxPackets, "mlt: max_in_flight must be 1 .. 1048576 packets");
  require_option(ack_every >= 1, "mlt: ack_every must be 1 .. 255 packets");
  require_option(reorder_packets >= 1, "mlt: reorder_packets must be 1 .. 255");
  require_option(ack_delay >= Duration::zero() && ack_delay <= kSecond, "mlt: ack_delay must be 0 .. 1 s");
  require_option(gap_floor > Duration::zero() && gap_floor <= kSecond, "mlt: gap_floor must be above 0, at most 1 s");
  require_option(ask_cap > Duration::zero() && ask_cap <= kSecond, "mlt: ask_cap must be above 0, at most 1 s");
  require_option(probe_floor >= std::chrono::microseconds(1) && probe_floor <= probe_cap,
                 "mlt: probe_floor must be 1 us .. probe_cap");
  require_option(probe_cap <= 10 * kSecond, "mlt: probe_cap must be at most 10 s");
  require_option(initial_rtt > Duration::zero() && initial_rtt <= 10 * kSecond,
                 "mlt: initial_rtt must be above 0, at most 10 s");
  require_option(base_rtt > Duration::zero() && base_rtt <= 10 * kSecond,
                 "mlt: base_rtt must be above 0, at most 10 s");
  require_option(peer_timeout > probe_cap, "mlt: peer_timeout must be above probe_cap");
  require_option(max_tolerance_ppm <= 1'000'000, "mlt: max_tolerance_ppm must be at most 1000000");
  require_option(peer_timeout <= std::chrono::hours(24), "mlt: peer_timeout must be at most 24 h");
  require_option(line_rate >= 1000 && line_rate <= 1'000'000'000'000, "mlt: line_rate must be 1 kB/s .. 1 TB/s");
  require_option(parity_from >= Duration::zero() && parity_from <= 10 * kSecond, "mlt: parity_from must be 0 .. 10 s");
  require_option(max_parity <= 1u << 16, "mlt: max_parity must be at most 65536 packets");
  (void)PathSelector(paths, path);  // refuses what it does not allow
  require_option(credit_slack <= 1u << 30, "mlt: credit_slack must be at most 1 GiB");
}

}  // namespace clustar::mlt
