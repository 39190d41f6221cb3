#include "libfabric_shim/dgram/peers.h"

#include <fmt/format.h>

#include <utility>

namespace clustar::transport::ofi {
namespace {

constexpr io::PeerId id_of(std::size_t slot, std::uint16_t generation) {
  return static_cast<io::PeerId>(generation) << 16 | static_cast<io::PeerId>(slot);
}

}  // namespace

Result<io::PeerId> Peers::add(std::uint64_t key, Peer facts) {
  if (by_key_.contains(key)) return fail(ErrorCode::kInvalidArgument, "ofi: this end is a peer already");
  if (size() == kMost) return fail(ErrorCode::kUnavailable, fmt::format("ofi: there are {} peers already", kMost));
  if (free_.empty()) {
    free_.push_back(static_cast<std::uint16_t>(slots_.size()));
    slots_.emplace_back();
  }
  const std::uint16_t index = free_.back();
  free_.pop_back();
  Slot& slot = slots_[index];
  slot.key = key;
  slot.peer = std::move(facts);
  const io::PeerId peer = id_of(index, slot.generation);
  by_key_.emplace(key, peer);
  return peer;
}

bool Peers::remove(io::PeerId peer) {
  if (find(peer) == nullptr) return false;
  const auto index = static_cast<std::uint16_t>(peer);
  Slot& slot = slots_[index];
  by_key_.erase(slot.key);
  slot.peer = {};
  ++slot.generation;
  free_.push_back(index);
  latest_ = 0;
  return true;
}

const Peers::Peer* Peers::find(io::PeerId peer) const {
  const std::size_t index = peer & 0xffff;
  if (index >= slots_.size() || slots_[index].generation != peer >> 16) return nullptr;
  return slots_[index].peer.paths.empty() ? nullptr : &slots_[index].peer;
}

std::optional<io::PeerId> Peers::sender(std::uint64_t key) {
  if (key == latest_ && key != 0) return latest_peer_;
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return std::nullopt;
  latest_ = key;
  latest_peer_ = found->second;
  return latest_peer_;
}

}  // namespace clustar::transport::ofi
