// A World on one switch.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "tests/sim/mlt_world.h"

namespace clustar::mlt::test {

// 100 Gbit/s, 10 us there and back.
struct Star {
  explicit Star(std::uint32_t hosts, const Options& given = {}, std::uint64_t buffer = 1 << 20, std::uint64_t seed = 1)
      : simulation({seed, 66}), options(given) {
    sim::StarOptions star;
    star.hosts = hosts;
    star.link.delay = Duration(2500);
    star.switches.buffer_bytes = buffer;
    star.switches.mark_above = sim::every_class<std::uint64_t>(65 * 1500);
    star.host.tx_queue_packets = 4;
    network = sim::Network::star(simulation, star);
    options.base_rtt = std::chrono::microseconds(10);
    options.max_tolerance_ppm = 1'000'000;
    world = std::make_unique<World>(simulation, *network, options, seed);
  }
  sim::Simulation simulation;
  Options options;
  std::unique_ptr<sim::Network> network;
  std::unique_ptr<World> world;
};

// May lose as much, as one of eight ranks.
inline SendTerms tolerant(std::uint32_t ppm, std::uint64_t collective_bytes) {
  SendTerms terms;
  terms.tolerant = true;
  terms.ranks = terms.edges = 8;
  terms.collective_bytes = collective_bytes;
  terms.tolerance_ppm = ppm;
  return terms;
}

}  // namespace clustar::mlt::test
