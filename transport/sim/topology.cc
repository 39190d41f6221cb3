#include "transport/sim/topology.h"

#include <cassert>

namespace clustar::transport::sim {
namespace {

void add(Drops& sum, const Drops& more) {
  for (std::size_t i = 0; i < kDropCauses; ++i) sum.by_cause[i] += more.by_cause[i];
}

}  // namespace

void Network::add_hosts(Simulation& simulation, std::uint32_t count, const HostOptions& options) {
  for (HostId id = 0; id < count; ++id) hosts_.push_back(std::make_unique<Host>(simulation, id, options));
}

std::unique_ptr<Network> Network::pair(Simulation& simulation, const PairOptions& options) {
  std::unique_ptr<Network> network(new Network);
  network->add_hosts(simulation, 2, options.host);
  network->host(0).connect(options.link, network->host(1).node());
  network->host(1).connect(options.link, network->host(0).node());
  return network;
}

std::unique_ptr<Network> Network::star(Simulation& simulation, const StarOptions& options) {
  std::unique_ptr<Network> network(new Network);
  network->add_hosts(simulation, options.hosts, options.host);
  const Routing routing{.first_host = 0, .hosts = options.hosts, .hosts_per_port = 1, .uplinks = 0};
  network->switches_.push_back(std::make_unique<Switch>(simulation, options.switches, routing));
  Switch& center = network->switch_at(0);
  for (HostId id = 0; id < options.hosts; ++id) {
    network->host(id).connect(options.link, center.node());
    center.add_port(options.link, network->host(id).node());
  }
  network->hosts_per_leaf_ = options.hosts;
  network->leaves_ = 1;
  return network;
}

std::unique_ptr<Network> Network::leaf_spine(Simulation& simulation, const LeafSpineOptions& options) {
  const std::uint32_t hosts = options.leaves * options.hosts_per_leaf;
  std::unique_ptr<Network> network(new Network);
  network->add_hosts(simulation, hosts, options.host);
  network->hosts_per_leaf_ = options.hosts_per_leaf;
  network->leaves_ = options.leaves;
  network->spines_ = options.spines;
  for (std::uint32_t leaf = 0; leaf < options.leaves; ++leaf) {
    const Routing routing{.first_host = leaf * options.hosts_per_leaf,
                          .hosts = options.hosts_per_leaf,
                          .hosts_per_port = 1,
                          .uplinks = options.spines};
    network->switches_.push_back(std::make_unique<Switch>(simulation, options.switches, routing));
  }
  for (std::uint32_t spine = 0; spine < options.spines; ++spine) {
    const Routing routing{.first_host = 0, .hosts = hosts, .hosts_per_port = options.hosts_per_leaf, .uplinks = 0};
    network->switches_.push_back(std::make_unique<Switch>(simulation, options.switches, routing));
  }
  for (HostId id = 0; id < hosts; ++id) {
    Switch& leaf = network->switch_at(id / options.hosts_per_leaf);
    network->host(id).connect(options.from_host.value_or(options.host_link), leaf.node());
    leaf.add_port(options.host_link, network->host(id).node());
  }
  for (std::uint32_t leaf = 0; leaf < options.leaves; ++leaf) {
    for (std::uint32_t spine = 0; spine < options.spines; ++spine) {
      Switch& above = network->switch_at(options.leaves + spine);
      network->switch_at(leaf).add_port(options.fabric_link, above.node());
      above.add_port(options.fabric_link, network->switch_at(leaf).node());
    }
  }
  return network;
}

Port& Network::down(HostId id) {
  if (switches_.empty()) return hosts_[1 - id]->nic();  // a pair
  return switch_at(id / hosts_per_leaf_).port(id % hosts_per_leaf_);
}

Port& Network::leaf_to_spine(std::uint32_t leaf, std::uint32_t spine) {
  assert(leaf < leaves_ && spine < spines_);
  return switch_at(leaf).port(hosts_per_leaf_ + spine);
}

Port& Network::spine_to_leaf(std::uint32_t spine, std::uint32_t leaf) {
  assert(leaf < leaves_ && spine < spines_);
  return switch_at(leaves_ + spine).port(leaf);
}

Drops Network::drops() {
  Drops sum;
  for (auto& host : hosts_) {
    add(sum, host->counters().drops);
    add(sum, host->nic().counters().drops);
  }
  for (auto& one : switches_) {
    add(sum, one->unroutable());
    for (std::size_t i = 0; i < one->ports(); ++i) add(sum, one->port(i).counters().drops);
  }
  return sum;
}

std::uint64_t Network::packets_sent() {
  std::uint64_t sum = 0;
  for (auto& host : hosts_) sum += host->nic().counters().packets;
  for (auto& one : switches_) {
    for (std::size_t i = 0; i < one->ports(); ++i) sum += one->port(i).counters().packets;
  }
  return sum;
}

}  // namespace clustar::transport::sim
