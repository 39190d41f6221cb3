// What a UcIo keeps of one peer.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "transport/base/time.h"
#include "transport/io/verbs/gid.h"
#include "transport/io/verbs/queue_pair.h"
#include "transport/io/verbs/uc/granted.h"
#include "transport/io/verbs/uc/join.h"
#include "transport/io/verbs/uc/wire.h"

namespace clustar::transport::io::verbs::uc {

// Writes of ours. kMaking and kConnecting: the thread has it.
struct OutPair {
  enum class State : std::uint8_t { kMaking, kAsking, kConnecting, kUp, kFailed } state = State::kMaking;
  std::optional<QueuePair> pair{};  // while asking
  PairEnd ours{};
  int asked = 0;
  TimePoint due = TimePoint::max();  // kAsking: to ask again; kFailed: to try again
  std::uint32_t writer = 0;          // kUp: its number there
  std::size_t most_bytes = 0;        // kUp: of one packet
  std::uint8_t dscp = 0;             // of what is written by it: what has another goes by datagrams
};

// Writes of the peer's.
struct InPair {
  std::optional<QueuePair> pair{};  // empty: the thread has it
  PairEnd theirs{};
  PairEnd ours{};
  std::uint32_t silent = 0;  // headers whose write was missing, since one came
};

struct Peer {
  Peer(PeerId peer, const Gid& address, std::uint32_t our_session) : id(peer), gid(address), session(our_session) {}

  const PeerId id;
  const Gid gid;
  const std::uint32_t session;
  std::uint32_t peer_session = 0;  // 0: nothing was heard yet
  Granted granted{};
  std::uint32_t next_number = 1;          // of a write to it
  std::unique_ptr<Join> join{};           // once it may write
  std::map<std::uint8_t, OutPair> out{};  // by key
  std::map<std::uint8_t, InPair> in{};
};

}  // namespace clustar::transport::io::verbs::uc
