// What the driver carries: a loop of bursts, with nothing around it. Full frames from memory that no cache holds,
// copied into packet buffers, out of one port, into another, looked at by nobody.
//
// Thread rule: one thread.
#pragma once

#include <rte_mbuf.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench/dpdk/sample.h"
#include "bench/dpdk/wire.h"
#include "transport/base/result.h"
#include "transport/io/dpdk/buffers.h"
#include "transport/io/dpdk/ethernet_device.h"

namespace clustar::bench::dpdk {

class BareLoop {
 public:
  // Errors: as EthernetDevice::open's; the ports do not find each other.
  static Result<std::unique_ptr<BareLoop>> open(const PortPair& ports);
  ~BareLoop();
  BareLoop(const BareLoop&) = delete;
  BareLoop& operator=(const BareLoop&) = delete;

  // Error: nothing passes.
  Result<Sample> run(std::chrono::nanoseconds time);

 private:
  static constexpr std::size_t kBurst = 32;

  BareLoop() = default;
  Result<void> start(const PortPair& ports);
  void fill();
  void send();
  void receive();

  transport::io::dpdk::Pool pool_;  // outlives the ports, whose rings hold its buffers
  std::unique_ptr<transport::io::dpdk::EthernetDevice> from_;
  std::unique_ptr<transport::io::dpdk::EthernetDevice> to_;
  std::uint16_t from_port_ = 0;
  std::uint16_t to_port_ = 0;
  std::vector<std::byte> header_;
  std::vector<std::byte> memory_;
  std::size_t next_ = 0;            // in memory_
  std::vector<rte_mbuf*> waiting_;  // filled, and not taken yet
  std::uint64_t sent_ = 0;
  std::uint64_t received_ = 0;
};

}  // namespace clustar::bench::dpdk
