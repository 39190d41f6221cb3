// The order of sending at a NIC. Each NIC has one policy, which every transport asks through its FlowTable, so a
// scheduler is written once and reaches every byte.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>

#include "transport/api/flow_tag.h"
#include "transport/base/time.h"

namespace clustar::transport {

// The part of a coflow that goes to one peer in one class: the unit that a policy ranks.
struct FlowKey {
  std::uint64_t coflow = 0;        // 0 = unidentified
  std::uint32_t peer = 0;          // host at the other end: the NIC's number for it, equal for all its connections
  std::uint32_t job = 0;           // ChannelOptions::job
  std::uint8_t traffic_class = 0;  // NCCL's trafficClass, 0 .. 255; 0 where it is undefined
  bool small = false;  // of unidentified messages: those up to kSmall; nothing else tells mice from elephants
  Urgency urgency = Urgency::kGradient;  // alike in all messages of a coflow; tells unidentified ones apart

  static constexpr std::uint64_t kSmall = 64 * 1024;
  // Of a message of `message_bytes`.
  static FlowKey of(const FlowTag& tag, std::uint32_t peer, std::uint32_t job, std::uint64_t message_bytes) {
    return {tag.coflow, peer, job, tag.traffic_class, tag.coflow == 0 && message_bytes <= kSmall, tag.urgency};
  }

  bool operator==(const FlowKey&) const = default;
};

struct Flow {
  FlowKey key;
  std::uint32_t id = 0;        // the NIC's number for it: small; given out again when the flow is forgotten
  MessageIdentity identity{};  // of its first message; all messages of a coflow share function, number and totals
  Urgency urgency = Urgency::kGradient;  // of its first message
  std::uint64_t coflow_bytes = 0;        // size of the coflow on this host's edge, to all peers; 0 = unknown
  std::uint64_t coflow_sent = 0;         // bytes of the coflow that this NIC has sent (attained service)
  std::uint64_t sent = 0;                // by this flow, bytes
  std::uint64_t queued = 0;              // bytes of this flow that wait at the NIC

  // Bytes of the whole coflow that this NIC still has to send; if its size is unknown, those that wait.
  std::uint64_t remaining() const {
    return std::max(queued, coflow_bytes > coflow_sent ? coflow_bytes - coflow_sent : 0);
  }
};

// All calls hold the NIC's lock. A policy that knows about other NICs and hosts keeps that knowledge itself.
class SendPolicy {
 public:
  struct Turn {
    std::uint64_t rank = 0;  // the smaller goes first
    // Flows of equal rank share the line in proportion to these weights. 0: by arrival, before flows that have a
    // weight.
    std::uint32_t share = 0;
    // The order in which the receiver gives credit, 0 .. 15: 0 goes first; on TCP its DSCP.
    std::uint8_t level = 0;
    TimePoint not_before = TimePoint::min();  // pacing: nothing of the flow leaves earlier
    // Eighths: against flows of other hosts on the same link, how fast its window grows, where the transport has one
    // of its own (mlt). 8: as everybody's. 1 .. 16.
    std::uint8_t push = 8;

    bool operator==(const Turn&) const = default;
  };

  // Of flows of `rank` and behind nothing leaves before `until`.
  struct Gate {
    std::uint64_t rank = std::numeric_limits<std::uint64_t>::max();
    TimePoint until = TimePoint::max();
  };

  virtual ~SendPolicy() = default;

  // Called when a flow gets something to send, after each part that was sent, at not_before, and when version() has
  // changed. Pacing forever (TimePoint::max()) is not allowed.
  virtual Turn turn(const Flow& flow, TimePoint now) = 0;

  // The sums in `flow` include these bytes.
  virtual void on_queued(const Flow& /*flow*/, std::uint64_t /*bytes*/, TimePoint /*now*/) {}
  virtual void on_sent(const Flow& /*flow*/, std::uint64_t /*bytes*/, TimePoint /*now*/) {}
  // A message has left, except `unsent` bytes that never will, because its connection was closed.
  virtual void on_finished(const Flow& /*flow*/, std::uint64_t /*unsent*/, TimePoint /*now*/) {}

  // False: all turns equal Turn{}, and turn() is not called. True: some flows go before others, so the NIC keeps few
  // bytes where nothing can overtake them any more (send_ahead_bytes()). Constant.
  virtual bool orders() const { return true; }
  // False: no on_...() is called and no flow is kept, because per message that costs as much as its place in the queue.
  // Allowed only if orders() is false. Constant.
  virtual bool hears() const { return true; }
  // A new value means that turns of waiting flows have changed for reasons that only the policy knows.
  virtual std::uint64_t version() const { return 0; }
  // Flow::id of one whose turn is another for reasons that only the policy knows. Asked until there is none.
  virtual std::optional<std::uint32_t> changed(TimePoint /*now*/) { return std::nullopt; }
  // Asked before each part that is sent. A gate that stays shut is not allowed: `until` is a time at which it is asked
  // again.
  virtual Gate gate(TimePoint /*now*/) { return {}; }
  // How much more than the order's bound may be where nothing overtakes it any more.
  enum class RunAhead : std::uint8_t {
    kNo,    // what goes before may come any moment
    kFill,  // what the line takes until the sender looks again, so that it never stands still
    kFree,  // and longer chunks, which cost less: one flow at most waits, and nothing else came lately
  };
  virtual RunAhead run_ahead(TimePoint /*now*/) const { return RunAhead::kNo; }
};

// Makes the policy of each NIC. One call at a time; it outlives the policies.
class SendPolicies {
 public:
  struct Nic {
    std::string name;
    std::uint64_t bytes_per_second = 0;  // of the line; 0 = unknown
  };

  virtual ~SendPolicies() = default;
  virtual std::unique_ptr<SendPolicy> make(const Nic& nic) = 0;
};

// Sends in order of arrival.
class FifoPolicy final : public SendPolicy {
 public:
  Turn turn(const Flow&, TimePoint) override { return {}; }
  bool orders() const override { return false; }
  bool hears() const override { return false; }
};

// Strict priority by NCCL's trafficClass, larger first; by arrival within a class. A class that is never idle starves
// those below it.
class ClassPolicy final : public SendPolicy {
 public:
  Turn turn(const Flow& flow, TimePoint) override {
    const auto behind = static_cast<std::uint8_t>(0xff - flow.key.traffic_class);
    return {.rank = behind, .level = static_cast<std::uint8_t>(behind / 16)};
  }
};

}  // namespace clustar::transport
