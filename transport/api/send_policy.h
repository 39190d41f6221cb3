// Who sends first at a NIC, and when. Each NIC has one policy, which every transport asks by way of its FlowTable; so a
// scheduler is written once and reaches every byte.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

#include "transport/api/flow_tag.h"
#include "transport/base/time.h"

namespace clustar::transport {

// What of one coflow goes to one peer in one class: the unit that a policy ranks.
struct FlowKey {
  std::uint64_t coflow = 0;        // 0 = unidentified
  std::uint32_t peer = 0;          // host at the other end, as the NIC numbers it: alike for all its connections
  std::uint32_t job = 0;           // ChannelOptions::job
  std::uint8_t traffic_class = 0;  // NCCL's trafficClass, 0 .. 255; 0 where it is undefined

  bool operator==(const FlowKey&) const = default;
};

struct Flow {
  FlowKey key;
  MessageIdentity identity{};      // of its first message; all of a coflow have function, number and totals in common
  std::uint64_t coflow_bytes = 0;  // of the coflow on this host's edge, to all peers; 0 = unknown
  std::uint64_t coflow_sent = 0;   // of it by this NIC so far: what a scheduler calls attained
  std::uint64_t sent = 0;          // by this flow
  std::uint64_t queued = 0;        // of this flow: was given to the NIC and waits

  // Of the whole coflow, still to be sent by this NIC; what waits, where its size is not known.
  std::uint64_t remaining() const {
    return std::max(queued, coflow_bytes > coflow_sent ? coflow_bytes - coflow_sent : 0);
  }
};

// All calls with the NIC's lock held. A policy keeps what it knows of other NICs and hosts by itself.
class SendPolicy {
 public:
  struct Turn {
    std::uint64_t rank = 0;  // the smaller goes first
    // Flows of equal rank share the line by these weights, bytes in proportion; 0: they go by arrival, before those
    // that have one.
    std::uint32_t share = 0;
    // What the far end gives credit by, 0 .. 15: 0 goes first. Only MLT carries it.
    std::uint8_t level = 0;
    TimePoint not_before = TimePoint::min();  // nothing of the flow leaves earlier: pacing

    bool operator==(const Turn&) const = default;
  };

  virtual ~SendPolicy() = default;

  // Asked when a flow gets something to send, after each part that was sent, when not_before has come and when
  // version() has changed. To pace forever (TimePoint::max()) is not allowed.
  virtual Turn turn(const Flow& flow, TimePoint now) = 0;

  // `flow` has the sums with these bytes in them.
  virtual void on_queued(const Flow& /*flow*/, std::uint64_t /*bytes*/, TimePoint /*now*/) {}
  virtual void on_sent(const Flow& /*flow*/, std::uint64_t /*bytes*/, TimePoint /*now*/) {}
  // A message has left, but for `unsent` bytes that never will: its connection was closed.
  virtual void on_finished(const Flow& /*flow*/, std::uint64_t /*unsent*/, TimePoint /*now*/) {}

  // False: all turns are as Turn{}, and turn() is not asked. True: some go before others, so that the NIC keeps little
  // where nothing overtakes it any more (send_ahead_bytes()). The same as long as the policy lives.
  virtual bool orders() const { return true; }
  // False: nor is it told of anything, and no flow is kept: for each message that costs as much as its place in the
  // queue. Only where orders() is false. The same as long as the policy lives.
  virtual bool hears() const { return true; }
  // Another one: turns of flows that wait have changed for reasons of the policy's own.
  virtual std::uint64_t version() const { return 0; }
};

// Makes the policy of each NIC. One call at a time; outlives what it made.
class SendPolicies {
 public:
  struct Nic {
    std::string name;
    std::uint64_t bytes_per_second = 0;  // 0 = unknown
  };

  virtual ~SendPolicies() = default;
  virtual std::unique_ptr<SendPolicy> make(const Nic& nic) = 0;
};

// In order of arrival.
class FifoPolicy final : public SendPolicy {
 public:
  Turn turn(const Flow&, TimePoint) override { return {}; }
  bool orders() const override { return false; }
  bool hears() const override { return false; }
};

// Strictly by NCCL's trafficClass, the larger first; by arrival within one. A class that is never idle keeps those
// below it from sending.
class ClassPolicy final : public SendPolicy {
 public:
  Turn turn(const Flow& flow, TimePoint) override {
    const auto behind = static_cast<std::uint8_t>(0xff - flow.key.traffic_class);
    return {.rank = behind, .level = static_cast<std::uint8_t>(behind / 16)};
  }
};

}  // namespace clustar::transport
