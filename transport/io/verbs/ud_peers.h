// The peers of a UdIo, by number and by where their packets come from.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "transport/base/ring.h"
#include "transport/base/time.h"
#include "transport/io/packet_io.h"
#include "transport/io/verbs/ud_handles.h"
#include "transport/io/verbs/ud_wire.h"

namespace clustar::transport::io::verbs {

class UdPeers {
 public:
  // How long packets wait for the handles of their class before they are lost: ARP on a network that works takes less,
  // and a thread that waits holds up what is sent to others.
  static constexpr Duration kPatience = std::chrono::milliseconds(500);
  // A peer that is sent to and silent for so long may have another Ethernet address by now.
  static constexpr Duration kSilence = std::chrono::seconds(1);

  // How a packet goes to a peer now.
  struct Route {
    enum class Kind : std::uint8_t { kGo, kWait, kLose } kind = Kind::kLose;
    ibv_ah* handle = nullptr;
    std::uint32_t queue_pair = 0;
    std::uint32_t q_key = 0;
  };
  struct Origin {
    PeerId peer = 0;
    std::uint8_t path = 0;
  };

  // `domain` outlives this.
  UdPeers(const ProtectionDomain& domain, std::uint8_t port, int gid_index, std::uint8_t paths, const FixedMarks& marks)
      : paths_(paths), resolver_(domain, port, gid_index, marks), maker_(domain, port, gid_index, marks) {}

  // Queue pair numbers of a GID are one live process's: a peer with the same and another Q_Key is dead. It is known
  // until removed, but what is sent to it is lost.
  Result<PeerId> add(const UdAddress& address, TimePoint now);
  // `taken`: packets that the sender took so far; those of them that are outstanding may name the peer's handles.
  Result<void> remove(PeerId peer, std::uint64_t taken);
  // The first `finished` of them are no longer outstanding.
  void finished(std::uint64_t finished);
  bool retiring() const { return !retired_.empty(); }
  // Handles name the Ethernet address that the peer had when they were made. These make them again, beside the old
  // ones, which are used until the others are ready: of all peers, or of those that are silent.
  void renew_all();
  // To be called now and then: takes over what is ready. `taken`: as for remove(). Returns how many peers that were.
  std::size_t maintain(std::uint64_t taken, TimePoint now);

  bool known(PeerId peer) const { return peer < peers_.size() && peers_[peer].handles != nullptr; }
  Result<bool> ready(PeerId peer) const;
  std::size_t size() const { return origins_.size() / paths_; }
  // Of a known peer, path and class. The first packet of a class has its handles made.
  Route route(const TxPacket& packet, TimePoint now);
  // Of a packet that was received. Null: a stranger's.
  const Origin* origin(const Gid& source, std::uint32_t queue_pair);

 private:
  struct Peer {
    std::shared_ptr<UdHandles> handles{};                  // null: free
    std::array<TimePoint, UdHandles::kGroups> asked_at{};  // of each group; 0: it was not
    std::shared_ptr<UdHandles> fresh{};                    // to follow them, the same groups; null: none are being made
    bool superseded = false;                               // its queue pairs are another's
    bool sent = false;                                     // since maintain() looked for silence
    bool heard = false;
  };
  Result<void> check(const UdAddress& address) const;
  void ask(Peer& peer, std::size_t group, TimePoint now);
  void renew(Peer& peer);
  static bool renewed(const Peer& peer);
  void forget_origins(const UdAddress& address);

  struct Source {
    Gid gid{};
    std::uint32_t queue_pair = 0;
    bool operator==(const Source&) const = default;
  };
  struct Hash {
    std::size_t operator()(const Source& source) const;
  };
  struct Retired {
    std::shared_ptr<UdHandles> handles;
    std::uint64_t taken = 0;
  };

  const std::uint8_t paths_;
  UdMarks marks_;
  std::vector<Peer> peers_;
  Ring<PeerId> free_;  // the one that is free for longest first: packets of a removed peer may still be held
  std::unordered_map<Source, Origin, Hash> origins_;
  Ring<Retired> retired_;
  std::size_t renewing_ = 0;  // peers with fresh handles under way
  TimePoint silence_at_{};    // when to look for silent peers
  // Waiting for peers that do not answer must not keep the handles of those that did from being made.
  UdHandleMaker resolver_;
  UdHandleMaker maker_;
};

}  // namespace clustar::transport::io::verbs
