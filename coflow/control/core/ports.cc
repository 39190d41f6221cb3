#include "coflow/control/core/ports.h"

#include <algorithm>
#include <utility>

namespace clustar::coflow::control {

Ports::Ports(const Topology& topology, std::uint64_t bytes_per_second)
    : topology_(topology), bytes_per_second_(bytes_per_second) {
  for (const auto& [name, unused] : topology_.uplinks) {
    leaf_index_.emplace(name, static_cast<std::uint32_t>(leaf_index_.size()));
  }
}

std::uint32_t Ports::take(const Hello& hello) {
  const auto next = static_cast<std::uint32_t>(free_.empty() ? ports_.size() : free_.back());
  // Containers and namespaces may have one name: their addresses tell them apart.
  std::string name = hello.host + "/" + hello.nic;
  for (const std::uint32_t address : hello.addresses) name += "/" + std::to_string(address);
  const auto [found, added] = by_name_.emplace(std::move(name), next);
  if (added) {
    if (free_.empty()) {
      ports_.emplace_back();
    } else {
      free_.pop_back();
    }
    const auto leaf = topology_.leaves.find(hello.host);
    ports_[next] = {found->first, leaf == topology_.leaves.end() ? std::string() : leaf->second, 0, 0, {}};
  }
  Port& port = ports_[found->second];
  port.bytes_per_second = hello.bytes_per_second > 0 ? hello.bytes_per_second : bytes_per_second_;
  ++port.agents;
  for (const std::uint32_t address : hello.addresses) {
    if (by_address_.emplace(address, found->second).second) port.addresses.push_back(address);
  }
  return found->second;
}

void Ports::give_back(std::uint32_t index) {
  Port& port = ports_[index];
  if (--port.agents > 0) return;
  by_name_.erase(port.name);
  for (const std::uint32_t address : port.addresses) by_address_.erase(address);
  port = {};
  free_.push_back(index);
}

void Ports::add_load(std::uint32_t load, double seconds) {
  if (seconds <= 0) return;
  if (scratch_[load] == 0) touched_.push_back(load);
  scratch_[load] += seconds;
}

void Ports::add_uplink(const std::string& leaf, bool in, double bytes) {
  const auto found = leaf_index_.find(leaf);
  if (found == leaf_index_.end()) return;
  add_load(2 * found->second + (in ? 1 : 0), bytes / static_cast<double>(topology_.uplinks.at(leaf)));
}

void Ports::add(std::uint32_t index, const ClassReport& report, std::uint64_t bytes) {
  if (bytes == 0) return;
  const Port& port = ports_[index];
  add_load(load_of(index, false), static_cast<double>(bytes) / static_cast<double>(port.bytes_per_second));
  double queued = 0;
  for (const PeerLoad& load : report.peers) queued += static_cast<double>(load.bytes);
  if (queued == 0) return add_uplink(port.leaf, false, static_cast<double>(bytes));
  // Where it goes is known of what is queued; the rest goes the same way.
  for (const PeerLoad& load : report.peers) {
    const double part = static_cast<double>(bytes) * (static_cast<double>(load.bytes) / queued);
    const auto found = by_address_.find(load.peer);
    if (found == by_address_.end()) {
      add_uplink(port.leaf, false, part);
      continue;
    }
    const Port& there = ports_[found->second];
    add_load(load_of(found->second, true), part / static_cast<double>(there.bytes_per_second));
    if (there.leaf == port.leaf) continue;
    add_uplink(port.leaf, false, part);
    add_uplink(there.leaf, true, part);
  }
}

std::vector<BssiItem::Load> Ports::take_loads() {
  std::sort(touched_.begin(), touched_.end());  // agents' parts come in no order
  std::vector<BssiItem::Load> all;
  for (const std::uint32_t load : touched_) {
    all.push_back({load, scratch_[load]});
    scratch_[load] = 0;
  }
  touched_.clear();
  return all;
}

}  // namespace clustar::coflow::control
