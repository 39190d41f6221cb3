#include "nccl_plugin/loss/comm_registry.h"

namespace clustar::nccl_plugin {

void CommRegistry::add_net(std::uint64_t comm_id, int traffic_class) {
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_[comm_id];
  entry.facts.comm_id = comm_id;
  if (entry.net_users++ == 0) entry.facts.traffic_class = traffic_class;
}

void CommRegistry::add_profiler(const CommFacts& facts) {
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_[facts.comm_id];
  if (entry.profiler_users++ > 0) return;
  const int traffic_class = entry.facts.traffic_class;
  const auto collnet_wins = entry.facts.collnet_wins;
  entry.facts = facts;
  entry.facts.traffic_class = traffic_class;
  entry.facts.collnet_wins = collnet_wins;
}

void CommRegistry::set_collnet(std::uint64_t comm_id, std::uint64_t wins) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(comm_id);
  if (found != entries_.end() && found->second.net_users > 0) found->second.facts.collnet_wins = wins;
}

// What one side told goes with its last user: an id may come back with another communicator.
void CommRegistry::remove_net(std::uint64_t comm_id) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(comm_id);
  if (found == entries_.end() || found->second.net_users == 0) return;
  if (--found->second.net_users == 0) {
    found->second.facts.traffic_class = CommFacts{}.traffic_class;
    found->second.facts.collnet_wins.reset();
  }
  erase_if_unused(comm_id);
}

void CommRegistry::remove_profiler(std::uint64_t comm_id) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(comm_id);
  if (found == entries_.end() || found->second.profiler_users == 0) return;
  if (--found->second.profiler_users == 0) {
    CommFacts facts;
    facts.comm_id = comm_id;
    facts.traffic_class = found->second.facts.traffic_class;
    facts.collnet_wins = found->second.facts.collnet_wins;
    found->second.facts = facts;
  }
  erase_if_unused(comm_id);
}

std::optional<CommFacts> CommRegistry::find(std::uint64_t comm_id) const {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(comm_id);
  if (found == entries_.end()) return std::nullopt;
  return found->second.facts;
}

void CommRegistry::erase_if_unused(std::uint64_t comm_id) {
  const auto found = entries_.find(comm_id);
  if (found->second.net_users == 0 && found->second.profiler_users == 0) entries_.erase(found);
}

}  // namespace clustar::nccl_plugin
