// What can go wrong on one direction of one link. Every fault draws from a stream of its own and draws for every packet
// in its scope, whatever the other faults do, so adding one leaves the others' decisions as they were.
#pragma once

#include <cstdint>
#include <functional>
#include <variant>
#include <vector>

#include "transport/base/rng.h"
#include "transport/base/time.h"
#include "transport/sim/counters.h"
#include "transport/sim/event_queue.h"
#include "transport/sim/packet.h"

namespace clustar::transport::sim {

struct Window {  // [from, until)
  TimePoint from{};
  TimePoint until = kNever;
  bool holds(TimePoint at) const { return from <= at && at < until; }
};

// What becomes of one packet.
struct Fate {
  DropCause drop = DropCause::kNone;  // the first cause, in the order in which the faults were added
  Duration delay{0};
  bool held_back = false;
  bool duplicated = false;
  Duration duplicate_delay{0};
  bool corrupted = false;
};

// Probabilities are 0 .. 1.
struct RandomLoss {
  double probability = 0;
};
// Two states (Gilbert 1960, Elliott 1963); each packet first moves the state, then is lost with the state's
// probability.
struct GilbertElliott {
  double good_to_bad = 0;
  double bad_to_good = 1;
  double loss_good = 0;
  double loss_bad = 1;
};
struct PeriodicLoss {
  std::uint64_t every = 0;  // packets number every, 2 * every, ...; 0 = none
};
struct ScriptedLoss {
  std::vector<std::uint64_t> numbers;  // the first packet in scope is number 1
};
struct MicroBursts {
  double probability = 1;
  std::vector<Window> windows;
  Duration period{0};  // > 0: the windows, all before `period`, repeat
};
struct Reorder {
  double probability = 0;
  Duration delay{0};  // of the packets held back
};
struct Jitter {
  Duration max{0};         // uniform 0 .. max
  bool keep_order = true;  // a packet never arrives before an earlier one
};
struct Duplicate {
  double probability = 0;
  Duration delay{0};  // of the copy, behind the original
};
struct Corrupt {
  enum class Where : std::uint8_t { kHeader, kPayload, kAny };
  double probability = 0;
  Where where = Where::kAny;
  std::uint32_t bits = 1;  // flipped, at most kMaxBits
  static constexpr std::uint32_t kMaxBits = 64;
};
// Everything on the wire during the window is lost.
struct LinkDown {
  Window window;
};

// An attacker who sits on the link and reads what passes: `decide` changes the fate by the packet's content, and loses
// it by DropCause::kIntercepted. It may change the packet, too.
struct Intercept {
  std::function<void(SimPacket& packet, TimePoint sent, Fate& fate)> decide;
};

using Fault = std::variant<RandomLoss, GilbertElliott, PeriodicLoss, ScriptedLoss, MicroBursts, Reorder, Jitter,
                           Duplicate, Corrupt, LinkDown, Intercept>;

// The packets that a fault sees. -1: any.
struct FaultScope {
  int path = -1;
  int traffic_class = -1;
  Window active{};  // by the time at which transmission starts
};

class FaultChain {
 public:
  FaultChain(std::uint64_t seed, std::uint32_t link) : seed_(seed), link_(link) {}

  void add(Fault fault, const FaultScope& scope = {});
  void clear() { faults_.clear(); }
  bool empty() const { return faults_.empty(); }

  // The packet is on the wire from `sent` and would arrive at `arrival`. Changes its bytes if it is corrupted.
  Fate decide(SimPacket& packet, TimePoint sent, TimePoint arrival);

 private:
  struct Active {
    Fault fault;
    FaultScope scope;
    Rng rng;
    std::uint64_t seen = 0;
    std::size_t cursor = 0;    // ScriptedLoss: the next number
    bool bad = false;          // GilbertElliott
    TimePoint last_arrival{};  // Jitter
  };
  struct Decide;

  std::uint64_t seed_;
  std::uint32_t link_;
  std::vector<Active> faults_;
};

}  // namespace clustar::transport::sim
