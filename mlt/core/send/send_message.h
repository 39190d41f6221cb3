// What a sender keeps of one message until it is forgotten.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "mlt/core/bitmap.h"
#include "mlt/core/classes.h"
#include "mlt/core/send/agenda.h"
#include "mlt/core/states.h"
#include "mlt/core/window.h"
#include "mlt/core/wire.h"
#include "transport/base/time.h"

namespace clustar::mlt {

// A struct below belongs to the part named; the rest is Sender's.
struct SendMessage {
  SendState state = SendState::kFree;
  bool posted = false;      // its receive is known to be there
  bool open_known = false;  // the peer acknowledged a packet with the record
  bool protect = false;     // SendTerms::parity
  bool tail_again = false;  // its last packets went again before they were surely lost; until one of it arrives
  std::uint32_t bytes = 0, packets = 0;
  std::uint32_t first = 0;        // index of the packet that goes first
  std::uint32_t sent = 0;         // first transmissions so far
  std::uint32_t parity = 0;       // packets of it on their way
  std::uint32_t unscheduled = 0;  // bytes first sent before the receive was known to be posted
  PacketKind kind = PacketKind::kReliable;
  OpenRecord open;
  PacketBitmap delivered, in_flight, resend, important;
  PacketBitmap stop_windows;            // of a STOP with missing packets: which have come
  std::vector<std::uint16_t> passed;    // of a tolerant message: first transmissions by lane, modulo 2^16
  SendPlace place;                      // TransmitPlan
  std::uint32_t lane = 0, on_lane = 0;  // of the latest first transmission, and how many went by it in a row
  struct {                              // LossAllowance
    std::uint32_t tolerated = 0;        // losses that are not sent again unless the receiver wants them
    bool wanted = false;                // it did
  } loss;
  struct {  // Probing
    bool due = false;
    std::uint8_t backoff = 0;
    std::uint32_t asked = 0;     // packet from which on the next probe looks for one in doubt
    TimePoint touched_at{};      // latest transmission or delivery
    TimePoint answered_until{};  // questions before it were answered
    TimePoint not_before{};      // the next question: as QuestionBudget said
  } probe;

  // A new message in a slot that another has used; keeps the storage. False: there is no memory.
  bool reset(std::uint32_t bytes_of_it, std::uint32_t packets_of_it) {
    state = SendState::kFree;
    posted = open_known = tail_again = protect = false;
    bytes = bytes_of_it;
    packets = packets_of_it;
    first = sent = parity = unscheduled = 0;
    open = OpenRecord{};
    loss = {};
    probe = {};
    std::fill(passed.begin(), passed.end(), std::uint16_t{0});
    return delivered.reset(packets) && in_flight.reset(packets) && resend.reset(packets) && stop_windows.reset(0) &&
           important.reset(0);
  }

  bool done() const { return state == SendState::kStored || state == SendState::kOver; }  // nothing more to send
  // Index of the next first transmission; only while some packet was not sent.
  std::uint32_t next() const {
    const std::uint32_t index = first + sent;
    return index >= packets ? index - packets : index;
  }
  // Nor will anything fly before the receiver wants it.
  bool nothing_flies() const { return state == SendState::kSent && in_flight.count() == 0 && resend.count() == 0; }
  // All was sent, nothing is on its way or due, and something is missing: the receiver need not wait before it decides.
  bool is_quiet() const { return nothing_flies() && !delivered.all(); }
};

using SendMessages = Window<SendMessage>;

}  // namespace clustar::mlt
