// Networks of usual shapes. A Network owns its hosts, switches and ports, and stays in place.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "transport/sim/host.h"
#include "transport/sim/switch.h"

namespace clustar::transport::sim {

struct PairOptions {
  LinkOptions link;
  HostOptions host;
};
struct StarOptions {
  std::uint32_t hosts = 2;
  LinkOptions link;  // each direction of each cable
  HostOptions host;
  SwitchOptions switches;
};
struct LeafSpineOptions {
  std::uint32_t leaves = 2;
  std::uint32_t hosts_per_leaf = 2;
  std::uint32_t spines = 2;
  LinkOptions host_link;
  std::optional<LinkOptions> from_host = {};  // the direction from the host, where it differs from host_link
  LinkOptions fabric_link;
  HostOptions host;
  SwitchOptions switches;
};

class Network {
 public:
  static std::unique_ptr<Network> pair(Simulation& simulation, const PairOptions& options);
  static std::unique_ptr<Network> star(Simulation& simulation, const StarOptions& options);
  // Hosts are numbered leaf by leaf. A packet's source, destination and path choose its spine.
  static std::unique_ptr<Network> leaf_spine(Simulation& simulation, const LeafSpineOptions& options);

  std::uint32_t hosts() const { return static_cast<std::uint32_t>(hosts_.size()); }
  Host& host(HostId id) { return *hosts_[id]; }
  // By its position: a star's only switch is 0; leaves come first, spines follow.
  Switch& switch_at(std::size_t index) { return *switches_[index]; }
  std::size_t switches() const { return switches_.size(); }

  // The two directions of a host's cable, as seen from the host.
  Port& up(HostId id) { return hosts_[id]->nic(); }
  Port& down(HostId id);
  // leaf_spine only.
  Port& leaf_to_spine(std::uint32_t leaf, std::uint32_t spine);
  Port& spine_to_leaf(std::uint32_t spine, std::uint32_t leaf);
  std::uint32_t spine_of(HostId source, HostId destination, std::uint8_t path) const {
    return ecmp_choice(source, destination, path, spines_);
  }

  // Sums over all ports and hosts.
  Drops drops();
  std::uint64_t packets_sent();  // a packet counts once for each link it crosses

 private:
  Network() = default;
  void add_hosts(Simulation& simulation, std::uint32_t count, const HostOptions& options);

  std::vector<std::unique_ptr<Host>> hosts_;
  std::vector<std::unique_ptr<Switch>> switches_;
  std::uint32_t hosts_per_leaf_ = 0;
  std::uint32_t leaves_ = 0;
  std::uint32_t spines_ = 0;
};

}  // namespace clustar::transport::sim
