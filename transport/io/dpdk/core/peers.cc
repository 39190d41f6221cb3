#include "transport/io/dpdk/core/peers.h"

#include <fmt/format.h>

#include <utility>

#include "transport/io/dpdk/core/subnet.h"

namespace clustar::transport::io::dpdk {
namespace {

constexpr PeerId id_of(std::size_t slot, std::uint16_t generation) {
  return static_cast<PeerId>(generation) << 16 | static_cast<PeerId>(slot);
}

}  // namespace

Result<PeerId> Peers::add(Peer peer) {
  for (std::size_t path = 0; path < peer.ports.size(); ++path) {
    if (by_key_.contains(key_of(peer.ip, peer.ports[path], path))) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("dpdk: {} port {} is a peer already", to_text(peer.ip), peer.ports[path]));
    }
  }
  if (size() == kMost) return fail(ErrorCode::kUnavailable, fmt::format("dpdk: there are {} peers already", kMost));
  if (free_.empty()) {
    free_.push_back(static_cast<std::uint16_t>(slots_.size()));
    slots_.emplace_back();
  }
  const std::uint16_t index = free_.back();
  free_.pop_back();
  Slot& slot = slots_[index];
  const PeerId id = id_of(index, slot.generation);
  for (std::size_t path = 0; path < peer.ports.size(); ++path) {
    by_key_.emplace(key_of(peer.ip, peer.ports[path], path), id);
  }
  slot.peer = std::move(peer);
  return id;
}

bool Peers::remove(PeerId peer) {
  if (find(peer) == nullptr) return false;
  const auto index = static_cast<std::uint16_t>(peer);
  Slot& slot = slots_[index];
  for (std::size_t path = 0; path < slot.peer.ports.size(); ++path) {
    by_key_.erase(key_of(slot.peer.ip, slot.peer.ports[path], path));
  }
  slot.peer = {};
  ++slot.generation;
  free_.push_back(index);
  latest_ = 0;
  return true;
}

const Peers::Peer* Peers::find(PeerId peer) const {
  const std::size_t index = peer & 0xffff;
  if (index >= slots_.size() || slots_[index].generation != peer >> 16) return nullptr;
  return slots_[index].peer.ports.empty() ? nullptr : &slots_[index].peer;
}

std::optional<PeerId> Peers::sender(Ipv4 ip, std::uint16_t port, std::uint8_t path) {
  const Key key = key_of(ip, port, path);
  if (key == latest_) return latest_peer_;
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return std::nullopt;
  latest_ = key;
  latest_peer_ = found->second;
  return latest_peer_;
}

}  // namespace clustar::transport::io::dpdk
