#include "transport/io/dpdk/core/neighbours.h"

#include <algorithm>

namespace clustar::transport::io::dpdk {
namespace {

// Neither broadcast nor multicast, and not nothing.
bool is_of_one(const Mac& mac) { return (mac[0] & 1) == 0 && mac != Mac{}; }

}  // namespace

std::optional<Neighbours::Id> Neighbours::want(Ipv4 ip, TimePoint now) {
  if (const auto found = by_ip_.find(ip); found != by_ip_.end()) {
    ++entries_[found->second].wanted;
    return found->second;
  }
  if (by_ip_.size() >= options_.most && !make_room()) return std::nullopt;
  if (unused_.empty()) {
    unused_.push_back(static_cast<Id>(entries_.size()));
    entries_.emplace_back();
  }
  const Id id = unused_.back();
  unused_.pop_back();
  entries_[id] = {State::kAsking, ip, {}, 1, 0, kNever};
  by_ip_.emplace(ip, id);
  ask(entries_[id], now);
  renew_next();
  return id;
}

void Neighbours::forget(Id id) {
  Entry& entry = entries_[id];
  if (entry.wanted == 0 || --entry.wanted > 0 || entry.state == State::kKnown) return;
  remove(id);
  renew_next();
}

// One that nobody wants goes for one that somebody does.
bool Neighbours::make_room() {
  for (Id id = 0; id < entries_.size(); ++id) {
    if (entries_[id].state == State::kUnused || entries_[id].wanted > 0) continue;
    remove(id);
    return true;
  }
  return false;
}

void Neighbours::remove(Id id) {
  Entry& entry = entries_[id];
  by_ip_.erase(entry.ip);
  std::erase_if(asks_, [&](const Ask& one) { return one.ip == entry.ip; });
  std::erase(silent_, id);
  entry = {};
  unused_.push_back(id);
}

void Neighbours::ask(Entry& entry, TimePoint now) {
  ++entry.asked;
  entry.due = now + (entry.state == State::kSilent ? options_.rest : options_.ask_again);
  asks_.push_back({entry.ip, entry.state == State::kChecking ? std::optional(entry.mac) : std::nullopt});
}

std::optional<Neighbours::Id> Neighbours::on_claim(Ipv4 ip, const Mac& mac, TimePoint now) {
  const auto found = by_ip_.find(ip);
  if (found == by_ip_.end() || !is_of_one(mac)) return std::nullopt;
  Entry& entry = entries_[found->second];
  const bool news = this->mac(found->second) == nullptr || entry.mac != mac;
  entry.state = State::kKnown;
  entry.mac = mac;
  entry.asked = 0;
  entry.due = now + options_.fresh_for;
  std::erase_if(asks_, [&](const Ask& one) { return one.ip == ip; });
  std::erase(silent_, found->second);
  renew_next();
  if (!news) return std::nullopt;
  return found->second;
}

void Neighbours::elapse(Id id, TimePoint now) {
  Entry& entry = entries_[id];
  if (entry.wanted == 0) return remove(id);
  if (entry.state == State::kKnown) {
    entry.state = State::kChecking;
    entry.asked = 0;
  } else if (entry.state != State::kSilent && entry.asked >= options_.asks) {
    entry.state = State::kSilent;
    silent_.push_back(id);
  }
  ask(entry, now);
}

void Neighbours::on_timeout(TimePoint now) {
  if (now < next_) return;
  for (Id id = 0; id < entries_.size(); ++id) {
    if (entries_[id].due <= now) elapse(id, now);
  }
  renew_next();
}

void Neighbours::renew_next() {
  next_ = kNever;
  for (const Entry& entry : entries_) next_ = std::min(next_, entry.due);
}

std::optional<Neighbours::Ask> Neighbours::poll_ask() {
  if (asks_.empty()) return std::nullopt;
  const Ask first = asks_.front();
  asks_.pop_front();
  return first;
}

std::optional<Neighbours::Id> Neighbours::poll_silent() {
  if (silent_.empty()) return std::nullopt;
  const Id first = silent_.front();
  silent_.pop_front();
  return first;
}

bool Neighbours::is_consistent() const {
  std::size_t used = 0;
  for (const Entry& entry : entries_) {
    if (entry.wanted == 0 && entry.state != State::kUnused && entry.state != State::kKnown) return false;
    if (entry.wanted > 0 && entry.state == State::kUnused) return false;
    if ((entry.state == State::kUnused) != (entry.due == kNever)) return false;
    if (entry.due < next_) return false;
    used += entry.state != State::kUnused ? 1u : 0u;
  }
  return used == by_ip_.size() && used <= options_.most && asks_.size() <= used * (options_.asks + 2u) + 64;
}

}  // namespace clustar::transport::io::dpdk
