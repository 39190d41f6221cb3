// The peers of an end by number, and by where their datagrams come from. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "transport/base/result.h"
#include "transport/io/dpdk/core/ethernet.h"
#include "transport/io/packet_io.h"

namespace clustar::transport::io::dpdk {

// A PeerId is a slot and the slot's generation, so that the number of a removed peer is not soon another's.
class Peers {
 public:
  static constexpr std::size_t kMost = 65536;
  struct Peer {
    Ipv4 ip = 0;
    std::uint32_t way = 0;
    std::vector<std::uint16_t> ports{};  // one per path; empty: not in use
  };

  // Errors: one of its ports is a peer's already; there are as many as may be.
  Result<PeerId> add(Peer peer);
  bool remove(PeerId peer);
  const Peer* find(PeerId peer) const;  // null: no such
  std::optional<PeerId> sender(Ipv4 ip, std::uint16_t port, std::uint8_t path);
  std::size_t size() const { return slots_.size() - free_.size(); }
  // Of all that are there, `visit`.
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (const Slot& slot : slots_) {
      if (!slot.peer.ports.empty()) visit(slot.peer);
    }
  }

 private:
  using Key = std::uint64_t;
  struct Slot {
    Peer peer{};
    std::uint16_t generation = 0;
  };
  static Key key_of(Ipv4 ip, std::uint16_t port, std::size_t path) {
    return Key{ip} << 32 | Key{port} << 8 | path | kUsed;
  }
  static constexpr Key kUsed = Key{1} << 31;  // so that no key is 0

  std::vector<Slot> slots_;
  std::vector<std::uint16_t> free_;
  std::unordered_map<Key, PeerId> by_key_;
  Key latest_ = 0;  // packets come in runs of one sender
  PeerId latest_peer_ = 0;
};

}  // namespace clustar::transport::io::dpdk
