// What one trial of the storm consists of: a network, the options of every end, a workload, and who misbehaves.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mlt/core/bitmap.h"
#include "mlt/core/options.h"
#include "mlt/core/send/send_terms.h"
#include "transport/base/rng.h"
#include "transport/base/time.h"

namespace clustar::mlt::test {

struct StormMessage {
  std::uint32_t bytes = 0;
  std::int32_t tag = 0;
  std::uint32_t tag_seq = 0;  // of the flow's messages with this tag
  SendTerms terms;            // `important` is not set: it points to the following
  PacketBitmap important;
  std::uint32_t length = 0;  // of its receive
  TimePoint send_at{};
  TimePoint post_at{};

  std::uint32_t packets(std::uint16_t segment) const { return packet_count(bytes, segment); }
};

// One connection.
struct StormFlow {
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  std::uint64_t secret = 0;
  Options sender;
  Options receiver;
  bool lies = false;  // besides what its ends send, altered copies of it arrive
  std::vector<StormMessage> messages;
  std::vector<std::uint32_t> post_order;  // numbers of messages
};

struct StormClock {  // of one host, against the simulation's
  struct Jump {
    TimePoint at;
    Duration by;
  };
  struct Halt {
    TimePoint from;
    TimePoint until;
  };
  std::vector<Jump> jumps;
  std::vector<Halt> halts;  // afterwards it is right again

  TimePoint at(TimePoint now) const;
};

struct StormHostPlan {
  Options options;
  StormClock clock;
  struct Freeze {
    TimePoint from;
    TimePoint until;
  };
  std::vector<Freeze> freezes;
  bool back_pressure = false;  // its device takes a few packets, then none for a while
  double refuses_staging = 0;  // share of the packets
};

struct StormPlan {
  std::uint64_t seed = 0;
  std::uint64_t rate_bps = 0;
  Duration round_trip{};
  std::uint64_t buffer = 0;
  std::uint64_t mark_above = 0;
  bool one_queue = false;  // switches know no classes
  std::uint32_t nic_packets = 0;
  bool driver_options = false;
  TimePoint heal{};    // when all interference has ended
  TimePoint settle{};  // neither is anything sent or posted as planned afterwards, but for want of room
  std::vector<StormHostPlan> hosts;
  std::vector<StormFlow> flows;
  std::uint64_t messages = 0;
  bool turns = false;    // messages have turns and levels, which change
  bool hostile = false;  // some flow lies
  bool unheard = false;  // long messages, whose answers are lost in phases

  std::string describe() const;
};

// Everything follows from the seed.
StormPlan storm_plan(std::uint64_t seed);

template <class T, std::size_t N>
T pick(Rng& rng, const T (&values)[N]) {
  return values[rng.below(N)];
}
// from .. to
inline std::uint64_t between(Rng& rng, std::uint64_t from, std::uint64_t to) { return from + rng.below(to - from + 1); }
// Uniform in the logarithm.
double scaled(Rng& rng, double from, double to);

// Options of all ends of a plan whose network is drawn (mlt_storm_options.cc).
void draw_options(StormPlan& plan, Rng& rng);
// Flows and their messages, of a plan whose options are drawn (mlt_storm_workload.cc).
void draw_workload(StormPlan& plan, Rng& rng);

// How long after settle() of a network that has healed everything may take: what is left of each flow, and the
// constants of it, are explained where it is defined.
struct StormRest {
  std::uint64_t bytes = 0;  // of messages that are not over
  std::uint64_t packets = 0;
  std::uint64_t messages = 0;
  std::uint32_t windows = 0;  // of the longest
  Duration told_trip{};       // the shortest that its sender has measured
};
Duration healing_bound(const StormPlan& plan, const std::vector<StormRest>& rests);

}  // namespace clustar::mlt::test
