// The peers of an end: by number, and by the key that their datagrams carry.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "transport/base/result.h"
#include "transport/io/packet_io.h"

namespace clustar::transport::ofi {

// A PeerId is a slot and the slot's generation, so that the number of a removed peer is not soon another's.
class Peers {
 public:
  static constexpr std::size_t kMost = 65536;
  using Address = std::uint64_t;  // fi_addr_t
  struct Peer {
    std::vector<Address> paths{};  // by path
    std::size_t most_bytes = 0;    // of header and payload, that both ends take
  };

  // `peer`: its paths are never empty. Errors: kInvalidArgument: a peer already; kUnavailable: too many.
  Result<io::PeerId> add(std::uint64_t key, Peer peer);
  bool remove(io::PeerId peer);
  // Null for a number that is not in use.
  const Peer* find(io::PeerId peer) const;
  // Nothing: a stranger.
  std::optional<io::PeerId> sender(std::uint64_t key);
  std::size_t size() const { return slots_.size() - free_.size(); }

 private:
  struct Slot {
    std::uint64_t key = 0;
    Peer peer{};  // without paths: not in use
    std::uint16_t generation = 0;
  };

  std::vector<Slot> slots_;
  std::vector<std::uint16_t> free_;
  std::unordered_map<std::uint64_t, io::PeerId> by_key_;
  std::uint64_t latest_ = 0;  // datagrams come in runs of one sender; no key is 0
  io::PeerId latest_peer_ = 0;
};

}  // namespace clustar::transport::ofi
