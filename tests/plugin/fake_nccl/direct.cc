#include "tests/plugin/fake_nccl/direct.h"

#include <fmt/format.h>

#include <algorithm>

#include "nccl_plugin/abi/profiler.h"
#include "nccl_plugin/loss/phase.h"

namespace clustar::tests::fake_nccl {

using nccl_plugin::MessageQuery;
using nccl_plugin::Reason;

namespace {

nccl_plugin::CommFacts facts_of(const Communicator& comm) {
  return {comm.id, comm.name, comm.ranks, comm.nodes, comm.rank, comm.traffic_class};
}

Reason first_of(const Reasons& reasons) {
  for (std::size_t i = 0; i < reasons.size(); ++i) {
    if (reasons.test(i)) return static_cast<Reason>(i);
  }
  return Reason::kLossy;
}

std::string describe_faults(const Faults& faults) {
  if (!faults.any()) return "";
  return fmt::format(" (foreign {} null {} forged {} lost {} skip {} repeat {} no phandle {} extra {})",
                     faults.foreign_process, faults.null_task, faults.forged_task != nullptr, faults.lose_step_event,
                     faults.skip_step, faults.repeat_step, faults.no_phandle, faults.extra_transfers);
}

int peer_of(const Task& task) { return task.function == nccl_abi::kSend ? task.peer : -1; }

std::string names(const Reasons& reasons) {
  std::string text;
  for (std::size_t i = 0; i < reasons.size(); ++i) {
    if (reasons.test(i)) text += std::string(" ") + nccl_plugin::name_of(static_cast<Reason>(i));
  }
  return text.empty() ? " none" : text;
}

// The second guard contradicts the first, whichever is wrong, or speaks for another communicator.
void spoil(WireTruth& wire, nccl_plugin::NetGuard& guard, std::uint64_t how) {
  switch (how) {
    case 0: wire.guard.op = guard.op = 1u << nccl_abi::kReduce; break;
    case 1: wire.guard.algo = guard.algo = 1u << nccl_abi::kTree; break;
    case 2: wire.guard.proto = guard.proto = 1u << nccl_abi::kLL; break;
    case 3: wire.guard.proto = guard.proto = 1u << nccl_abi::kSimple | 1u << nccl_abi::kLL; break;
    case 4:
      wire.guard_spoke = false;
      guard.op = guard.algo = guard.proto = nccl_abi::kNetAttrUndefined;
      break;
    default: wire.guard_spoke = guard.same_comm = false; break;
  }
}

bool same_terms(const transport::LossTerms& a, const transport::LossTerms& b) {
  return a.communicator == b.communicator && a.collective_bytes == b.collective_bytes && a.ranks == b.ranks &&
         a.edges == b.edges && a.stage == b.stage && a.tolerance_ppm == b.tolerance_ppm && a.exchange == b.exchange;
}

}  // namespace

DirectPort::DirectPort(nccl_plugin::Profiler& profiler, std::shared_ptr<const nccl_plugin::LossPolicy> policy,
                       const Communicator& comm, int version)
    : profiler_(profiler), version_(version) {
  nccl_plugin::Profiler::Opening opening;
  opening.comm = facts_of(comm);
  opening.policy = std::move(policy);
  opening.version = version;
  context_ = profiler_.open(opening, &mask_).value();
}
DirectPort::~DirectPort() { profiler_.close(context_); }

void DirectPort::start(void** handle, const Event& event) {
  Event versioned = event;
  versioned.version = version_;
  // Under PXN the context is another process's pointer.
  profiler_.start(event.foreign ? &versioned : context_, handle, versioned);
}
void DirectPort::stop(void* handle) { profiler_.stop(handle); }
void DirectPort::record(void* handle, int state) {
  const nccl_abi::EventStateArgs args{};
  profiler_.record(handle, state, &args);
}

void Tally::fail(const std::string& what) {
  ++failures;
  if (first_failures.size() < 5) first_failures.push_back(what);
}

CheckingWire::CheckingWire(const Setup& setup, Tally& tally, Rng& rng) : setup_(setup), tally_(tally), rng_(rng) {
  wire_.channel = setup.channel;
  wire_.has_guard = setup.has_guard;
  wire_.guard.op = wire_.guard.algo = wire_.guard.proto = nccl_abi::kNetAttrUndefined;
}

void CheckingWire::set_net_attr(const nccl_abi::NetAttr& attr) {
  wire_.guard = attr;
  wire_.guard_spoke = true;
}

bool CheckingWire::test(const ProxyOp&) { return rng_.below(4) != 0; }

std::string CheckingWire::describe(const ProxyOp& op) const {
  const Task& task = op.run->task;
  return fmt::format(
      "policy '{}', comm '{}': {} {} x {} {}/{}{}, n {} nodes {}, number {}, channel {}, t {} of {}, {} bytes{}",
      setup_.truth->name, setup_.comm.name, function_name(task.function), task.count, task.datatype.name,
      algorithm_name(task.algorithm), protocol_name(task.protocol), task.captured ? " captured" : "", setup_.comm.ranks,
      setup_.comm.nodes, op.run->number, op.plan->channel, transfer_, op.plan->transfers.size(),
      op.transfer(transfer_).bytes, describe_faults(op.run->faults));
}

bool CheckingWire::isend(const ProxyOp& op, std::uint32_t transfer, void* phandle) {
  transfer_ = transfer;
  const Transfer& truth = op.transfer(transfer);
  const auto callback = setup_.answers ? profiler_callback : silent_callback;
  nccl_plugin::NetGuard guard{wire_.has_guard, wire_.guard_spoke, wire_.guard.op, wire_.guard.algo, wire_.guard.proto};
  WireTruth wire = wire_;
  if (wire.has_guard && rng_.below(100) < setup_.wrong_guard_percent) {
    spoil(wire, guard, rng_.below(6));
  }
  const nccl_plugin::MessageFlow flow =
      nccl_plugin::flow_of(*setup_.policy, callback, phandle, setup_.channel, guard, truth.bytes, 0);
  // A busy plugin asks again for the same transfer; the check is of the last answer.
  if (rng_.below(100) < setup_.busy_percent) return false;
  MessageQuery query;
  void* event = nullptr;
  if (phandle != nullptr) callback(&event, nccl_abi::kProfilerStart, phandle, nccl_plugin::kNetEventId, &query);
  Expectation expected = expect(*setup_.truth, setup_.comm, setup_.profiler_version, *op.run, op.plan->channel,
                                transfer, truth, wire, setup_.critical);
  if (!setup_.answers) expected.identified = false;
  if (!setup_.answers) expected.against.set(static_cast<std::size_t>(Reason::kUnidentified));
  if (setup_.pools_may_be_short) expected.unsure = true;
  ++tally_.messages;
  if (truth.bytes == 0) ++tally_.empty;
  if (flow.tag.identity.known != query.identity.known || !(flow.tag.identity == query.identity)) {
    tally_.fail(describe(op) + ": the same question had two answers");
  }
  check_identity(op, expected, query, truth);
  check_decision(op, expected, flow);
  return true;
}

void CheckingWire::check_identity(const ProxyOp& op, const Expectation& expected, const MessageQuery& query,
                                  const Transfer& truth) {
  const bool must = expected.identified && !expected.unsure;
  if (must) ++tally_.should_be_identified;
  if (!query.identity.known) {
    if (must) tally_.fail(describe(op) + ": not identified");
    return;
  }
  ++tally_.identified;
  const Faults& faults = op.run->faults;
  if (faults.foreign_process || faults.null_task || faults.forged_task != nullptr || !setup_.answers) {
    tally_.fail(describe(op) + ": identified without a way to its collective");
    return;
  }
  transport::MessageIdentity got = query.identity;
  if (op.run->ambiguous && op.run->task.is_collective()) got.local_number = expected.identity.local_number;
  if (query.identity.local_number) check_number(op, query.identity);
  const bool send = op.run->task.function == nccl_abi::kSend;  // its number is not the plugin's choice
  if (!send && (got.local_number || query.identity.local_number)) got.number = expected.identity.number;
  // A step that was misnumbered on purpose is told as it was.
  if (faults.skip_step >= 0 || faults.repeat_step >= 0) got.transfer = expected.identity.transfer;
  if (!(got == expected.identity)) {
    tally_.fail(
        fmt::format("{}: identified as comm {:x} number {}{} bytes {} t {} channel {} function {} type {} {}/{}",
                    describe(op), got.communicator, got.number, got.local_number ? " (local)" : "", got.total_bytes,
                    got.transfer, got.channel, got.function, got.datatype, got.algorithm, got.protocol));
  }
  if (!must || !expected.has_phase) return;
  ++tally_.phases;
  tally_.ring_sizes.set(setup_.comm.ranks);
  if (setup_.comm.nodes * 2 == setup_.comm.ranks) tally_.paired_sizes.set(setup_.comm.ranks);
  tally_.most_loops = std::max(tally_.most_loops, truth.loop + 1);
  tally_.most_channels = std::max(tally_.most_channels, op.plan->channel + 1u);
  const auto phase =
      nccl_plugin::phase_of(op.run->task.function, query.facts.ranks, query.facts.transfers, query.facts.transfer);
  const nccl_plugin::Phase want{truth.content == Content::kPartialSum, truth.stage, truth.loop, truth.slice};
  if (!phase || !(*phase == want)) {
    tally_.fail(fmt::format("{}: phase {} stage {} loop {} slice {}", describe(op),
                            phase ? (phase->reducing ? "reduce" : "gather") : "unknown", phase ? phase->stage : 0,
                            phase ? phase->loop : 0, phase ? phase->slice : 0));
  }
}

void CheckingWire::check_decision(const ProxyOp& op, const Expectation& expected,
                                  const nccl_plugin::MessageFlow& flow) {
  ++tally_.reasons[static_cast<std::size_t>(flow.reason)];
  const bool lossy = flow.reason == Reason::kLossy;
  if (lossy != (flow.tag.loss.tolerance_ppm > 0))
    tally_.fail(describe(op) + ": reason and terms contradict each other");
  if (lossy) {
    ++tally_.lossy;
    if (flow.tag.loss.exchange) ++tally_.lossy_sends;
    if (flow.tag.loss.exchange && flow.tag.receiver != op.run->task.peer) tally_.fail(describe(op) + ": receiver");
    Reasons against = expected.against;
    if (op.run->ambiguous) against.reset(static_cast<std::size_t>(Reason::kWarmUp));
    if (against.any()) {
      tally_.fail(describe(op) + ": lossy against the contract:" + names(expected.against));
      return;
    }
    if (!same_terms(flow.tag.loss, expected.terms)) {
      const transport::LossTerms& got = flow.tag.loss;
      tally_.fail(fmt::format("{}: terms comm {:x} S {} n {} E {} k {} p {}", describe(op), got.communicator,
                              got.collective_bytes, got.ranks, got.edges, got.stage, got.tolerance_ppm));
    }
    check_ledger_number(op, flow.tag.loss.collective);
    return;
  }
  if (expected.may_seem_flagged && flow.reason == Reason::kNotSimple) return;
  if (expected.unsure || op.run->ambiguous) {
    Reasons allowed = expected.against;
    allowed.set(static_cast<std::size_t>(Reason::kUnidentified));
    allowed.set(static_cast<std::size_t>(Reason::kStepsDiffer));
    if (op.run->faults.extra_transfers != 0) allowed.set(static_cast<std::size_t>(Reason::kNotSimple));
    if (op.run->ambiguous) {
      allowed.set(static_cast<std::size_t>(Reason::kCaptured));
      allowed.set(static_cast<std::size_t>(Reason::kWarmUp));
    }
    if (!allowed.test(static_cast<std::size_t>(flow.reason))) {
      tally_.fail(
          fmt::format("{}: reliable for '{}', but true is:{}", describe(op), name_of(flow.reason), names(allowed)));
    }
    return;
  }
  const auto applies = [&](Reason reason) { return expected.against.test(static_cast<std::size_t>(reason)); };
  // What is not identified says nothing of its collective.
  const bool first = flow.reason == first_of(expected.against) || !expected.identified || expected.any_reason;
  if (!applies(flow.reason) || !first) {
    tally_.fail(fmt::format("{}: reliable for '{}', but true is:{}", describe(op), name_of(flow.reason),
                            names(expected.against)));
  }
}

void CheckingWire::check_number(const ProxyOp& op, const transport::MessageIdentity& identity) {
  const std::uint64_t launch = op.run->serial;
  const Number key{identity.function, peer_of(op.run->task), identity.number};
  const bool fresh = local_.try_emplace(key, launch).first->second == launch;
  const bool alike = local_of_.try_emplace(launch, key).first->second == key;
  if (!fresh || !alike) tally_.fail(describe(op) + ": the local number is another launch's, or two for one launch");
}

void CheckingWire::check_ledger_number(const ProxyOp& op, std::uint32_t number) {
  const std::uint64_t launch = op.run->serial;
  const Number key{0, peer_of(op.run->task), number};
  const bool fresh = ledger_.try_emplace(key, launch).first->second == launch;
  const bool alike = ledger_of_.try_emplace(launch, key).first->second == key;
  if (!fresh || !alike) tally_.fail(describe(op) + ": the ledger's number is another launch's, or two for one launch");
}

}  // namespace clustar::tests::fake_nccl
