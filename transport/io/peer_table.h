// The peers of an end by number, and by where their packets come from. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "transport/base/result.h"
#include "transport/io/packet_io.h"

namespace clustar::transport::io {

// A PeerId is a slot and the slot's generation, so that the number of a removed peer is not soon another's.
//
// `Peer` is what an end keeps of a peer:
//
//   struct Origin;                                 where packets of one path come from: comparable, of a live peer only
//   struct Hash;                                   of an Origin
//   std::size_t paths() const;                     at least 1
//   Origin origin(std::size_t path) const;         another one for each path
//   std::string name_of(std::size_t path) const;   for errors: "10.0.0.1 port 4000"
template <class Peer>
class PeerTable {
 public:
  using Origin = typename Peer::Origin;
  static constexpr std::size_t kMost = 65536;

  // `backend`: begins errors.
  explicit PeerTable(const char* backend) : backend_(backend) {}

  // Errors: kInvalidArgument one of its origins is a peer's already; kUnavailable there are kMost.
  Result<PeerId> add(Peer peer) {
    for (std::size_t path = 0; path < peer.paths(); ++path) {
      if (by_origin_.contains(peer.origin(path))) {
        return fail(ErrorCode::kInvalidArgument,
                    std::string(backend_) + ": " + peer.name_of(path) + " is a peer already");
      }
    }
    if (size() == kMost) {
      return fail(ErrorCode::kUnavailable,
                  std::string(backend_) + ": there are " + std::to_string(kMost) + " peers already");
    }
    if (free_.empty()) {
      free_.push_back(static_cast<std::uint16_t>(slots_.size()));
      slots_.emplace_back();
    }
    const std::uint16_t index = free_.back();
    free_.pop_back();
    Slot& slot = slots_[index];
    const PeerId id = static_cast<PeerId>(slot.generation) << 16 | index;
    for (std::size_t path = 0; path < peer.paths(); ++path) by_origin_.emplace(peer.origin(path), id);
    slot.peer.emplace(std::move(peer));
    return id;
  }

  // False: no such peer.
  bool remove(PeerId peer) {
    const Peer* const known = find(peer);
    if (known == nullptr) return false;
    for (std::size_t path = 0; path < known->paths(); ++path) by_origin_.erase(known->origin(path));
    const auto index = static_cast<std::uint16_t>(peer);
    slots_[index].peer.reset();
    ++slots_[index].generation;
    free_.push_back(index);
    latest_.reset();
    return true;
  }

  // Null: a number that is not in use. Valid until peers are added or removed.
  const Peer* find(PeerId peer) const {
    const std::size_t index = peer & 0xffff;
    if (index >= slots_.size() || slots_[index].generation != peer >> 16) return nullptr;
    return slots_[index].peer ? &*slots_[index].peer : nullptr;
  }

  // Nothing for a stranger.
  std::optional<PeerId> sender(const Origin& origin) {
    if (latest_ && latest_->first == origin) return latest_->second;
    const auto found = by_origin_.find(origin);
    if (found == by_origin_.end()) return std::nullopt;
    latest_ = *found;
    return found->second;
  }

  std::size_t size() const { return slots_.size() - free_.size(); }

  template <class Visit>
  void for_each(Visit&& visit) const {
    for (const Slot& slot : slots_) {
      if (slot.peer) visit(*slot.peer);
    }
  }

 private:
  struct Slot {
    std::optional<Peer> peer{};  // nothing: not in use
    std::uint16_t generation = 0;
  };

  const char* const backend_;
  std::vector<Slot> slots_;
  std::vector<std::uint16_t> free_;
  std::unordered_map<Origin, PeerId, typename Peer::Hash> by_origin_;
  std::optional<std::pair<Origin, PeerId>> latest_;  // packets come in runs of one sender
};

}  // namespace clustar::transport::io
