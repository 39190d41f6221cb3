// What the sender knows about the flow that a message belongs to.
#pragma once

#include <cstdint>

namespace clustar::transport {

// What a loss-tolerant transport may lose of the collective that a message belongs to: point 3 of the loss contract
// (architecture guide), where S, n, E, k and p are these. All 0, the default: reliable, byte for byte; so is every
// message of a transport that never loses (TCP), of a channel that did not opt in (ChannelOptions::max_tolerance_ppm)
// or for less than tolerance_ppm, and of less than FlowTag::kMinTolerantBytes. Who fills it in answers for the data:
// floats, in a reduce-scatter step of a ring, in NCCL's Simple protocol. The same for all messages of a collective but
// for the stage; terms that contradict each other, or make no sense, allow nothing (mlt/core/ledger.h).
//
// A direct exchange of gradients (an all-to-all all-reduce made of sends) may lose as well, where the user says that he
// looks up what is missing: `exchange` is true, and the numbers are those of another space. The n-th send of each rank
// to one receiver makes one exchange, of which that receiver has one ledger: S is one send's bytes, E = 1, k = 0. Their
// bound, p * S * n, counts the receiver's own part, which no network carries; that no more than p of the eligible bytes
// may be missing leaves p * S * (n - 1).
struct LossTerms {
  std::uint64_t communicator = 0;  // the channel's ChannelOptions::comm_id, where that is not 0; another one: reliable
  std::uint32_t collective = 0;    // its number in the communicator: grows by one, may wrap; alike on all ranks
  std::uint64_t collective_bytes = 0;  // S: of one rank's input; 0 = unknown = reliable
  std::uint16_t ranks = 0;             // n: 2 ..
  std::uint16_t edges = 0;             // E: how often the ring crosses the network, 1 .. n
  std::uint16_t stage = 0;             // k: reduce-scatter step of the message, 0 .. n - 2: sums of k + 1 ranks
  std::uint32_t tolerance_ppm = 0;     // p in parts per million, 0 .. 1,000,000; 0 = reliable
  bool exchange = false;               // `collective` numbers exchanges: they and collectives never share a ledger
};

// Which collective, and what of it, a message is. Numbers are NCCL's (ncclFunc_t, algorithm, protocol); kUnknown where
// the source did not say. Made by the sender, who alone can know; a transport that carries it gives it to the receiver,
// to count and to schedule by, never to decide what may be lost: that is LossTerms.
struct MessageIdentity {
  static constexpr std::uint8_t kUnknown = 0xff;
  static constexpr std::uint64_t kNumbers = std::uint64_t{1} << 48;  // one that is not below is not known
  static constexpr std::uint16_t kNoRank = 0xffff;

  bool known = false;  // false: nothing below means anything
  // `number` counts on the sending rank: replays of a captured graph by their starts; sends (p2p) by those before this
  // one from `sender` to the same receiver.
  bool local_number = false;
  std::uint64_t communicator = 0;  // NCCL's commId
  std::uint64_t number = 0;        // of this function in the communicator, alike on all ranks; below 2^48
  std::uint64_t total_bytes = 0;   // of one rank's input; of the message for p2p
  std::uint32_t transfer = 0;      // t: network transfer of the channel, from 0
  std::uint16_t channel = 0;       // 0 .. 255
  std::uint16_t sender = kNoRank;  // of p2p: the rank in the communicator that sends
  std::uint8_t function = kUnknown;
  std::uint8_t datatype = kUnknown;  // ncclDataType_t
  std::uint8_t algorithm = kUnknown;
  std::uint8_t protocol = kUnknown;

  bool operator==(const MessageIdentity&) const = default;
};

struct FlowTag {
  // Point 2 of the loss contract: shorter messages are reliable.
  static constexpr std::uint32_t kMinTolerantBytes = 64 * 1024;

  std::uint8_t traffic_class = 0;
  std::uint64_t coflow = 0;  // 0 = unidentified
  std::uint64_t bytes = 0;   // size of the whole coflow on this edge; 0 = unknown
  LossTerms loss{};
  MessageIdentity identity{};
  // Of p2p: the rank in the communicator that it goes to. Stays here; for callers that count what became of their
  // sends.
  std::uint16_t receiver = MessageIdentity::kNoRank;
};

// What a receiver learns of a message from its sender.
struct ReceivedMessage {
  MessageIdentity identity{};
  LossTerms loss{};  // tolerance_ppm 0: it was reliable
};

}  // namespace clustar::transport
