#include "tests/plugin/fake_nccl/oracle.h"

#include <algorithm>
#include <string_view>

#include "nccl_plugin/loss/settings.h"

namespace clustar::tests::fake_nccl {
namespace {

using namespace nccl_abi;
using nccl_plugin::Reason;

bool reduces(const Task& task) { return task.function == kAllReduce || task.function == kReduceScatter; }
bool is_send(const Task& task) { return task.function == kSend; }
// Whether a rule may name such a task.
bool can_lose(const PolicyTruth& policy, const Task& task) { return reduces(task) || (is_send(task) && policy.sends); }
std::uint32_t tolerance_of(const PolicyTruth& policy, const Communicator& comm, const Task& task) {
  return can_lose(policy, task) ? policy.tolerance_ppm(comm, task) : 0;
}

LossSettings with(void (*change)(LossSettings&)) {
  LossSettings config;
  config.warmup = 3;
  change(config);
  return config;
}

std::vector<PolicyTruth> make_policies() {
  std::vector<PolicyTruth> all;
  all.push_back({"off", with([](LossSettings&) {}), [](const Communicator&, const Task&) { return 0u; }});
  all.push_back({"class 160-167 and 200", with([](LossSettings& c) {
                   c.traffic_classes = "160-167,200";
                   c.tolerance_ppm = 20'000;
                 }),
                 [](const Communicator& comm, const Task&) {
                   const int tc = comm.traffic_class;
                   return (tc >= 160 && tc <= 167) || tc == 200 ? 20'000u : 0u;
                 }});
  all.push_back({"communicators dp*, from 1 MiB", with([](LossSettings& c) {
                   c.rules = "comm=dp*,bytes=1M-,p=0.03";
                   c.warmup = 0;
                   c.critical_tolerance_ppm = 0;
                 }),
                 [](const Communicator& comm, const Task& task) {
                   const bool named = std::string_view(comm.name).starts_with("dp");
                   return named && input_bytes(comm, task) >= (1u << 20) ? 30'000u : 0u;
                 },
                 0});
  all.push_back({"reduce-scatters of 3 to 9 ranks, p of its own", with([](LossSettings& c) {
                   c.rules = "func=reducescatter,ranks=3-9,p=0.1";
                   c.critical_tolerance_ppm = 5000;
                   c.warmup = 1;
                 }),
                 [](const Communicator& comm, const Task& task) {
                   return task.function == kReduceScatter && comm.ranks >= 3 && comm.ranks <= 9 ? 100'000u : 0u;
                 },
                 5000});
  all.push_back({"sends of up to 12 ranks, and all reductions", with([](LossSettings& c) {
                   c.rules = "ranks=-12,func=sendrecv,p=0.04; comm=*";
                   c.warmup = 1;
                 }),
                 [](const Communicator& comm, const Task& task) {
                   if (task.function == kSend) return comm.ranks <= 12 ? 40'000u : 0u;
                   return 10'000u;
                 },
                 10'000, true});
  all.push_back({"everything, profiler alone trusted", with([](LossSettings& c) {
                   c.rules = "comm=*";
                   c.trust_profiler = true;
                   c.warmup = 0;
                 }),
                 [](const Communicator&, const Task&) { return 10'000u; }, 10'000});
  return all;
}

// Whether some task of the communicator may lose: what no rule can name
// belongs to an opted-in communicator or not.
bool opts_in(const PolicyTruth& policy, const Communicator& comm) {
  Task task;
  task.datatype = datatype_named("ncclFloat32");
  for (const std::uint64_t count : {std::uint64_t{1}, std::uint64_t{1} << 40}) {
    task.count = count;
    for (const int function : {kAllReduce, kReduceScatter, kSend}) {
      task.function = function;
      if (tolerance_of(policy, comm, task) > 0) return true;
    }
  }
  return false;
}

// Points 1 and 2 of the contract, of the collective.
void judge_task(const PolicyTruth& policy, const Communicator& comm, int profiler_version, const TaskRun& run,
                Expectation& out) {
  const Task& task = run.task;
  const auto forbid = [&](bool condition, Reason reason) {
    if (condition) out.against.set(static_cast<std::size_t>(reason));
  };
  Task any_size = task;
  any_size.count = 1;
  // A rule for sends that fits no size of them leaves them as they are without.
  const bool may = can_lose(policy, task) && (reduces(task) || policy.tolerance_ppm(comm, any_size) > 0);
  forbid(may ? policy.tolerance_ppm(comm, task) == 0 : !opts_in(policy, comm), Reason::kNotOptedIn);
  forbid(!may, Reason::kNotReduction);
  forbid(!task.datatype.floating || !may, Reason::kNotFloat);
  forbid(!is_send(task) && (!task.is_collective() || task.algorithm != kRing), Reason::kNotRing);
  forbid(task.protocol != kSimple || (!task.is_collective() && !is_send(task)), Reason::kNotSimple);
  // That a send is LL only its sizes tell, and only of long transfers surely.
  out.any_reason = is_send(task) && task.protocol != kSimple;
  const std::uint64_t share = (input_bytes(comm, task) + comm.channels - 1) / comm.channels;
  const std::uint64_t part = (share + 4095) / 4096 * 4096;
  out.may_seem_flagged = is_send(task) && part > 0 && input_bytes(comm, task) % part != 0;
  forbid(input_bytes(comm, task) == 0, Reason::kUnknownSize);
  // v4 has no event that tells of the capture.
  forbid(profiler_version >= 5 ? task.captured : is_send(task), Reason::kCaptured);
  forbid(run.ordinal < policy.config.warmup, Reason::kWarmUp);
}

void judge_faults(const Faults& faults, const Task& task, int t, Expectation& out) {
  const auto is = [](Reason reason) { return static_cast<std::size_t>(reason); };
  if (faults.foreign_process) out.against.set(is(Reason::kForeignProcess));
  const bool lost =
      faults.null_task || faults.forged_task != nullptr || t == faults.lose_step_event || t == faults.no_phandle;
  if (lost) out.against.set(is(Reason::kUnidentified));
  const bool misnumbered = (faults.skip_step >= 0 && t >= faults.skip_step) ||
                           (faults.repeat_step >= 0 && t >= faults.repeat_step) ||
                           (faults.extra_transfers != 0 && !is_send(task));
  if (misnumbered) out.against.set(is(Reason::kStepsDiffer));
  out.identified = !lost && !faults.foreign_process && !misnumbered;
  // A step that was never announced leaves a gap behind which order cannot be told.
  const bool behind_gap =
      (faults.lose_step_event >= 0 && t > faults.lose_step_event) || (faults.no_phandle >= 0 && t > faults.no_phandle);
  // How many transfers a send has is its own affair; too many look like LL.
  out.unsure = behind_gap || misnumbered || faults.extra_transfers != 0;
}

void judge_wire(const Communicator& comm, const Task& task, std::uint32_t tolerance_ppm, bool trusts,
                const WireTruth& wire, Expectation& out) {
  const auto forbid = [&](bool condition, Reason reason) {
    if (condition) out.against.set(static_cast<std::size_t>(reason));
  };
  forbid(wire.channel.knows_comm && wire.channel.comm_id != comm.id, Reason::kSharedChannel);
  // Trust is for NCCL that has no second guard; one that is silent has not agreed.
  forbid(wire.has_guard ? !wire.guard_spoke : !trusts, Reason::kNoSecondGuard);
  // NCCL leaves algorithm and protocol as they were when it sends.
  const bool agrees =
      wire.guard.op == 1u << task.function &&
      (is_send(task) || (wire.guard.algo == 1u << task.algorithm && wire.guard.proto == 1u << task.protocol));
  forbid(wire.has_guard && wire.guard_spoke && !agrees, Reason::kGuardDisagrees);
  forbid(wire.channel.tolerance_ppm == 0 || wire.channel.tolerance_ppm < tolerance_ppm, Reason::kChannelReliable);
}

}  // namespace

const std::vector<PolicyTruth>& policies() {
  static const std::vector<PolicyTruth> all = make_policies();
  return all;
}

Expectation expect(const PolicyTruth& policy, const Communicator& comm, int profiler_version, const TaskRun& run,
                   std::uint8_t channel, std::uint32_t transfer, const Transfer& truth, const WireTruth& wire,
                   bool critical) {
  Expectation out;
  const Task& task = run.task;
  judge_task(policy, comm, profiler_version, run, out);
  judge_faults(run.faults, task, static_cast<int>(transfer), out);
  const auto forbid = [&](bool condition, Reason reason) {
    if (condition) out.against.set(static_cast<std::size_t>(reason));
  };
  out.has_phase =
      task.is_collective() && task.algorithm == kRing && task.protocol == kSimple && truth.content != Content::kOther;
  forbid(truth.content == Content::kOther && task.is_collective() && reduces(task), Reason::kStepsDiffer);
  forbid(truth.content != Content::kPartialSum && !is_send(task), Reason::kGatherPhase);
  forbid(truth.bytes < transport::FlowTag::kMinTolerantBytes, Reason::kSmallMessage);
  std::uint32_t p = tolerance_of(policy, comm, task);
  if (critical) p = std::min(p, policy.critical_ppm);
  forbid(critical && policy.critical_ppm == 0, Reason::kCritical);
  judge_wire(comm, task, p, policy.config.trust_profiler, wire, out);

  out.identity.known = true;
  out.identity.communicator = comm.id;
  out.identity.local_number = !task.is_collective() || (task.captured && profiler_version >= 5);
  if (is_send(task)) out.identity.sender = static_cast<std::uint16_t>(comm.rank);
  out.identity.number = run.number;  // of a send too; unless local
  out.identity.total_bytes = input_bytes(comm, task);
  out.identity.transfer = transfer;
  out.identity.channel = channel;
  out.identity.function = static_cast<std::uint8_t>(task.function);
  out.identity.datatype = static_cast<std::uint8_t>(datatype_named(event_datatype(task)).number);
  if (task.is_collective()) {
    out.identity.algorithm = static_cast<std::uint8_t>(task.algorithm);
    out.identity.protocol = static_cast<std::uint8_t>(task.protocol);
  }
  out.terms.communicator = comm.id;
  out.terms.collective_bytes = input_bytes(comm, task);
  out.terms.ranks = static_cast<std::uint16_t>(comm.ranks);
  out.terms.edges = static_cast<std::uint16_t>(is_send(task) ? 1 : comm.ranks);
  out.terms.exchange = is_send(task);
  out.terms.stage = static_cast<std::uint16_t>(truth.stage);
  out.terms.tolerance_ppm = p;
  return out;
}

}  // namespace clustar::tests::fake_nccl
