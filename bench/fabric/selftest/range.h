// A bridged fabric of three hosts to measure one port on: host 1 sends, unshaped, to host 0, whose port is the one
// under test; host 2 is where packets go that only say that those before them have met the switch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/fabric/selftest/datagrams.h"
#include "bench/fabric/signals.h"
#include "bench/fabric/switch/switch_program.h"

namespace clustar::bench::fabric::selftest {

struct Sent {
  std::uint8_t tos = 0;
  std::uint64_t frame_bytes = 0;
  std::int64_t before_ns = 0;  // taken before it was sent
};

// Sequence numbers of an experiment begin with 0, so that they are indices of sent().
class Range {
 public:
  // `rate_bps` and `buffer_bytes` are those of host 0's line; 0: not shaped.
  static FabricSpec spec(const std::string& name, std::uint64_t rate_bps, std::uint64_t buffer_bytes, int mtu);
  // `signals` must outlive it.
  static Result<Range> open(const Fabric& fabric, const HeldSignals& signals);

  // Begins an experiment: waits until the port's queue and bucket are as if nothing had passed, puts the rules on the
  // port (rules that do nothing need no program), and forgets what was sent and counted.
  Result<void> begin(const PortRules& rules);
  // At once; waits now and then until the switch has seen them, since the kernel drops what waits before a bridge.
  Result<void> send(std::uint8_t tos, std::uint64_t frame_bytes, int count);
  // Without waiting.
  Result<void> send_one(std::uint8_t tos, std::uint64_t frame_bytes);
  // Waits until everything sent has met the switch. The time by which that was so.
  Result<std::int64_t> settle();
  // Takes what has arrived; with collect() waits until nothing more can come.
  void take() { receiver_.take(arrivals_, 0); }
  Result<void> collect();

  const std::vector<Sent>& sent() const { return sent_; }
  const std::vector<Arrival>& arrivals() const { return arrivals_; }
  // Bytes that the line can have carried since the first packet of this experiment, until `end_ns`.
  double carried(std::int64_t end_ns) const;

  bool has_program() const { return has_program_; }
  std::uint64_t rate_bps() const { return port_.rate_bps; }
  std::uint64_t buffer_bytes() const { return port_.buffer_bytes; }
  std::uint64_t full_frame() const { return frame_bytes(port_.mtu); }
  std::uint64_t bucket_bytes() const { return burst_bytes(port_.rate_bps, port_.mtu); }
  const Fabric& fabric() const { return fabric_; }
  Result<PortCounters> counters() const;  // the switch program's
  Result<std::uint64_t> backstop_drops() const;
  // After collect(): what the counters say otherwise than the probes; "" when they agree.
  Result<std::string> disagreement() const;
  Result<void> check_signals() const;

 private:
  explicit Range(const Fabric& fabric, const HeldSignals& signals) : fabric_(fabric), signals_(&signals) {}
  Result<void> warm_up();

  Fabric fabric_;
  const HeldSignals* signals_;
  SwitchPort port_;
  bool has_program_ = false;
  Datagrams sender_, receiver_, witness_;
  std::vector<Sent> sent_;
  std::vector<Arrival> arrivals_;
  std::uint32_t settled_ = 0;
  std::uint64_t backstop_before_ = 0;
};

// Keeps the calling thread on the core where it is: packets that are sent from one core meet the switch in order.
class Pinned {
 public:
  Pinned();
  ~Pinned();
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;

 private:
  std::vector<int> before_;
};

}  // namespace clustar::bench::fabric::selftest
