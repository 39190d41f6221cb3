// Where loss is allowed: the loss contract (architecture guide, points 1 to 3) as one pure table. Everything that is
// not known to be safe is reliable, and each message that stays reliable has one reason, the first that applies.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "nccl_plugin/loss/comm_registry.h"
#include "nccl_plugin/loss/settings.h"
#include "transport/api/flow_tag.h"
#include "transport/base/result.h"

namespace clustar::nccl_plugin {

inline constexpr std::uint32_t kMaxTolerancePpm = 100'000;  // the ceiling of p: 10 %

enum class Reason : std::uint8_t {
  kLossy,           // none: loss is allowed
  kNotOptedIn,      // no trafficClass, no rule
  kUnidentified,    // no profiler event leads from the message to its collective
  kForeignProcess,  // PXN: the collective is another process's
  kNotReduction,    // neither all-reduce nor reduce-scatter; nor a send, where no rule has func=sendrecv
  kNotFloat,
  kNotRing,
  kNotSimple,    // LL or LL128: flags travel among the data; of a send, as its sizes tell
  kUnknownSize,  // ranks, nodes or bytes of the collective are not known
  kCaptured,     // replay of a captured graph: its number is not alike on all ranks (NCCL profiler.cc, StartTaskEvents)
  kWarmUp,
  kCritical,     // loss_critical_tolerance leaves nothing
  kStepsDiffer,  // the operation's transfers do not fit the ring formula, or did not come in order
  kGatherPhase,
  kSmallMessage,     // below FlowTag::kMinTolerantBytes
  kSharedChannel,    // a split communicator on its parent's connections
  kNoSecondGuard,    // NCCL's net API has no setNetAttr (below v11), or it said nothing yet
  kGuardDisagrees,   // setNetAttr names another function, algorithm or protocol than the profiler
  kChannelReliable,  // the connection was made without opt-in
  kCount
};
inline constexpr std::size_t kReasons = static_cast<std::size_t>(Reason::kCount);
// For logs and tools: "gather-phase". Never null.
const char* name_of(Reason reason);

struct LossRule {
  template <class T>
  struct Range {
    T low = 0;
    T high = std::numeric_limits<T>::max();
    bool contains(T value) const { return low <= value && value <= high; }
    bool operator==(const Range&) const = default;
  };
  std::string comm = "*";  // fnmatch-like: * and ?; an unnamed communicator is ""
  Range<std::uint32_t> ranks;
  Range<std::uint64_t> bytes;  // S
  Range<int> traffic_class;    // an undefined class is in no range
  bool any_class = true;
  int function = -1;                // ncclFunc_t; -1 = all-reduce and reduce-scatter; kSendRecv = sends
  std::uint32_t tolerance_ppm = 0;  // 0: reliable, whatever later rules say

  bool operator==(const LossRule&) const = default;
};

// Of one collective, when it starts on this rank.
struct CollectiveFacts {
  int function = -1;
  int datatype = -1;  // ncclDataType_t
  int algorithm = -1;
  int protocol = -1;
  std::uint64_t bytes = 0;  // S, of one rank's input; of the send
  bool captured = false;    // by a CUDA graph
  // Before this one, opted in or not: all-reduces and reduce-scatters of the communicator; sends to the same rank.
  std::uint64_t ordinal = 0;
};

struct CollectiveVerdict {
  Reason reason = Reason::kNotOptedIn;
  std::uint32_t tolerance_ppm = 0;  // > 0 exactly when reason is kLossy
};

// What setNetAttr said last on this thread; masks as NCCL gives them.
struct NetGuard {
  bool has = false;        // the ABI has setNetAttr
  bool same_comm = false;  // and it spoke for the communicator whose connection is used
  std::uint32_t op = 0xffffffff;
  std::uint32_t algo = 0xffffffff;
  std::uint32_t proto = 0xffffffff;
};

class LossPolicy {
 public:
  LossPolicy() = default;  // nothing may be lost
  // Reads the loss_* settings. Error: names the setting, what is wrong and what is allowed.
  static Result<LossPolicy> create(const LossSettings& settings);

  // No rule that allows any loss: no communicator opts in.
  bool off() const { return rules_.empty(); }
  // The most that any collective of the communicator may ask for: the connection's ceiling. 0: not opted in.
  std::uint32_t channel_tolerance_ppm(const CommFacts& comm) const;
  // Latched when the collective starts, so that all its messages carry the same terms. `critical`: the model is in a
  // phase in which it needs its gradients (DBLP, arXiv 2605.01989), as the user told us.
  CollectiveVerdict judge(const CommFacts& comm, const CollectiveFacts& collective, bool critical) const;
  // Whether messages may be lost where NCCL gives no second guard.
  bool trusts_profiler_alone() const { return trusts_profiler_alone_; }
  double critical_drop() const { return critical_drop_; }
  std::uint64_t warm_up() const { return warm_up_; }
  // Some rule's word that sends may lose.
  bool allows_sends() const;
  // The first that fits counts.
  const std::vector<LossRule>& rules() const { return rules_; }

 private:
  const LossRule* match(const CommFacts& comm, const CollectiveFacts& collective) const;

  std::vector<LossRule> rules_;
  std::uint32_t critical_ppm_ = kMaxTolerancePpm;
  double critical_drop_ = 0.5;
  std::uint64_t warm_up_ = 0;
  bool trusts_profiler_alone_ = false;
};

// Of one message, when it is sent.
struct MessageFacts {
  CollectiveFacts collective;
  CollectiveVerdict verdict;                    // latched at the collective's start
  Reason unidentified = Reason::kUnidentified;  // why, when the collective is not known
  bool identified = false;
  std::uint64_t comm_id = 0;        // of the collective
  std::uint32_t ledger_number = 0;  // of the collective, or the exchange: LossTerms::collective
  std::uint32_t ranks = 0;
  std::uint32_t edges = 0;
  std::uint32_t transfers = 0;  // of the proxy operation
  std::uint32_t transfer = 0;   // t
  bool in_order = false;        // every transfer before t was seen
  std::uint32_t channels = 0;   // of a send: over how many it is spread; 0: not told
  int receiver = -1;            // of a send: the rank
  std::size_t size = 0;
};
struct ChannelFacts {
  std::uint64_t comm_id = 0;
  bool knows_comm = false;          // false below net v11, where comm_id means nothing
  std::uint32_t tolerance_ppm = 0;  // the connection's ceiling
};

struct Decision {
  Reason reason = Reason::kUnidentified;
  transport::LossTerms loss;  // of reason kLossy; otherwise all 0: reliable
};

// The only source of lossy decisions: it checks the whole contract again, whatever the verdict says.
Decision decide(const LossPolicy& policy, const MessageFacts& message, const ChannelFacts& channel,
                const NetGuard& guard);

}  // namespace clustar::nccl_plugin
