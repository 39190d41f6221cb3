#include "nccl_plugin/loss/policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "nccl_plugin/abi/types.h"
#include "nccl_plugin/loss/loss_rules.h"
#include "nccl_plugin/loss/phase.h"
#include "nccl_plugin/loss/settings.h"

namespace clustar::nccl_plugin {
namespace {

using nccl_abi::kAllReduce;
using nccl_abi::kNetAttrUndefined;
using nccl_abi::kReduceScatter;
using nccl_abi::kRing;
using nccl_abi::kSend;
using nccl_abi::kSendRecv;
using nccl_abi::kSimple;

// float16, float32, float64, bfloat16 and the two float8 end NCCL's list of types.
constexpr int kFirstFloat = nccl_abi::kFloat16;
constexpr int kLastFloat = nccl_abi::kFloat8e5m2;

constexpr bool is_reduction(int function) { return function == kAllReduce || function == kReduceScatter; }

// Of rules that have no func, a send fits none: that it may lose is never implied.
bool allows_send(const LossRule& rule) { return rule.function == kSendRecv && rule.tolerance_ppm > 0; }

// Point 2 of the loss contract, as far as a collective as a whole decides it. A send has no algorithm, and NCCL does
// not say its protocol.
Reason reason_of(const CollectiveFacts& collective) {
  const bool send = collective.function == kSend;
  if (!is_reduction(collective.function) && !send) return Reason::kNotReduction;
  if (collective.datatype < kFirstFloat || collective.datatype > kLastFloat) return Reason::kNotFloat;
  if (!send && collective.algorithm != kRing) return Reason::kNotRing;
  if (collective.protocol != kSimple && !(send && collective.protocol == -1)) return Reason::kNotSimple;
  return Reason::kLossy;
}

// Point 3: the terms of the ledger's bound, and what LossTerms can carry.
bool has_size(std::uint64_t bytes, std::uint32_t ranks, std::uint32_t edges) {
  return bytes > 0 && ranks >= 2 && ranks <= std::numeric_limits<std::uint16_t>::max() && edges >= 1 && edges <= ranks;
}

bool tolerance_is_sound(std::uint32_t ppm) { return ppm > 0 && ppm <= kMaxTolerancePpm; }

bool fits_comm(const LossRule& rule, const CommFacts& comm) {
  return rule.ranks.contains(comm.ranks) && (rule.any_class || rule.traffic_class.contains(comm.traffic_class)) &&
         glob_matches(rule.comm, comm.name);
}

bool fits_function(const LossRule& rule, int function) {
  // What a rule without a function makes reliable, it makes reliable altogether.
  if (function == kSend) return rule.function == kSendRecv || (rule.function == -1 && rule.tolerance_ppm == 0);
  return rule.function == -1 || (rule.function == function && function != kSendRecv);
}

// Whether LL might have made this of a channel's `part` of a send: a line of 16 bytes holds 8 of data, and all
// transfers but the last are alike.
bool fits_flagged(const MessageFacts& message, std::uint64_t part) {
  constexpr std::uint64_t kLineData = 8;
  const std::uint64_t data = message.size / 2;
  const std::uint64_t transfers = message.transfers;
  if (part == 0) return false;
  if (transfers <= 1) return part <= data && data < part + kLineData;
  return (transfers - 1) * data < part && part <= transfers * data;
}

// Whether the transfers of a send are its data and nothing else. NCCL takes LL for sends of up to 16 KiB per channel
// (v2.28.9 src/enqueue.cc addP2pToPlan, NCCL_P2P_LL_THRESHOLD) and tells nobody, so the sizes must: of a part in equal
// steps but for a shorter last one, all but one together are less than the part, while in LL they are twice as much.
// Parts are multiples of 4 KiB, of which the last may be shorter (ncclP2pPartBounds): what LL might have made of that
// one is not taken for data.
bool carries_data_only(const MessageFacts& message) {
  constexpr std::uint64_t kPartUnit = 4096;
  constexpr std::uint64_t kMost = std::uint64_t{1} << 48;  // beyond any memory, so that nothing below overflows
  const std::uint64_t bytes = message.collective.bytes;
  const std::uint64_t channels = message.channels;
  if (channels == 0) return false;  // not told
  if (bytes == 0 || bytes > kMost || message.size > bytes || message.transfers > kMost / bytes) return bytes == 0;
  const std::uint64_t share = (bytes + channels - 1) / channels;
  const std::uint64_t part = std::min(bytes, (share + kPartUnit - 1) / kPartUnit * kPartUnit);
  if (message.size > part) return false;
  if (message.transfers > 1 && (message.transfers - 1) * std::uint64_t{message.size} >= part) return false;
  return !fits_flagged(message, bytes % part);
}

Reason guard_reason(const NetGuard& guard, int function, bool trusts_profiler_alone) {
  if (!guard.has) return trusts_profiler_alone ? Reason::kLossy : Reason::kNoSecondGuard;
  const bool whole = guard.algo != kNetAttrUndefined && guard.proto != kNetAttrUndefined;
  if (!guard.same_comm || guard.op == kNetAttrUndefined || (!whole && function != kSend)) {
    return Reason::kNoSecondGuard;
  }
  // Of sends NCCL leaves algorithm and protocol as they were (v2.28.9 and v2.30.7 src/transport/net.cc
  // setXferNetAttrs), and its other functions that are made of sends say so.
  const bool agrees =
      guard.op == 1u << function && (function == kSend || (guard.algo == 1u << kRing && guard.proto == 1u << kSimple));
  return agrees ? Reason::kLossy : Reason::kGuardDisagrees;
}

// Whose collective it is, and whether the contract lets that collective lose anything at all.
Reason collective_reason(const LossPolicy& policy, const MessageFacts& message) {
  if (policy.off()) return Reason::kNotOptedIn;
  if (!message.identified) {
    return message.unidentified == Reason::kForeignProcess ? Reason::kForeignProcess : Reason::kUnidentified;
  }
  const CollectiveVerdict& verdict = message.verdict;
  if (verdict.reason >= Reason::kCount) return Reason::kUnidentified;
  if (verdict.reason != Reason::kLossy) return verdict.reason;
  if (!tolerance_is_sound(verdict.tolerance_ppm)) return Reason::kNotOptedIn;
  const bool send = message.collective.function == kSend;
  if (send && !policy.allows_sends()) return Reason::kNotReduction;
  if (const Reason reason = reason_of(message.collective); reason != Reason::kLossy) return reason;
  if (send && !carries_data_only(message)) return Reason::kNotSimple;
  if (!has_size(message.collective.bytes, message.ranks, message.edges)) return Reason::kUnknownSize;
  if (message.collective.captured) return Reason::kCaptured;
  if (message.collective.ordinal < policy.warm_up()) return Reason::kWarmUp;
  return Reason::kLossy;
}

}  // namespace

const char* name_of(Reason reason) {
  switch (reason) {
    case Reason::kLossy: return "lossy";
    case Reason::kNotOptedIn: return "not-opted-in";
    case Reason::kUnidentified: return "unidentified";
    case Reason::kForeignProcess: return "foreign-process";
    case Reason::kNotReduction: return "not-reduction";
    case Reason::kNotFloat: return "not-float";
    case Reason::kNotRing: return "not-ring";
    case Reason::kNotSimple: return "not-simple";
    case Reason::kUnknownSize: return "unknown-size";
    case Reason::kCaptured: return "captured";
    case Reason::kWarmUp: return "warm-up";
    case Reason::kCritical: return "critical";
    case Reason::kStepsDiffer: return "steps-differ";
    case Reason::kGatherPhase: return "gather-phase";
    case Reason::kSmallMessage: return "small-message";
    case Reason::kSharedChannel: return "shared-channel";
    case Reason::kNoSecondGuard: return "no-second-guard";
    case Reason::kGuardDisagrees: return "guard-disagrees";
    case Reason::kChannelReliable: return "channel-reliable";
    case Reason::kCount: break;
  }
  return "unknown";
}

Result<LossPolicy> LossPolicy::create(const LossSettings& settings) {
  for (const std::uint32_t ppm : {settings.tolerance_ppm, settings.critical_tolerance_ppm.value_or(0)}) {
    if (ppm > kMaxTolerancePpm) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("CLUSTAR_LOSS_TOLERANCE and CLUSTAR_LOSS_CRITICAL_TOLERANCE are fractions from 0 to 0.1, "
                              "not {}",
                              ppm / 1e6));
    }
  }
  if (!(settings.critical_drop > 0 && settings.critical_drop <= 1)) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("CLUSTAR_LOSS_CRITICAL_DROP is a fraction above 0 and up to 1, not {}", settings.critical_drop));
  }
  auto rules = parse_loss_rules(settings.rules, settings.tolerance_ppm);
  if (!rules) return tl::unexpected(rules.error());
  const auto classes = parse_traffic_classes(settings.traffic_classes, settings.tolerance_ppm);
  if (!classes) return tl::unexpected(classes.error());
  rules->insert(rules->end(), classes->begin(), classes->end());

  LossPolicy policy;
  if (std::any_of(rules->begin(), rules->end(), [](const LossRule& rule) { return rule.tolerance_ppm > 0; })) {
    policy.rules_ = std::move(*rules);
  }
  policy.critical_ppm_ = settings.critical_tolerance_ppm.value_or(settings.tolerance_ppm);
  policy.critical_drop_ = settings.critical_drop;
  policy.warm_up_ = settings.warmup;
  policy.trusts_profiler_alone_ = settings.trust_profiler;
  return policy;
}

