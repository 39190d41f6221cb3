#include "bench/dpdk/bare_loop.h"

#include <rte_ethdev.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "bench/dpdk/ports.h"
#include "transport/io/dpdk/core/device_spec.h"
#include "transport/io/dpdk/core/ethernet.h"

namespace clustar::bench::dpdk {
namespace {

using namespace transport::io::dpdk;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kPayload = 1500 - kIpv4Bytes - kUdpBytes;
constexpr std::size_t kMemory = 64 << 20;
// On their way at most: fewer than a ring holds, so that nothing is lost for want of a reader.
constexpr std::uint64_t kInFlight = 512;
constexpr auto kSilence = std::chrono::seconds(1);

Result<std::unique_ptr<EthernetDevice>> open_port(const std::string& device) {
  const auto specs = parse_devices(device);
  if (!specs) return tl::unexpected(specs.error());
  return EthernetDevice::open(specs->front(), {});
}

}  // namespace

Result<std::unique_ptr<BareLoop>> BareLoop::open(const PortPair& ports) {
  std::unique_ptr<BareLoop> loop(new BareLoop);
  if (const auto started = loop->start(ports); !started) return tl::unexpected(started.error());
  return loop;
}

BareLoop::~BareLoop() {
  for (rte_mbuf* frame : waiting_) rte_pktmbuf_free(frame);
}

Result<void> BareLoop::start(const PortPair& ports) {
  auto to = open_port(ports.to);
  if (!to) return tl::unexpected(to.error());
  auto from = open_port(ports.from);
  if (!from) return tl::unexpected(from.error());
  from_ = std::move(*from);
  to_ = std::move(*to);
  auto pool = make_pool(4096, kUdpHeaderBytes + kPayload, 0);
  if (!pool) return tl::unexpected(pool.error());
  pool_ = std::move(*pool);
  const auto from_port = port_of(ports.from);
  const auto to_port = port_of(ports.to);
  if (!from_port || !to_port) return tl::unexpected((from_port ? to_port : from_port).error());
  from_port_ = *from_port;
  to_port_ = *to_port;
  header_.resize(kUdpHeaderBytes);
  write_udp(header_, {from_->mac(), to_->mac(), 0x0a080001, 0x0a080002, 16384, 16384}, kPayload, 0);
  memory_.resize(kMemory, std::byte{1});
  return wait_for_link(from_port_);
}

void BareLoop::fill() {
  std::array<rte_mbuf*, kBurst> frames;
  if (rte_pktmbuf_alloc_bulk(pool_.get(), frames.data(), kBurst) != 0) return;
  for (rte_mbuf* frame : frames) {
    char* const at = rte_pktmbuf_append(frame, kUdpHeaderBytes + kPayload);
    std::memcpy(at, header_.data(), kUdpHeaderBytes);
    if (next_ + kPayload > kMemory) next_ = 0;
    std::memcpy(at + kUdpHeaderBytes, memory_.data() + next_, kPayload);
    next_ += kPayload;
    waiting_.push_back(frame);
  }
}

void BareLoop::send() {
  if (waiting_.empty() && sent_ - received_ + kBurst <= kInFlight) fill();
  if (waiting_.empty()) return;
  const std::uint16_t taken =
      rte_eth_tx_burst(from_port_, 0, waiting_.data(), static_cast<std::uint16_t>(waiting_.size()));
  waiting_.erase(waiting_.begin(), waiting_.begin() + taken);
  sent_ += taken;
}

void BareLoop::receive() {
  std::array<rte_mbuf*, 2 * kBurst> frames;
  const std::uint16_t got = rte_eth_rx_burst(to_port_, 0, frames.data(), frames.size());
  for (std::uint16_t i = 0; i < got; ++i) {
    // The kernel of a virtual interface sends frames of its own.
    received_ += frames[i]->pkt_len == kUdpHeaderBytes + kPayload ? 1u : 0u;
    rte_pktmbuf_free(frames[i]);
  }
}

Result<Sample> BareLoop::run(std::chrono::nanoseconds time) {
  const std::uint64_t before = received_;
  std::uint64_t seen = received_;
  const auto begin = Clock::now();
  auto moved = begin;
  auto now = begin;
  for (; now - begin < time; now = Clock::now()) {
    for (int i = 0; i < 16; ++i) {
      send();
      receive();
    }
    if (received_ != seen) {
      seen = received_;
      moved = now;
    }
    if (now - moved > kSilence) return fail(ErrorCode::kUnavailable, "nothing passes the wire");
  }
  const std::uint64_t packets = received_ - before;
  return Sample{std::chrono::duration<double>(now - begin).count(), packets, packets * kPayload};
}

}  // namespace clustar::bench::dpdk
