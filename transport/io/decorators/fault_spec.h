// What FaultyIo does to packets, as a value and as the text that a user writes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "transport/base/result.h"
#include "transport/base/time.h"

namespace clustar::transport::io {

// Probabilities are 0 .. 1; 0 turns a fault off. As text, keys in any order, each at most once:
//   loss=P                  a packet is lost
//   burst=ENTER/LEAVE/LOSS  Gilbert-Elliott: each packet first moves the state, then is lost with LOSS in the bad one
//   reorder=P/N or P/TIME   a packet is held back until N later ones have left, at most kReorderPatience, or for TIME
//   duplicate=P             a packet is followed by a copy
//   corrupt=P               one bit is flipped; P/header or P/payload: only there
//   delay=TIME              every packet; order is kept
//   jitter=TIME             uniform 0 .. TIME on top of the delay; order is kept
//   path=N, class=N         only these packets; all others pass untouched
//   direction=out|in|both   packets that are sent (default) or received; the latter may only be lost
//   seed=N                  same seed and packets, same faults
// TIME is a number with ns, us, ms or s, at most 10 s.
struct FaultSpec {
  enum class Direction : std::uint8_t { kOut, kIn, kBoth };
  enum class Where : std::uint8_t { kAny, kHeader, kPayload };
  static constexpr Duration kReorderPatience = std::chrono::milliseconds(1);
  static constexpr Duration kMaxTime = std::chrono::seconds(10);
  static constexpr std::uint32_t kMaxReorderPackets = 1024;

  double loss = 0;
  double burst_enter = 0;
  double burst_leave = 1;
  double burst_loss = 1;
  double reorder = 0;
  std::uint32_t reorder_packets = 0;  // 0: by time alone
  Duration reorder_time = kReorderPatience;
  double duplicate = 0;
  double corrupt = 0;
  Where corrupt_where = Where::kAny;
  Duration delay{0};
  Duration jitter{0};
  int path = -1;           // -1: any
  int traffic_class = -1;  // -1: any
  Direction direction = Direction::kOut;
  std::uint64_t seed = 1;

  // The error names the key and says what is allowed. The empty text is no fault.
  static Result<FaultSpec> parse(std::string_view text);
  // Parses back to the same; only what differs from the defaults.
  std::string to_string() const;

  bool applies(std::uint8_t packet_path, std::uint8_t packet_class) const {
    return (path < 0 || path == packet_path) && (traffic_class < 0 || traffic_class == packet_class);
  }
  bool out() const { return direction != Direction::kIn; }
  bool in() const { return direction != Direction::kOut; }
  bool delays() const { return delay > Duration::zero() || jitter > Duration::zero(); }
  bool loses() const { return loss > 0 || burst_enter > 0; }
  // Some packets leave later than they came, twice, or changed, and so need memory of their own.
  bool copies() const { return reorder > 0 || duplicate > 0 || corrupt > 0 || delays(); }

  bool operator==(const FaultSpec&) const = default;
};

}  // namespace clustar::transport::io