std::uint32_t LossPolicy::channel_tolerance_ppm(const CommFacts& comm) const {
  std::uint32_t most = 0;
  for (const int function : {kAllReduce, kReduceScatter, kSend}) {
    for (const LossRule& rule : rules_) {
      if (!fits_function(rule, function) || !fits_comm(rule, comm)) continue;
      most = std::max(most, rule.tolerance_ppm);
      if (rule.bytes == decltype(rule.bytes){}) break;  // later rules never get a collective of this function
    }
  }
  return most;
}

CollectiveVerdict LossPolicy::judge(const CommFacts& comm, const CollectiveFacts& collective, bool critical) const {
  const LossRule* const rule = match(comm, collective);
  const bool send = collective.function == kSend &&
                    std::any_of(rules_.begin(), rules_.end(),
                                [&](const LossRule& each) { return allows_send(each) && fits_comm(each, comm); });
  // A function that no rule names, or a size that is not known, still belongs to a communicator that opted in.
  const bool by_comm = (!is_reduction(collective.function) && !send) || collective.bytes == 0;
  const bool opted_in = by_comm ? channel_tolerance_ppm(comm) > 0 : rule != nullptr && rule->tolerance_ppm > 0;
  if (!opted_in) return {Reason::kNotOptedIn};
  if (collective.function == kSend && !send) return {Reason::kNotReduction};
  if (const Reason reason = reason_of(collective); reason != Reason::kLossy) return {reason};
  if (comm.nodes == 0 || comm.nodes > comm.ranks || !has_size(collective.bytes, comm.ranks, comm.edges()))
    return {Reason::kUnknownSize};
  if (collective.captured) return {Reason::kCaptured};
  if (collective.ordinal < warm_up_) return {Reason::kWarmUp};
  const std::uint32_t ppm = critical ? std::min(rule->tolerance_ppm, critical_ppm_) : rule->tolerance_ppm;
  if (ppm == 0) return {Reason::kCritical};
  return {Reason::kLossy, ppm};
}

