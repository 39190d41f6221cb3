#include "transport/io/dpdk/ethernet_device.h"

#include <fmt/format.h>
#include <rte_dev.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <bit>
#include <mutex>
#include <string>
#include <string_view>

#include "transport/io/dpdk/eal.h"
#include "transport/io/dpdk/kernel_interface.h"
#include "transport/io/dpdk/kernel_side.h"

namespace clustar::transport::io::dpdk {
namespace {

constexpr std::size_t kUsualMtu = 1500;
// A VLAN's tag and the checksum, which some drivers count.
constexpr std::size_t kAround = kEthernetBytes + 8;
constexpr std::size_t kLeastRoom = 2048;
constexpr std::size_t kMostRoom = 32768;
constexpr std::uint16_t kBurst = 64;

// Devices come and go one at a time in DPDK.
std::mutex& hotplug() {
  static std::mutex mutex;
  return mutex;
}

// The ring that net_af_packet shares with the kernel has frames of 2,048 bytes, unless it is told otherwise.
std::string arguments_for(const DeviceSpec& spec, std::size_t mtu, const PortOptions& options,
                          const SteeringProgram* steering) {
  std::string whole = spec.whole();
  const std::string_view queues = spec.queues_argument();
  if (options.queues > 1 && !queues.empty() && !spec.argument(queues)) {
    whole += fmt::format(",{}={}", queues, options.queues);
  }
  if (steering != nullptr) whole += ",xdp_prog=" + steering->path();
  if (spec.driver() != "net_af_packet" || spec.argument("framesz")) return whole;
  const std::size_t frame = std::bit_ceil(std::max<std::size_t>(mtu + 256, kLeastRoom));
  whole += fmt::format(",framesz={},blocksz={}", frame, std::max<std::size_t>(frame, 4096));
  if (!spec.argument("framecnt")) whole += fmt::format(",framecnt={}", std::bit_ceil(options.descriptors));
  return whole;
}

// Of the sockets by which a driver receives; 0: it has none.
int socket_family(const DeviceSpec& spec) {
  if (spec.driver() == "net_af_packet") return AF_PACKET;
  return spec.driver() == "net_af_xdp" ? AF_XDP : 0;
}

}  // namespace

Result<void> EthernetDevice::failed(const char* what, int code) const {
  const std::string said = take_complaints();
  return fail(ErrorCode::kUnavailable, fmt::format("dpdk: {}: {}: {}{}{}", spec_.name, what, rte_strerror(-code),
                                                   said.empty() ? "" : ": ", said));
}

Result<std::unique_ptr<EthernetDevice>> EthernetDevice::open(const DeviceSpec& spec, const PortOptions& options) {
  std::unique_ptr<EthernetDevice> device(new EthernetDevice(spec));
  PortOptions with = options;
  const std::string interface = spec.argument("iface").value_or("");
  if (const auto kernels = kernel_interface(interface); kernels && with.mtu == 0) with.mtu = kernels->mtu;
  if (const auto started = device->start(with); !started) return tl::unexpected(started.error());
  return device;
}

Result<void> EthernetDevice::start(const PortOptions& options) {
  const std::lock_guard lock(hotplug());
  take_complaints();
  const int family = socket_family(spec_);
  const std::vector<int> before = family == 0 ? std::vector<int>() : sockets_of(family);
  if (rte_eth_dev_get_port_by_name(spec_.name.c_str(), &port_) != 0) {
    if (const auto prepared = prepare_xdp(options); !prepared) return prepared;
    const std::string arguments =
        arguments_for(spec_, options.mtu == 0 ? kUsualMtu : options.mtu, options, steering_ ? &*steering_ : nullptr);
    if (const int code = rte_dev_probe(arguments.c_str()); code != 0) {
      auto lacks = failed("no such device of DPDK", code);
      lacks.error().message += "; `clustar doctor dpdk` says what lacks";
      return lacks;
    }
    const int code = rte_eth_dev_get_port_by_name(spec_.name.c_str(), &port_);
    if (code != 0) return failed("its driver makes no port", code);
  }
  there_ = true;
  if (const auto configured = configure(options); !configured) return configured;
  if (family != 0) find_sockets(before);
  return {};
}

// A port with a program of the user's own is the user's affair.
Result<void> EthernetDevice::prepare_xdp(const PortOptions& options) {
  if (spec_.driver() != "net_af_xdp" || spec_.argument("xdp_prog")) return {};
  auto taken =
      XdpInterface::take(spec_.argument("iface").value_or(""), options.beside_kernel, spec_.queues(options.queues));
  if (!taken) return tl::unexpected(taken.error());
  xdp_ = std::move(*taken);
  if (!options.beside_kernel) return {};
  auto steering = SteeringProgram::make();
  if (!steering) return tl::unexpected(steering.error());
  steering_ = std::move(*steering);
  return {};
}

// DPDK does not name them. Where others came at the same moment, which of them are the driver's is not known.
void EthernetDevice::find_sockets(std::span<const int> before) {
  for (const int socket : sockets_of(socket_family(spec_))) {
    if (std::ranges::find(before, socket) == before.end()) sockets_.push_back(socket);
  }
  if (sockets_.size() != queues()) sockets_.clear();
}

Result<void> EthernetDevice::set_mtu(std::size_t wanted, std::uint32_t longest_frame) {
  std::uint16_t now = 0;
  if (const int code = rte_eth_dev_get_mtu(port_, &now); code != 0) return failed("its MTU is unknown", code);
  mtu_ = wanted == 0 ? now : wanted;
  if (mtu_ == now || spec_.pci) {
    const int code = mtu_ == now ? 0 : rte_eth_dev_set_mtu(port_, static_cast<std::uint16_t>(mtu_));
    if (code != 0) return failed(fmt::format("an MTU of {}", mtu_).c_str(), code);
    return {};
  }
  // Virtual devices carry what their rings hold, whatever they say of themselves; only a lower limit would be theirs.
  if (longest_frame > kUsualMtu + kAround) mtu_ = std::min<std::size_t>(mtu_, longest_frame - kAround);
  return {};
}

Result<void> EthernetDevice::configure(const PortOptions& options) {
  rte_eth_dev_info info{};
  if (const int code = rte_eth_dev_info_get(port_, &info); code != 0) return failed("it says nothing of itself", code);
  driver_ = info.driver_name == nullptr ? "?" : info.driver_name;
  rte_eth_conf conf{};
  // Of drivers that copy a frame while they take it. Others may read it later; a NIC does so by DMA, for which a user's
  // memory is not mapped.
  const std::string_view driver = spec_.driver();
  const bool copies =
      driver == "net_af_packet" || driver == "net_tap" || (driver == "net_memif" && !spec_.argument("zero-copy"));
  gathers_ = copies && (info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MULTI_SEGS) != 0;
  if (gathers_) conf.txmode.offloads |= RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
  // net_tap, which sums in software, gets it wrong where a payload lies elsewhere behind an odd number of bytes.
  constexpr std::uint64_t kChecksums = RTE_ETH_TX_OFFLOAD_UDP_CKSUM | RTE_ETH_TX_OFFLOAD_IPV4_CKSUM;
  fills_checksums_ = !gathers_ && (info.tx_offload_capa & kChecksums) == kChecksums;
  if (fills_checksums_) conf.txmode.offloads |= kChecksums;
  constexpr std::uint64_t kChecks = RTE_ETH_RX_OFFLOAD_UDP_CKSUM | RTE_ETH_RX_OFFLOAD_IPV4_CKSUM;
  conf.rxmode.offloads |= info.rx_offload_capa & kChecks;
  if (spec_.pci && options.mtu != 0) conf.rxmode.mtu = static_cast<std::uint32_t>(options.mtu);
  std::uint32_t queues =
      std::min<std::uint32_t>({spec_.queues(options.queues), info.max_rx_queues, info.max_tx_queues});
  if (spec_.pci && queues > 1) {
    // By addresses and ports, so that the packets of a path come by one queue.
    conf.rx_adv_conf.rss_conf.rss_hf = info.flow_type_rss_offloads & (RTE_ETH_RSS_IPV4 | RTE_ETH_RSS_NONFRAG_IPV4_UDP);
    conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
    if (conf.rx_adv_conf.rss_conf.rss_hf == 0) {
      conf.rxmode.mq_mode = RTE_ETH_MQ_RX_NONE;
      queues = 1;
    }
  }
  outgoing_.resize(queues);
  const auto count = static_cast<std::uint16_t>(queues);
  if (const int code = rte_eth_dev_configure(port_, count, count, &conf); code != 0) {
    return failed("its configuration", code);
  }
  if (const auto set = set_mtu(options.mtu, info.max_rx_pktlen); !set) return set;
  numa_node_ = rte_eth_dev_socket_id(port_);
  if (const auto set = set_up_queues(options); !set) return set;
  if (const int code = rte_eth_dev_start(port_); code != 0) return failed("it does not start", code);
  rte_ether_addr mac{};
  if (const int code = rte_eth_macaddr_get(port_, &mac); code != 0) return failed("it has no MAC", code);
  std::ranges::copy(mac.addr_bytes, mac_.begin());
  rte_eth_link link{};
  if (spec_.pci && rte_eth_link_get_nowait(port_, &link) == 0 && link.link_speed != RTE_ETH_SPEED_NUM_UNKNOWN) {
    line_rate_bps_ = std::uint64_t{link.link_speed} * 1'000'000;
  }
  return {};
}

Result<void> EthernetDevice::set_up_queues(const PortOptions& options) {
  const bool is_xdp = spec_.driver() == "net_af_xdp";
  // The kernel's rings have a power of two.
  const std::uint32_t descriptors = is_xdp ? std::bit_ceil(options.descriptors) : options.descriptors;
  auto receives = static_cast<std::uint16_t>(descriptors);
  auto sends = receives;
  if (const int code = rte_eth_dev_adjust_nb_rx_tx_desc(port_, &receives, &sends); code != 0) {
    return failed("its rings", code);
  }
  const auto queues = static_cast<std::uint32_t>(outgoing_.size());
  const std::uint32_t buffers = is_xdp ? buffers_of_xdp_port(queues, descriptors, options.held)
                                       : buffers_of_port(queues, std::uint32_t{receives} + sends, options.held);
  if (const auto set = set_up_receive(receives, buffers); !set) return set;
  for (std::uint16_t queue = 0; queue < queues; ++queue) {
    const int code = rte_eth_tx_queue_setup(port_, queue, sends, static_cast<unsigned>(numa_node_), nullptr);
    if (code != 0) return failed("its transmit queue", code);
  }
  return {};
}

Result<void> EthernetDevice::set_up_receive(std::uint16_t descriptors, std::uint32_t buffers) {
  // Some drivers want room for the longest frame of their own ring, which they do not tell.
  int code = -EINVAL;
  for (std::size_t room = std::max(mtu_ + kAround, kLeastRoom); room <= kMostRoom; room *= 2) {
    auto pool = spec_.driver() == "net_af_xdp" ? make_pool_of_pages(buffers, mtu_ + kAround, numa_node_)
                                               : make_pool(buffers, room, numa_node_);
    if (!pool) return tl::unexpected(pool.error());
    take_complaints();
    code = 0;
    for (std::uint16_t queue = 0; queue < outgoing_.size() && code == 0; ++queue) {
      code = rte_eth_rx_queue_setup(port_, queue, descriptors, static_cast<unsigned>(numa_node_), nullptr, pool->get());
      if (code == 0) xdp_.keep();
    }
    if (code == 0) {
      pool_ = std::move(*pool);
      return {};
    }
    if (spec_.driver() == "net_af_xdp") break;  // its room is what one page holds
  }
  return failed(fmt::format("its receive queue, at an MTU of {}", mtu_).c_str(), code);
}

// Its ring outlives the port, and would give the next one frames of a pool that is gone.
void EthernetDevice::empty_ring() {
  std::array<rte_mbuf*, kBurst> frames;
  while (const std::size_t got = receive(frames)) rte_pktmbuf_free_bulk(frames.data(), static_cast<unsigned>(got));
}

EthernetDevice::~EthernetDevice() {
  drop_waiting();
  if (!there_) return;
  if (spec_.driver() == "net_ring" && pool_ != nullptr) empty_ring();
  const std::lock_guard lock(hotplug());
  const auto close = [this] {
    rte_eth_dev_info info{};
    const bool known = rte_eth_dev_info_get(port_, &info) == 0;
    rte_eth_dev_stop(port_);
    rte_eth_dev_close(port_);
    if (known && info.device != nullptr) rte_dev_remove(info.device);
  };
  // The end of a peer makes net_memif free, in a handler, what closing frees, too.
  if (spec_.driver() == "net_memif") {
    run_between_events(close);
  } else {
    close();
  }
}

std::string EthernetDevice::describe() const {
  return fmt::format("{} ({}{}{}), MTU {}", spec_.name, driver_, fills_checksums_ ? ", checksums by the device" : "",
                     queues() > 1 ? fmt::format(", {} queues", queues()) : "", mtu_);
}

Buffer EthernetDevice::take(std::size_t bytes) {
  Buffer buffer(rte_pktmbuf_alloc(pool_.get()));
  if (buffer && rte_pktmbuf_append(buffer.get(), static_cast<std::uint16_t>(bytes)) == nullptr) buffer.reset();
  return buffer;
}

void EthernetDevice::seal(rte_mbuf& frame) const {
  if (!fills_checksums_) {
    finish_udp(head_of(frame), rest_of(frame));
    return;
  }
  frame.l2_len = kEthernetBytes;
  frame.l3_len = kIpv4Bytes;
  frame.ol_flags |= RTE_MBUF_F_TX_IPV4 | RTE_MBUF_F_TX_UDP_CKSUM;
}

bool EthernetDevice::flush() {
  bool empty = true;
  const auto count = static_cast<std::uint16_t>(outgoing_.size());
  for (std::uint16_t queue = 0; queue < count; ++queue) {
    std::vector<rte_mbuf*>& waiting = outgoing_[queue];
    std::size_t sent = 0;
    while (sent < waiting.size()) {
      const auto burst = static_cast<std::uint16_t>(std::min<std::size_t>(waiting.size() - sent, kBurst));
      const std::uint16_t taken = rte_eth_tx_burst(port_, queue, waiting.data() + sent, burst);
      sent += taken;
      if (taken < burst) break;
    }
    waiting.erase(waiting.begin(), waiting.begin() + static_cast<std::ptrdiff_t>(sent));
    empty = empty && waiting.empty();
  }
  return empty;
}

void EthernetDevice::drop_waiting() {
  for (std::vector<rte_mbuf*>& waiting : outgoing_) {
    for (rte_mbuf* frame : waiting) rte_pktmbuf_free(frame);
    waiting.clear();
  }
}

std::size_t EthernetDevice::waiting_bytes() const {
  std::size_t sum = 0;
  for (const auto& queue : outgoing_) {
    for (const rte_mbuf* frame : queue) sum += frame->pkt_len;
  }
  return sum;
}

// Each call begins with another queue, so that a busy one does not keep the others waiting.
std::size_t EthernetDevice::receive(std::span<rte_mbuf*> frames) {
  const std::size_t count = queues();
  std::size_t got = 0;
  for (std::size_t i = 0; i < count && got < frames.size(); ++i) {
    const auto queue = static_cast<std::uint16_t>((next_ + i) % count);
    got += rte_eth_rx_burst(port_, queue, frames.data() + got, static_cast<std::uint16_t>(frames.size() - got));
  }
  next_ = (next_ + 1) % count;
  return got;
}

int speed_of(const DeviceSpec& spec) {
  constexpr struct {
    std::uint32_t capability;
    int mbps;
  } kSpeeds[] = {{RTE_ETH_LINK_SPEED_200G, 200'000}, {RTE_ETH_LINK_SPEED_100G, 100'000},
                 {RTE_ETH_LINK_SPEED_50G, 50'000},   {RTE_ETH_LINK_SPEED_40G, 40'000},
                 {RTE_ETH_LINK_SPEED_25G, 25'000},   {RTE_ETH_LINK_SPEED_10G, 10'000},
                 {RTE_ETH_LINK_SPEED_1G, 1'000}};
  std::uint16_t port = 0;
  rte_eth_dev_info info{};
  if (!spec.pci || rte_eth_dev_get_port_by_name(spec.name.c_str(), &port) != 0) return 0;
  if (rte_eth_dev_info_get(port, &info) != 0) return 0;
  for (const auto& speed : kSpeeds) {
    if ((info.speed_capa & speed.capability) != 0) return speed.mbps;
  }
  return 0;
}

}  // namespace clustar::transport::io::dpdk
