// What the plugin must say of a message, from the loss contract (architecture guide, points 1 to 3) and the model's
// truth. Written from the contract's text, and shares nothing with the plugin's policy but the names of its reasons.
#pragma once

#include <bitset>
#include <cstdint>
#include <functional>
#include <string>

#include "nccl_plugin/loss/policy.h"
#include "nccl_plugin/loss/settings.h"
#include "tests/plugin/fake_nccl/core.h"
#include "transport/api/flow_tag.h"

namespace clustar::tests::fake_nccl {

using Reasons = std::bitset<nccl_plugin::kReasons>;

// Settings, and what they mean: which p, in parts per million, a task may ask for; 0 = not opted in.
struct PolicyTruth {
  std::string name;
  LossSettings config;
  std::function<std::uint32_t(const Communicator&, const Task&)> tolerance_ppm;
  std::uint32_t critical_ppm = nccl_plugin::kMaxTolerancePpm;  // the most while the model is in a critical phase
  bool sends = false;  // the user's word that sends may lose; otherwise tolerance_ppm is not asked for any
};
const std::vector<PolicyTruth>& policies();

// Of the connection and the second guard when a message is sent.
struct WireTruth {
  nccl_plugin::ChannelFacts channel;
  bool has_guard = false;
  bool guard_spoke = false;  // setNetAttr came on this thread, for this connection's communicator
  nccl_abi::NetAttr guard{};
};

struct Expectation {
  bool identified = false;  // must be
  bool unsure = false;      // may be, or not: after events were lost on purpose; never wrongly
  Reasons against;          // everything that forbids loss; none: it must be allowed
  transport::MessageIdentity identity;
  transport::LossTerms terms;  // but for the collective's number in the ledger
  bool has_phase = false;
  bool any_reason = false;        // of those against it, not the first
  bool may_seem_flagged = false;  // a send whose last part is shorter than the others: LL may make such transfers
};

Expectation expect(const PolicyTruth& policy, const Communicator& comm, int profiler_version, const TaskRun& run,
                   std::uint8_t channel, std::uint32_t transfer, const Transfer& truth, const WireTruth& wire,
                   bool critical = false);

}  // namespace clustar::tests::fake_nccl