bool LossPolicy::allows_sends() const { return std::any_of(rules_.begin(), rules_.end(), allows_send); }

const LossRule* LossPolicy::match(const CommFacts& comm, const CollectiveFacts& collective) const {
  for (const LossRule& rule : rules_) {
    if (fits_function(rule, collective.function) && rule.bytes.contains(collective.bytes) && fits_comm(rule, comm)) {
      return &rule;
    }
  }
  return nullptr;
}

Decision decide(const LossPolicy& policy, const MessageFacts& message, const ChannelFacts& channel,
                const NetGuard& guard) {
  if (const Reason reason = collective_reason(policy, message); reason != Reason::kLossy) return {reason, {}};
  const CollectiveFacts& collective = message.collective;
  const bool send = collective.function == kSend;
  // A send carries one rank's own contribution, which is stage 0.
  const auto phase = send && message.transfer < message.transfers
                         ? std::optional(Phase{.reducing = true})
                         : phase_of(collective.function, message.ranks, message.transfers, message.transfer);
  if (!phase || !message.in_order) return {Reason::kStepsDiffer, {}};
  if (!phase->reducing) return {Reason::kGatherPhase, {}};
  if (message.size < transport::FlowTag::kMinTolerantBytes) return {Reason::kSmallMessage, {}};
  if (channel.knows_comm && channel.comm_id != message.comm_id) return {Reason::kSharedChannel, {}};
  if (const Reason reason = guard_reason(guard, collective.function, policy.trusts_profiler_alone());
      reason != Reason::kLossy) {
    return {reason, {}};
  }
  if (channel.tolerance_ppm < message.verdict.tolerance_ppm) return {Reason::kChannelReliable, {}};
  return {Reason::kLossy,
          {.communicator = message.comm_id,
           .collective = message.ledger_number,
           .collective_bytes = collective.bytes,
           .ranks = static_cast<std::uint16_t>(message.ranks),
           .edges = static_cast<std::uint16_t>(send ? 1 : message.edges),
           .stage = static_cast<std::uint16_t>(phase->stage),
           .tolerance_ppm = message.verdict.tolerance_ppm,
           .exchange = send}};
}

}  // namespace clustar::nccl_plugin
