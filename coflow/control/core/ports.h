// The ports of the network, and how long a class needs at each: NICs of hosts, each way, and uplinks of their switches,
// if the topology is known; otherwise the network is one big switch. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "coflow/control/core/messages.h"
#include "coflow/core/bssi_order.h"

namespace clustar::coflow::control {

struct Topology {
  std::map<std::string, std::string> leaves{};     // by host: its switch. Empty: one big switch
  std::map<std::string, std::uint64_t> uplinks{};  // by switch: bytes per second of its uplinks, each way, > 0
};

class Ports {
 public:
  // `bytes_per_second`: of a port whose agents do not know it, > 0.
  Ports(const Topology& topology, std::uint64_t bytes_per_second);

  // The port of an agent; agents of one host and NIC, with the same addresses, share it. Numbers of those that nobody
  // has are given out again.
  std::uint32_t take(const Hello& hello);
  void give_back(std::uint32_t port);
  std::uint64_t bytes_per_second(std::uint32_t port) const { return ports_[port].bytes_per_second; }
  double seconds(std::uint32_t port, std::uint64_t bytes) const {
    return static_cast<double>(bytes) / static_cast<double>(ports_[port].bytes_per_second);
  }

  // Seconds that a class needs at each port, as numbers below loads(): begin, add each agent's part, take.
  // A port keeps its number.
  std::size_t loads() const { return 2 * (leaf_index_.size() + ports_.size()); }
  void begin() { scratch_.resize(loads(), 0); }
  void add(std::uint32_t port, const ClassReport& report, std::uint64_t bytes);
  std::vector<BssiItem::Load> take_loads();

 private:
  struct Port {
    std::string name{};
    std::string leaf{};
    std::uint64_t bytes_per_second = 0;
    std::uint32_t agents = 0;
    std::vector<std::uint32_t> addresses{};
  };
  std::uint32_t load_of(std::uint32_t port, bool in) const {
    return static_cast<std::uint32_t>(2 * (leaf_index_.size() + port) + (in ? 1 : 0));
  }
  void add_load(std::uint32_t load, double seconds);
  void add_uplink(const std::string& leaf, bool in, double bytes);

  const Topology topology_;
  const std::uint64_t bytes_per_second_;
  std::map<std::string, std::uint32_t> leaf_index_;
  std::vector<Port> ports_;
  std::vector<std::uint32_t> free_;
  std::map<std::string, std::uint32_t> by_name_;
  std::unordered_map<std::uint32_t, std::uint32_t> by_address_;
  std::vector<double> scratch_;         // of one class, by load
  std::vector<std::uint32_t> touched_;  // of them those above 0
};

}  // namespace clustar::coflow::control
