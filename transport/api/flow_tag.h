// What the sender knows about the flow that a message belongs to.
#pragma once

#include <cstddef>
#include <cstdint>

namespace clustar::transport {

// How much of a collective a loss-tolerant transport may lose (docs/loss.md). The letters are those of the bound,
// p * S * n / E contributions per receiving edge, where a missing byte at stage k counts k + 1.
//
// All 0, the default, means reliable, byte for byte. A message is also reliable if the transport never loses (TCP), if
// the channel did not opt in (ChannelOptions::max_tolerance_ppm) or allows less than tolerance_ppm, or if it is shorter
// than FlowTag::kMinTolerantBytes. The code that fills in the terms is responsible for the data being floats, in a
// reduce-scatter step of a ring, in NCCL's Simple protocol. All messages of a collective have the same terms, except
// the stage; contradictory or senseless terms allow nothing (mlt/core/ledger.h).
//
// A direct exchange of gradients (an all-to-all all-reduce made of sends) may lose, too, if the user promises to look
// up what is missing: `exchange` is then true, and exchanges have numbers of their own. The n-th sends of all ranks to
// one receiver are one exchange, with one ledger at that receiver: S is the bytes of one send, E = 1, k = 0. The bound
// p * S * n includes the receiver's own part, which no network carries; the rule that at most p of the eligible bytes
// may be missing lowers it to p * S * (n - 1).
struct LossTerms {
  std::uint64_t communicator = 0;      // equals ChannelOptions::comm_id unless that is 0; if not, reliable
  std::uint32_t collective = 0;        // its number in the communicator: grows by one, may wrap; equal on all ranks
  std::uint64_t collective_bytes = 0;  // S: input of one rank; 0 = unknown = reliable
  std::uint16_t ranks = 0;             // n: 2 ..
  std::uint16_t edges = 0;             // E: how often the ring crosses the network, 1 .. n
  std::uint16_t stage = 0;             // k: reduce-scatter step, 0 .. n - 2: the message carries sums of k + 1 ranks
  std::uint32_t tolerance_ppm = 0;     // p in parts per million, 0 .. 1,000,000; 0 = reliable
  bool exchange = false;  // `collective` is the number of an exchange, which never shares a ledger with a collective
};

// Which part of which collective a message is. Numbers are NCCL's (ncclFunc_t, algorithm, protocol); kUnknown if NCCL
// did not tell. Only the sender can know it. A transport that carries it gives it to the receiver, for counting and
// scheduling, never to decide what may be lost: that is LossTerms.
struct MessageIdentity {
  static constexpr std::uint8_t kUnknown = 0xff;
  static constexpr std::uint64_t kNumbers = std::uint64_t{1} << 48;  // larger numbers mean unknown
  static constexpr std::uint16_t kNoRank = 0xffff;

  bool known = false;  // false: ignore the rest
  // The sending rank counts `number`: for replays of a captured graph, their starts; for sends (p2p), the earlier ones
  // from `sender` to the same receiver.
  bool local_number = false;
  std::uint64_t communicator = 0;  // NCCL's commId
  std::uint64_t number = 0;        // counts calls of this function in the communicator, equal on all ranks; below 2^48
  std::uint64_t total_bytes = 0;   // input of one rank; for p2p: of the message
  std::uint32_t transfer = 0;      // t: network transfer of the channel, from 0
  std::uint16_t channel = 0;       // 0 .. 255
  std::uint16_t sender = kNoRank;  // of p2p: the rank in the communicator that sends
  std::uint8_t function = kUnknown;
  std::uint8_t datatype = kUnknown;  // ncclDataType_t
  std::uint8_t algorithm = kUnknown;
  std::uint8_t protocol = kUnknown;

  bool operator==(const MessageIdentity&) const = default;
};

// How badly a job waits for a message: the order of its own traffic, before sizes count.
enum class Urgency : std::uint8_t {
  kBlocking,    // computation stands still until it is there: tensor and pipeline parallel traffic
  kPrefetch,    // needed soon: parameters of the next layers
  kGradient,    // needed at the end of the step; what nobody said anything of
  kBackground,  // checkpoints, copies
};
inline constexpr std::size_t kUrgencies = 4;

struct FlowTag {
  // Shorter messages are reliable (docs/loss.md).
  static constexpr std::uint32_t kMinTolerantBytes = 64 * 1024;

  std::uint8_t traffic_class = 0;
  std::uint64_t coflow = 0;  // 0 = unidentified
  std::uint64_t bytes = 0;   // size of the whole coflow on this edge; 0 = unknown
  Urgency urgency = Urgency::kGradient;
  LossTerms loss{};
  MessageIdentity identity{};
  // For p2p: the destination's rank in the communicator. It is not sent; callers use it to count what became of their
  // sends.
  std::uint16_t receiver = MessageIdentity::kNoRank;
};

// What a receiver learns about a message from its sender.
struct ReceivedMessage {
  MessageIdentity identity{};
  LossTerms loss{};  // tolerance_ppm 0: the message was reliable
};

}  // namespace clustar::transport
