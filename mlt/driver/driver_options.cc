#include "mlt/driver/driver_options.h"

#include <fmt/format.h>

#include <algorithm>

#include "mlt/core/wire.h"

namespace clustar::mlt::driver {

using std::chrono::milliseconds;

Result<std::uint16_t> segment_for(const transport::io::Capabilities& capabilities, std::size_t seal_bytes) {
  constexpr std::size_t kLongest = 8900;  // loss costs a packet, and jumbo frames are 9,000 bytes
  constexpr std::size_t kAligned = 8;     // a loss cuts no element
  constexpr std::size_t kDataHeader = DataHeader::kSize + OpenRecord::kSize;
  constexpr std::size_t kUdpOnEthernet = 1500 - 20 - 8 - 1;  // with IPv4; a byte is the framing's
  static_assert(3 * ((kUdpOnEthernet - kDataHeader) / kAligned * kAligned) >= 4096, "4 KiB are to be three packets");
  const std::size_t room = capabilities.max_packet - std::min(capabilities.max_packet, kDataHeader + seal_bytes);
  const std::size_t segment = std::min(room, kLongest) / kAligned * kAligned;
  if (segment < kMinSegment) {
    return fail(ErrorCode::kUnavailable, fmt::format("mlt: packets of {} bytes leave no room for {} bytes of payload",
                                                     capabilities.max_packet, kMinSegment));
  }
  return static_cast<std::uint16_t>(segment);
}

namespace {

// A process that naps between its turns sends in one what the line takes meanwhile: a burst per 12.5 us, which is
// 42 Gbit/s. More than four are a queue in the switch.
std::uint32_t pace_for(const transport::io::LinkProfile& link, std::uint32_t burst_bytes) {
  constexpr Duration kBurstTime = std::chrono::nanoseconds(12'500);
  return burst_bytes * static_cast<std::uint32_t>(std::clamp<std::int64_t>(link.wake_cost / kBurstTime, 1, 4));
}

void set_times(Options& options, const transport::io::LinkProfile& link) {
  constexpr std::uint64_t kUnknownRate =
      100'000'000'000;  // bit/s: pacing is the wire's business, and there may be none
  options.line_rate = (link.line_rate_bps > 0 ? link.line_rate_bps : kUnknownRate) / 8;
  options.pace_bytes = pace_for(link, options.burst_bytes);
  options.base_rtt = link.base_rtt;
  options.initial_rtt = 5 * link.base_rtt;
  options.gap_floor = 2 * link.base_rtt;
  options.ack_delay = link.jitter;  // senders ask for what their windows wait for
  // The peer that is asked may be paused.
  options.probe_floor = 2 * link.jitter;
  options.ask_cap = 4 * link.jitter;
}

}  // namespace

void set_path(Options& options, Duration round_trip, Endpoint::End end) {
  constexpr Duration kLongest = std::chrono::seconds(1);  // as much as a packet can tell of it
  round_trip = std::min(round_trip, kLongest);
  options.base_rtt = std::max(options.base_rtt, round_trip);
  options.initial_rtt = std::max(options.initial_rtt, round_trip + round_trip / 4);
  // Half of such a round trip passes before a sender hears of a receive that was posted as it began: as long as it may
  // send ahead, the line is not idle. Each end measures for itself; the receiver has the room first.
  constexpr Duration kFar = milliseconds(2);
  constexpr std::uint32_t kFarAhead = 512 * 1024;
  if (round_trip >= (end == Endpoint::End::kSends ? kFar : kFar / 2)) options.unscheduled_bytes = kFarAhead;
}

std::uint32_t credit_slack_for(std::uint64_t line_rate) {
  constexpr std::uint64_t kTurnsPerSecond = 500;
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(line_rate / kTurnsPerSecond, 64 * 1024, 1024 * 1024));
}

Result<Options> options_for(const transport::io::Capabilities& capabilities, const transport::io::LinkProfile& link,
                            std::size_t seal_bytes) {
  const auto segment = segment_for(capabilities, seal_bytes);
  if (!segment) return tl::unexpected(segment.error());
  Options options;
  options.segment = *segment;
  options.paths = std::min(capabilities.paths, kMaxPaths);
  options.unscheduled_bytes = 16 * 1024;  // a rack's switch may have no more room; set_path() for longer ways
  options.max_in_flight = 1u << 16;       // of a lane: 10 Gbit/s for 100 ms and one path
  // A run of packets on one path is one system call, and one packet of the kernel where it has UDP_SEGMENT.
  options.burst_bytes = 64 * 1024;
  options.cut_long = true;  // transport.h: a shorter receive cuts the message
  set_times(options, link);
  options.credit_slack = credit_slack_for(options.line_rate);
  // Switches serve classes strictly: in one of its own, what may be lost would starve behind the gathers of earlier
  // buckets, and a step waits for both (an all-to-all over 100 Mbit/s took 1.2 times as long).
  options.classes = Classes({.traffic_class = {7, 6, 5, 4, 4, 4}});
  DctcpSwift::Options congestion;
  congestion.queue_target = link.jitter;  // pauses of the scheduler are no queue
  // On slow links a packet is a large part of a millisecond: seven senders whose windows shrank to one packet leave the
  // line idle. (An all-to-all of 8 ranks over 50 Mbit/s took 1.2 times as long with 0.1 ms, a ring the same.)
  congestion.scaling_range = milliseconds(5);
  // It doubles in each round trip. (Seven senders that begin with 256 KiB overran a port of 50 Mbit/s with 100 KB: the
  // first step of training took 0.25 s longer.)
  congestion.initial = 32 * 1024;
  congestion.maximum = 256u << 20;  // 10 Gbit/s for 200 ms
  options.congestion = DctcpSwift(congestion);
  // Architecture: a live host whose process is silent is a straggler, never an error of its own; the control connection
  // tells about hosts. The core's longest:
  options.peer_timeout = std::chrono::hours(24);
  return options;
}

}  // namespace clustar::mlt::driver
