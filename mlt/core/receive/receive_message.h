// What a receiver keeps of one message until its sender has forgotten it.
#pragma once

#include <cstdint>
#include <utility>

#include "mlt/core/bitmap.h"
#include "mlt/core/receive/passed.h"
#include "mlt/core/receive/telling.h"
#include "mlt/core/states.h"
#include "mlt/core/window.h"
#include "mlt/core/wire.h"
#include "transport/base/time.h"

namespace clustar::mlt {

// What a new message in the same slot begins without. A struct below belongs to the part named; the rest is Receiver's.
struct ReceiveMessageState {
  static constexpr std::uint32_t kNone = 0xffffffff;

  ReceiveState state = ReceiveState::kUnseen;
  bool has_open = false;
  bool tolerant = false;  // by its packets, as long as there is no record; then by that
  bool parity = false;    // some of it came
  bool asks = false;      // the state that is due asks the sender for an answer
  std::uint32_t bytes = 0;
  std::uint16_t segment = 0;
  std::uint32_t packets = 0;
  std::uint32_t received = 0;
  std::uint32_t received_bytes = 0;
  std::uint32_t important = 0;   // received
  std::uint32_t sent_known = 0;  // the first so many packets, in sending order, are known to have been sent
  std::uint32_t receive = kNone;
  std::uint32_t staging = kNone;
  Telling telling;
  std::uint32_t want = 0;  // to be sent again, of the windows still to be told
  OpenRecord open;
  TimePoint first_at{};
  struct Loss {                 // LossDecision
    bool refused = false;       // some packet found no place: nothing of it may be charged to the ledger
    bool quiet = false;         // the sender said so with what it sent again
    bool decided = false;       // nothing was on its way once: down to `allowed` missing ends it at once
    bool counted = false;       // as eligible
    std::uint32_t allowed = 0;  // packets that may be missing, by the latest decision
    TimePoint decide_at = TimePoint::max();
  } loss;
  struct Silence {           // Asking
    std::uint8_t asked = 0;  // times, since the latest packet
    Duration pause{0};       // the longest between recent packets
    TimePoint last_at{};     // latest packet
    TimePoint ask_at = TimePoint::max();
  } silence;
};

struct ReceiveMessage : ReceiveMessageState {
  PacketBitmap got;
  PacketBitmap staged;  // by sending order: what lies in the staging buffer, while there is one
  Passed passed;

  bool over() const { return state >= ReceiveState::kComplete; }
  bool growing() const { return state == ReceiveState::kStaging || state == ReceiveState::kArriving; }
  std::uint32_t missing() const { return packets - received; }
  std::uint32_t missing_bytes() const { return bytes - received_bytes; }
  // In a slot that another message has used; keeps the storage. Once per message: a copy of what stands ready is
  // cheaper than to build it.
  void reset() {
    static constexpr ReceiveMessageState kNew;
    static_cast<ReceiveMessageState&>(*this) = kNew;
    passed.reset();
  }
};

using ReceiveMessages = Window<ReceiveMessage>;

}  // namespace clustar::mlt
