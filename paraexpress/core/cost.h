// How long an all-reduce takes by a plan: an alpha-beta model over any forest.
//
// The way up has as many steps as the highest tree; step h holds all messages from members of height h - 1. Its time is
// that of the busiest NIC or uplink, plus a latency, plus what the busiest host spends on messages: sending hides
// behind the wire, and so does receiving, unless many messages come to one host at once. A message's headers take their
// time on the wire, where a narrow uplink carries those of a whole region. The way down is the same steps in reverse; a
// ring's, which goes onward, costs the same. Cut into C chunks per shard, it takes the lesser of two times:
// - chunks in turn: one goes through all steps, the others follow at the pace of the busiest NIC, uplink or host (a
//   chain, a server: each step leaves most of the network idle);
// - step by step: in each step the chunks hide each other's latency (a ring: each step keeps the network busy).
#pragma once

#include <cstdint>
#include <vector>

#include "paraexpress/core/forest.h"
#include "paraexpress/core/group.h"

namespace clustar::paraexpress {

struct Network {
  double nic_bytes_per_s = 5e9;  // each direction
  double latency_s = 20e-6;      // of one message, beside its bytes
  double message_s = 0;          // a host's work for one message that it sends or receives
  double message_bytes = 0;      // of a message's headers and control packets, on the wire beside its own bytes
  std::uint64_t least_chunk_bytes = 16 << 10;
  std::uint64_t most_chunk_bytes = 4 << 20;
  std::vector<double> lag_s{};  // by rank: by how much later its contribution is there; empty: all at once
};
// "" or what is wrong, and what is allowed.
std::string inconsistency(const Network& network, const Group& group);

// In bytes per second and direction.
double uplink_rate(const Network& network, const Region& region);

// What a forest asks of the network, whatever the size: for a buffer of one byte.
struct Shape {
  struct Step {
    double seconds_per_byte = 0;    // of the busiest NIC or uplink
    double seconds_per_header = 0;  // of that with most messages: for one byte of each
    // Of the host that has most of them: messages that it sends, receives, and both.
    std::uint32_t sent = 0, received = 0, messages = 0;
  };
  std::vector<Step> up{};               // the step of height 1 first
  double busiest_seconds_per_byte = 0;  // NIC or uplink, up and down together, per direction
  double busiest_seconds_per_header = 0;
  std::uint64_t busiest_messages = 0;  // host, up and down together
  double uplink_share = 0;             // bytes through the busiest uplink, per direction
  double nic_share = 0;                // bytes through the busiest NIC, per direction
  double largest_share = 0;            // of a shard
  struct Late {
    std::uint32_t height = 0;
    double lag_s = 0;
  };
  std::vector<Late> late{};  // per height at which a late rank stands in some tree, the latest
};
Shape shape_of(const Forest& forest, const Group& group, const Network& network);
// The same with all NICs and uplinks so many times slower.
Shape slower(Shape shape, double times);

struct Cost {
  double seconds = 0;
  std::uint32_t chunks = 1;  // per shard
};
Cost cost(const Shape& shape, const Network& network, std::uint64_t bytes, std::uint32_t chunks);
// With the number of chunks, a power of two, that takes the least time.
Cost least_cost(const Shape& shape, const Network& network, std::uint64_t bytes);

}  // namespace clustar::paraexpress
