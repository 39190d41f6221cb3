#include "transport/message/traffic_book.h"

namespace clustar::transport {
namespace {

// The sums behind `key`, or those of all that found no place.
template <class Map, class Key>
auto& place_of(Map& map, const Key& key, const Key& others) {
  const auto found = map.find(key);
  if (found != map.end()) return found->second;
  return map[map.size() < TrafficBook::kMostPeers ? key : others];
}

}  // namespace

ChannelTraffic TrafficAccount::read() const {
  const auto of = [](const Count& count) { return count.load(std::memory_order_relaxed); };
  return {{of(sent_messages_), of(sent_bytes_)},
          {of(received_messages_), of(received_bytes_)},
          of(missing_bytes_),
          of(waits_)};
}

TrafficBook::Entry TrafficBook::open(int traffic_class, const std::string& host, int rank) {
  Entry entry;
  entry.book_ = this;
  entry.account_ = std::make_unique<TrafficAccount>();
  const std::lock_guard lock(mutex_);
  live_[entry.account_.get()] = {traffic_class, {host, rank}};
  return entry;
}

void TrafficBook::Entry::close() {
  if (book_ == nullptr) return;
  book_->close(*account_);
  book_ = nullptr;
}

void TrafficBook::close(const TrafficAccount& account) {
  const std::lock_guard lock(mutex_);
  const auto live = live_.find(&account);
  over_.add(live->second, account, false);
  live_.erase(live);
}

void TrafficBook::Sums::add(const Live& live, const TrafficAccount& account, bool open) {
  const ChannelTraffic traffic = account.read();
  total += traffic;
  place_of(classes, live.traffic_class, -1) += traffic;
  PeerTraffic& peer = place_of(peers, live.peer, Peer{"", -1});
  peer.traffic += traffic;
  if (open) ++peer.channels;
  retransmitted += account.retransmitted();
  marked += account.marked();
}

void TrafficBook::fill(DeviceCounters& counters) const {
  const std::lock_guard lock(mutex_);
  Sums sums = over_;
  for (const auto& [account, live] : live_) sums.add(live, *account, true);
  counters.total = sums.total;
  counters.retransmitted += sums.retransmitted;
  counters.marked += sums.marked;
  for (const auto& [traffic_class, traffic] : sums.classes) counters.classes.push_back({traffic_class, traffic});
  for (auto& [key, peer] : sums.peers) {
    peer.host = key.first;
    peer.rank = key.second;
    counters.peers.push_back(std::move(peer));
  }
}

}  // namespace clustar::transport
