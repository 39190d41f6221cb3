#include "mlt/core/receive/loss_decision.h"

#include <algorithm>
#include <utility>

#include "mlt/core/recovery.h"

namespace clustar::mlt {

bool LossDecision::may_lose(const ReceiveMessage& message) const {
  return message.open.tolerant && message.open.tolerance_ppm <= options_.max_tolerance_ppm;
}

bool LossDecision::ends_by_time(const ReceiveMessage& message) const {
  return options_.recovery != nullptr && options_.recovery->ends_at(message.first_at) != TimePoint::max();
}

void LossDecision::count_eligible(ReceiveMessage& message, LedgerBook& ledgers) const {
  if (!may_lose(message) || std::exchange(message.loss.counted, true)) return;
  const OpenRecord& open = message.open;
  ledgers.open(collective_of(open), {open.collective_bytes, open.ranks, open.edges, open.tolerance_ppm});
  ledgers.add_eligible(collective_of(open), message.bytes);
}

void LossDecision::arm(ReceiveMessage& message, std::int32_t tolerance, TimePoint now) const {
  if (ends_by_time(message)) {
    message.loss.decide_at = options_.recovery->ends_at(message.first_at);
  } else if (message.loss.decided && message.missing() <= message.loss.allowed) {
    message.loss.decide_at = now;
  }
  arm_proven(message, tolerance, now);
}

// The lanes prove that nothing but what is sent again is on its way: no word of the sender is needed. What only a
// packet or two overtook may come yet; it has a quarter of the round trip for that, as in RFC 8985, section 6.2, and
// all of it where packets came late before. So has parity of the end, where there is some.
void LossDecision::arm_proven(ReceiveMessage& message, std::int32_t tolerance, TimePoint now) const {
  auto& loss = message.loss;
  if ((message.passed.total() != message.packets && !loss.quiet) || message.state != ReceiveState::kArriving) return;
  if (loss.decided || options_.recovery != nullptr || !may_lose(message)) return;
  const auto most = static_cast<std::uint8_t>(tolerance);
  const bool young = !loss.quiet && (message.parity || message.passed.hole_within(most));
  const Duration wait = most > options_.reorder_packets ? options_.base_rtt : options_.base_rtt / 4;
  loss.decide_at = std::min(loss.decide_at, young ? now + wait : now);
}

void LossDecision::arm_quiet(ReceiveMessage& message, TimePoint now) const {
  if (message.state == ReceiveState::kArriving && message.open.tolerant) message.loss.decide_at = now;
}

std::uint32_t LossDecision::important_missing(const ReceiveMessage& message) {
  return message.open.important - std::min(message.important, message.open.important);
}

std::uint32_t LossDecision::others_missing(const ReceiveMessage& message) {
  return message.missing() - std::min(message.missing(), important_missing(message));
}

// How many of the packets that are not important may be missing for good.
std::uint32_t LossDecision::tolerable(const ReceiveMessage& message, const LedgerBook& ledgers,
                                      std::uint32_t missing) const {
  if (!may_lose(message) || message.loss.refused) return 0;
  const std::uint32_t most = std::min(missing, message_cap_packets(message.packets));
  const std::uint64_t headroom = ledgers.headroom(collective_of(message.open), message.open.stage);
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(most, headroom / message.segment));
}

// Only after the lanes proved, or the sender said, that all was sent and nothing is on its way: silence is no proof,
// for packets may wait in a path or a class that others pass. Silence makes the receiver ask.
bool LossDecision::decide(ReceiveMessage& message, LedgerBook& ledgers) const {
  message.loss.decide_at = TimePoint::max();
  if (ends_by_time(message)) return true;
  const std::uint32_t others = others_missing(message);
  std::uint32_t allowed = tolerable(message, ledgers, others);
  if (important_missing(message) == 0 && others <= allowed) {
    if (ledgers.charge(collective_of(message.open), message.open.stage, message.missing_bytes())) return true;
    // Another NIC of the process has charged what was allowed.
    allowed = std::min(tolerable(message, ledgers, others), others - 1);
  }
  message.loss.decided = true;
  message.loss.allowed = allowed;
  return false;
}

}  // namespace clustar::mlt
