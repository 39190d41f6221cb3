#include "transport/io/verbs/ud_peers.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

namespace clustar::transport::io::verbs {
namespace {

// What control packets use; with it the kernel learns the peer's Ethernet address.
constexpr std::size_t kFirst = UdHandles::group_of(7, false);

}  // namespace

std::size_t UdPeers::Hash::operator()(const Source& source) const {
  std::uint64_t words[2];
  std::memcpy(words, source.gid.bytes.data(), sizeof words);
  return static_cast<std::size_t>((words[0] ^ words[1] * 0x9e3779b97f4a7c15 ^ source.queue_pair) * 0xff51afd7ed558ccd >>
                                  16);
}

Result<PeerId> UdPeers::add(const UdAddress& address, TimePoint now) {
  constexpr std::uint32_t kMostQueuePair = 0xffffff;
  const std::string name = address.gid.to_string();
  if (address.queue_pairs.size() != paths_) {
    return fail(ErrorCode::kInvalidUsage, fmt::format("verbs UD: peer {} has {} paths, and this end {}; open both "
                                                      "with the same number",
                                                      name, address.queue_pairs.size(), paths_));
  }
  for (const std::uint32_t queue_pair : address.queue_pairs) {
    if (queue_pair < 2 || queue_pair > kMostQueuePair) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("verbs UD: peer {} has a queue pair {}; 2 to {} are allowed (0 and 1 are the "
                              "subnet manager's)",
                              name, queue_pair, kMostQueuePair));
    }
    if (origins_.contains({address.gid, queue_pair})) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("verbs UD: {} queue pair {} is a peer already", name, queue_pair));
    }
  }
  const PeerId id = free_.empty() ? static_cast<PeerId>(peers_.size()) : free_.pop_front();
  if (id == peers_.size()) peers_.emplace_back();
  for (std::uint8_t path = 0; path < paths_; ++path) {
    const auto [place, fresh] = origins_.try_emplace({address.gid, address.queue_pairs[path]}, Origin{id, path});
    if (fresh) continue;
    while (path-- > 0) origins_.erase({address.gid, address.queue_pairs[path]});
    free_.push_back(id);
    return fail(ErrorCode::kInvalidArgument, fmt::format("verbs UD: peer {} names a queue pair twice", name));
  }
  peers_[id] = {std::make_shared<UdHandles>(address)};
  ask(peers_[id], kFirst, now);
  return id;
}

Result<void> UdPeers::remove(PeerId peer, std::uint64_t taken) {
  if (!known(peer)) return fail(ErrorCode::kInvalidArgument, fmt::format("verbs UD: there is no peer {}", peer));
  auto handles = std::exchange(peers_[peer].handles, nullptr);
  for (const std::uint32_t queue_pair : handles->address().queue_pairs) {
    origins_.erase({handles->address().gid, queue_pair});
  }
  free_.push_back(peer);
  retired_.push_back({std::move(handles), taken});
  return {};
}

void UdPeers::ask(Peer& peer, std::size_t group, TimePoint now) {
  peer.asked_at[group] = now;
  auto& maker = peer.handles->ready(kFirst) ? maker_ : resolver_;
  maker.make(peer.handles, group);
}

void UdPeers::finished(std::uint64_t finished) {
  while (!retired_.empty() && retired_.front().taken <= finished)
    maker_.give_back(retired_.pop_front().handles);  // the resolver sees that, too
}

Result<bool> UdPeers::ready(PeerId peer) const {
  if (!known(peer)) return fail(ErrorCode::kInvalidArgument, fmt::format("verbs UD: there is no peer {}", peer));
  const UdHandles& handles = *peers_[peer].handles;
  if (handles.ready(kFirst)) return true;
  if (handles.failed()) return tl::unexpected(handles.error());
  return false;
}

UdPeers::Route UdPeers::route(const TxPacket& packet, TimePoint now) {
  Peer& peer = peers_[packet.peer];
  const std::size_t group = UdHandles::group_of(packet.traffic_class, packet.ect);
  if (!peer.handles->ready(group)) {
    if (peer.asked_at[group] == TimePoint{}) ask(peer, group, now);
    const bool waits = !peer.handles->failed() && now < peer.asked_at[group] + kPatience;
    return {.kind = waits ? Route::Kind::kWait : Route::Kind::kLose};
  }
  const UdAddress& address = peer.handles->address();
  return {.kind = Route::Kind::kGo,
          .handle = peer.handles->get(group, packet.path),
          .queue_pair = address.queue_pairs[packet.path],
          .q_key = address.q_key};
}

const UdPeers::Origin* UdPeers::origin(const Gid& source, std::uint32_t queue_pair) const {
  const auto found = origins_.find({source, queue_pair});
  return found == origins_.end() ? nullptr : &found->second;
}

}  // namespace clustar::transport::io::verbs
