// One process that receives a collective by two NICs: what it may lose is the process's.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "mlt/core/ledger.h"
#include "tests/conformance/mlt_loss_bed.h"
#include "transport/io/packet_backend.h"
#include "transport/io/udp/udp_backend.h"

namespace clustar::transport::conformance {
namespace {

// Loopback as two NICs.
class TwoNics final : public io::PacketBackend {
 public:
  explicit TwoNics(std::unique_ptr<io::PacketBackend> inner) : inner_(std::move(inner)) {}
  const char* name() const override { return inner_->name(); }
  Result<std::vector<io::DeviceInfo>> devices() override {
    auto devices = inner_->devices();
    if (!devices) return devices;
    devices->resize(1);
    devices->push_back(devices->front());
    devices->front().name += "-a";
    devices->back().name += "-b";
    return devices;
  }
  Result<std::unique_ptr<io::PacketIo>> open(std::size_t) override { return inner_->open(0); }

 private:
  const std::unique_ptr<io::PacketBackend> inner_;
};

Result<std::unique_ptr<io::PacketBackend>> open_two(const Config& config) {
  auto inner = io::udp::UdpBackend::create(config);
  if (!inner) return inner;
  return std::make_unique<TwoNics>(std::move(*inner));
}

class MltNics : public MltLossBed {};

// The latest step of a ring of four, so that each byte counts three: what p of the eligible bytes of a NIC allows is
// more than all of the bound. So each NIC first carries an eighth alone, of which it surely loses something; then it is
// chance who is first at what is left.
TEST_F(MltNics, WhatTwoOfThemLoseOfACollectiveIsWithinOneBound) {
  for (const char* engine : {"auto", "inline", "thread"}) {
    SCOPED_TRACE(engine);
    constexpr std::uint64_t kBytes = 32 * kMiB;
    const auto from = create({.engine = engine, .wrap = faults("loss=0.03"), .backend = open_two});
    const auto to = create({.engine = engine, .backend = open_two});
    LossTerms terms = one_percent_of(kBytes);
    terms.collective_bytes = kBytes;
    terms.stage = kRanks - 2;
    const std::uint64_t bound =
        mlt::loss_bound({terms.collective_bytes, terms.ranks, terms.edges, terms.tolerance_ppm});
    Waiting waiting(*from, *to);
    std::vector<Connection> channels;
    std::uint64_t missing = 0;
    const auto carry = [&](std::vector<Connection>& over, std::uint64_t bytes) {
      const Came came = run(over, bytes / kMiB, kMiB, {.loss = terms}, &waiting);
      EXPECT_EQ(came.not_zero + came.different, 0u);
      missing += came.missing;
    };
    for (const int nic : {0, 1}) {
      std::vector<Connection> alone;
      alone.push_back(connect(*from, *to, kOptedIn, nic));
      carry(alone, kBytes / 8);
      channels.push_back(std::move(alone.front()));
    }
    carry(channels, kBytes * 3 / 4);
    EXPECT_LE(missing * (terms.stage + 1u), bound);
    std::uint64_t charged = 0;
    for (const DeviceCounters& device : to->counters().devices) {
      EXPECT_GT(device.total.received.bytes, kBytes / 4) << device.device;
      EXPECT_GT(device.total.missing_bytes, 0u) << device.device;
      for (const auto& own : device.own) charged += own.name == "charged_contribution_bytes" ? own.value : 0;
    }
    EXPECT_EQ(charged, missing * (terms.stage + 1u));
    EXPECT_GT(charged, bound * 3 / 4) << "the network lost enough for more than one bound";
  }
}

}  // namespace
}  // namespace clustar::transport::conformance
