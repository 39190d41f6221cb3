// What may stay missing of a receiver's messages, and when that is decided.
#pragma once

#include <cstdint>

#include "mlt/core/ledger.h"
#include "mlt/core/options.h"
#include "mlt/core/receive/receive_message.h"
#include "transport/base/time.h"

namespace clustar::mlt {

class LossDecision {
 public:
  explicit LossDecision(const Options& options) : options_(options) {}

  // What the peer may ask for is this end's to say.
  bool may_lose(const ReceiveMessage& message) const;
  // The message has its receive: from now on it counts.
  void count_eligible(ReceiveMessage& message, LedgerBook& ledgers) const;

  // Of a message that arrives: sets when it is to be decided, if that is known. `tolerance`: later packets of a lane
  // that make an earlier one lost.
  void arm(ReceiveMessage& message, std::int32_t tolerance, TimePoint now) const;
  // The same, when something came that is no news.
  void arm_proven(ReceiveMessage& message, std::int32_t tolerance, TimePoint now) const;
  // The sender said that nothing is on its way.
  void arm_quiet(ReceiveMessage& message, TimePoint now) const;

  // Its time has come. True: the message ends here, and what is missing of it is charged. False: it goes on, and
  // lacks() packets more have to come.
  bool decide(ReceiveMessage& message, LedgerBook& ledgers) const;
  // Packets that are not important and too many to be missing, by the latest decision.
  static std::uint32_t lacks(const ReceiveMessage& message) { return others_missing(message) - message.loss.allowed; }

 private:
  bool ends_by_time(const ReceiveMessage& message) const;  // whatever is missing of it
  static std::uint32_t important_missing(const ReceiveMessage& message);
  static std::uint32_t others_missing(const ReceiveMessage& message);
  std::uint32_t tolerable(const ReceiveMessage& message, const LedgerBook& ledgers, std::uint32_t missing) const;

  const Options& options_;
};

}  // namespace clustar::mlt
