#include "transport/io/verbs/ud_peers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

namespace clustar::transport::io::verbs {
namespace {

// What control packets use; with it the kernel learns the peer's Ethernet address.
constexpr std::size_t kFirst = UdMarks::of_class(7, false);

}  // namespace

std::size_t UdPeers::Hash::operator()(const Source& source) const {
  std::uint64_t words[2];
  std::memcpy(words, source.gid.bytes.data(), sizeof words);
  return static_cast<std::size_t>((words[0] ^ words[1] * 0x9e3779b97f4a7c15 ^ source.queue_pair) * 0xff51afd7ed558ccd >>
                                  16);
}

Result<void> UdPeers::check(const UdAddress& address) const {
  constexpr std::uint32_t kMostQueuePair = 0xffffff;
  const auto refuse = [&](const std::string& what) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("verbs UD: peer {} {}", address.gid.to_string(), what));
  };
  const auto& all = address.queue_pairs;
  if (all.size() != paths_) {
    return fail(ErrorCode::kInvalidUsage, fmt::format("verbs UD: peer {} has {} paths, and this end {}; open both "
                                                      "with the same number",
                                                      address.gid.to_string(), all.size(), paths_));
  }
  for (auto one = all.begin(); one != all.end(); ++one) {
    if (*one < 2 || *one > kMostQueuePair) {
      return refuse(fmt::format("has a queue pair {}; 2 to {} are allowed (0 and 1 are the subnet manager's)", *one,
                                kMostQueuePair));
    }
    if (std::find(all.begin(), one, *one) != one) return refuse("names a queue pair twice");
    const auto found = origins_.find({address.gid, *one});
    if (found != origins_.end() && peers_[found->second.peer].handles->address().q_key == address.q_key) {
      return refuse(fmt::format("with queue pair {} is a peer already", *one));
    }
  }
  return {};
}

Result<PeerId> UdPeers::add(const UdAddress& address, TimePoint now) {
  if (auto valid = check(address); !valid) return tl::unexpected(valid.error());
  for (const std::uint32_t queue_pair : address.queue_pairs) {
    const auto found = origins_.find({address.gid, queue_pair});
    if (found == origins_.end()) continue;
    Peer& dead = peers_[found->second.peer];
    dead.superseded = true;
    forget_origins(dead.handles->address());
  }
  const PeerId id = free_.empty() ? static_cast<PeerId>(peers_.size()) : free_.pop_front();
  if (id == peers_.size()) peers_.emplace_back();
  for (std::uint8_t path = 0; path < paths_; ++path) {
    origins_[{address.gid, address.queue_pairs[path]}] = {id, path};
  }
  peers_[id] = {.handles = std::make_shared<UdHandles>(address)};
  ask(peers_[id], kFirst, now);
  return id;
}

Result<void> UdPeers::remove(PeerId peer, std::uint64_t taken) {
  if (!known(peer)) return fail(ErrorCode::kInvalidArgument, fmt::format("verbs UD: there is no peer {}", peer));
  const Peer gone = std::exchange(peers_[peer], {});
  if (!gone.superseded) forget_origins(gone.handles->address());
  free_.push_back(peer);
  retired_.push_back({gone.handles, taken});
  if (gone.fresh == nullptr) return {};
  retired_.push_back({gone.fresh, taken});
  --renewing_;
  return {};
}

void UdPeers::forget_origins(const UdAddress& address) {
  for (const std::uint32_t queue_pair : address.queue_pairs) origins_.erase({address.gid, queue_pair});
}

void UdPeers::ask(Peer& peer, std::size_t group, TimePoint now) {
  peer.asked_at[group] = now;
  auto& maker = peer.handles->ready(kFirst) ? maker_ : resolver_;
  maker.make(peer.handles, group, marks_.tos(group));
  if (peer.fresh != nullptr) resolver_.make(peer.fresh, group, marks_.tos(group));
}

// Of a peer without handles the first ones are still being made: they will be as new.
void UdPeers::renew(Peer& peer) {
  if (peer.handles == nullptr || peer.fresh != nullptr || peer.superseded || !peer.handles->ready(kFirst)) return;
  peer.fresh = std::make_shared<UdHandles>(peer.handles->address());
  ++renewing_;
  for (std::size_t group = 0; group < UdHandles::kGroups; ++group) {
    if (peer.asked_at[group] != TimePoint{}) resolver_.make(peer.fresh, group, marks_.tos(group));
  }
}

void UdPeers::renew_all() {
  for (Peer& peer : peers_) renew(peer);
}

bool UdPeers::renewed(const Peer& peer) {
  if (peer.fresh == nullptr) return false;
  for (std::size_t group = 0; group < UdHandles::kGroups; ++group) {
    if (peer.asked_at[group] != TimePoint{} && !peer.fresh->ready(group)) return false;
  }
  return true;
}

std::size_t UdPeers::maintain(std::uint64_t taken, TimePoint now) {
  std::size_t count = 0;
  for (std::size_t i = 0; renewing_ > 0 && i < peers_.size(); ++i) {
    Peer& peer = peers_[i];
    if (!renewed(peer)) continue;
    retired_.push_back({std::exchange(peer.handles, std::exchange(peer.fresh, nullptr)), taken});
    --renewing_;
    ++count;
  }
  if (now < silence_at_) return count;
  silence_at_ = now + kSilence;
  for (Peer& peer : peers_) {
    const bool sent = std::exchange(peer.sent, false);
    if (!std::exchange(peer.heard, false) && sent) renew(peer);
  }
  return count;
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
  if (peer.superseded) return {};
  const std::size_t group = marks_.number(packet.traffic_class, packet.dscp, packet.ect);
  if (!peer.handles->ready(group)) {
    if (peer.asked_at[group] == TimePoint{}) ask(peer, group, now);
    const bool waits = !peer.handles->failed() && now < peer.asked_at[group] + kPatience;
    return {.kind = waits ? Route::Kind::kWait : Route::Kind::kLose};
  }
  peer.sent = true;
  const UdAddress& address = peer.handles->address();
  return {.kind = Route::Kind::kGo,
          .handle = peer.handles->get(group, packet.path),
          .queue_pair = address.queue_pairs[packet.path],
          .q_key = address.q_key};
}

const UdPeers::Origin* UdPeers::origin(const Gid& source, std::uint32_t queue_pair) {
  const auto found = origins_.find({source, queue_pair});
  if (found == origins_.end()) return nullptr;
  peers_[found->second.peer].heard = true;
  return &found->second;
}

}  // namespace clustar::transport::io::verbs
