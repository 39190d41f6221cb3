// What of a sender's tolerant messages need not be sent again when it is lost. The receiver decides; this only saves
// the round trip in which it would want what exceeds its budget.
#pragma once

#include <cstdint>

#include "mlt/core/ledger.h"
#include "mlt/core/options.h"
#include "mlt/core/send/flight.h"
#include "mlt/core/send/send_message.h"

namespace clustar::mlt {

class LossAllowance {
 public:
  // `budget`: what may probably stay missing of the collectives of all senders of an endpoint.
  LossAllowance(const Options& options, LedgerBook& budget) : options_(options), budget_(budget) {}

  void open(const SendMessage& message);
  // The receiver counts the message as eligible from now on, so the budget grows here, too: never before it does there,
  // or what is let be here would be wanted there, a round trip later.
  void know_open(SendMessage& message);
  // Whether the lost packet probably need not be sent again; then it is charged. `in_flight`: bytes of the connection.
  bool may_miss(SendMessage& message, const SentPacket& packet, Evidence evidence, std::uint64_t in_flight);
  // Packets of the message that may stay missing, of which none is important, as far as is known here.
  std::uint32_t may_miss(const SendMessage& message) const;
  // It is over with so many packets missing: the receiver may have given up more than what was let be here, and charged
  // all of it.
  void charge_rest(const SendMessage& message, std::uint32_t missing);

 private:
  std::uint64_t reserve(std::uint64_t in_flight) const;

  const Options& options_;
  LedgerBook& budget_;
};

}  // namespace clustar::mlt
