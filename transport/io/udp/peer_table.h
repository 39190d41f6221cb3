// The peers of a UdpIo by number and by address.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "transport/base/result.h"
#include "transport/io/packet_io.h"
#include "transport/io/udp/address.h"

namespace clustar::transport::io::udp {

// A PeerId is a slot and the slot's generation, so that the number of a removed peer is not soon another's.
class PeerTable {
 public:
  static constexpr std::size_t kMost = 65536;

  Result<PeerId> add(const UdpAddress& address);
  bool remove(PeerId peer);
  bool known(PeerId peer) const { return find(peer) != nullptr; }
  // Where the peer listens, one per path; null for a number that is not in use.
  const std::vector<SocketAddress>* find(PeerId peer) const;
  // The sender of what arrived on the socket of `path`; nothing for a stranger.
  std::optional<PeerId> sender(const SocketAddress& from, std::uint8_t path);
  std::size_t size() const { return slots_.size() - free_.size(); }

 private:
  struct Key {
    std::uint64_t high = 0;
    std::uint64_t low = 0;
    std::uint32_t port_and_path = 0;
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    std::size_t operator()(const Key& key) const;
  };
  struct Slot {
    std::vector<SocketAddress> paths;  // empty: not in use
    std::uint16_t generation = 0;
  };
  static Key key_of(const IpAddress& ip, std::uint16_t port, std::size_t path);

  std::vector<Slot> slots_;
  std::vector<std::uint16_t> free_;
  std::unordered_map<Key, PeerId, Hash> by_address_;
  Key latest_;  // packets come in runs of one sender
  PeerId latest_peer_ = 0;
};

}  // namespace clustar::transport::io::udp
