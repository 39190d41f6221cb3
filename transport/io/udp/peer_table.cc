#include "transport/io/udp/peer_table.h"

#include <cstring>
#include <string>

namespace clustar::transport::io::udp {
namespace {

constexpr PeerId id_of(std::size_t slot, std::uint16_t generation) {
  return static_cast<PeerId>(generation) << 16 | static_cast<PeerId>(slot);
}

}  // namespace

std::size_t PeerTable::Hash::operator()(const Key& key) const {
  std::uint64_t mixed = (key.high * 0x9e3779b97f4a7c15ull) ^ key.low;
  mixed = (mixed ^ (mixed >> 32)) * 0xd6e8feb86659fd93ull + key.port_and_path;
  mixed = (mixed ^ (mixed >> 32)) * 0xd6e8feb86659fd93ull;
  return mixed ^ (mixed >> 32);
}

PeerTable::Key PeerTable::key_of(const IpAddress& ip, std::uint16_t port, std::size_t path) {
  Key key;
  std::memcpy(&key.high, ip.bytes.data(), 8);
  std::memcpy(&key.low, ip.bytes.data() + 8, 8);
  key.port_and_path = static_cast<std::uint32_t>(port) << 16 | static_cast<std::uint32_t>(path);
  return key;
}

Result<PeerId> PeerTable::add(const UdpAddress& address) {
  for (std::size_t path = 0; path < address.ports.size(); ++path) {
    if (by_address_.contains(key_of(address.ip, address.ports[path], path))) {
      return fail(ErrorCode::kInvalidArgument, "udp: " + address.ip.to_string() + " port " +
                                                   std::to_string(address.ports[path]) + " is a peer already");
    }
  }
  if (size() == kMost) {
    return fail(ErrorCode::kUnavailable, "udp: there are " + std::to_string(kMost) + " peers already");
  }
  if (free_.empty()) {
    free_.push_back(static_cast<std::uint16_t>(slots_.size()));
    slots_.emplace_back();
  }
  const std::uint16_t index = free_.back();
  free_.pop_back();
  Slot& slot = slots_[index];
  const PeerId peer = id_of(index, slot.generation);
  for (std::size_t path = 0; path < address.ports.size(); ++path) {
    slot.paths.emplace_back(address.ip, address.ports[path]);
    by_address_.emplace(key_of(address.ip, address.ports[path], path), peer);
  }
  return peer;
}

bool PeerTable::remove(PeerId peer) {
  if (!known(peer)) return false;
  const auto index = static_cast<std::uint16_t>(peer);
  Slot& slot = slots_[index];
  for (std::size_t path = 0; path < slot.paths.size(); ++path) {
    by_address_.erase(key_of(slot.paths[path].ip(), slot.paths[path].port(), path));
  }
  slot.paths.clear();
  ++slot.generation;
  free_.push_back(index);
  latest_ = {};
  return true;
}

const std::vector<SocketAddress>* PeerTable::find(PeerId peer) const {
  const std::size_t index = peer & 0xffff;
  if (index >= slots_.size() || slots_[index].paths.empty() || slots_[index].generation != peer >> 16) return nullptr;
  return &slots_[index].paths;
}

std::optional<PeerId> PeerTable::sender(const SocketAddress& from, std::uint8_t path) {
  const Key key = key_of(from.ip(), from.port(), path);
  if (latest_ != Key{} && key == latest_) return latest_peer_;
  const auto found = by_address_.find(key);
  if (found == by_address_.end()) return std::nullopt;
  latest_ = key;
  latest_peer_ = found->second;
  return latest_peer_;
}

}  // namespace clustar::transport::io::udp
