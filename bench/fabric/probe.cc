#include "bench/fabric/probe.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "bench/fabric/namespaces.h"
#include "bench/fabric/topology.h"

namespace clustar::bench::fabric {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kBound = std::chrono::seconds(5);

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  ~Fd() { reset(); }
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    reset();
    fd_ = std::exchange(other.fd_, -1);
    return *this;
  }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void reset() {
    if (fd_ >= 0) close(std::exchange(fd_, -1));
  }

 private:
  int fd_ = -1;
};

tl::unexpected<Error> failed(const char* what) {
  return fail(ErrorCode::kSystem, fmt::format("cannot {}: {}", what, std::strerror(errno)));
}

// Sees every frame longer than `longer_than` on an interface of the namespace that it was opened in; on all with "".
class Tap {
 public:
  Result<void> open(const std::string& interface, std::uint32_t longer_than) {
    fd_ = Fd(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    std::array<sock_filter, 4> code{{{BPF_LD | BPF_W | BPF_LEN, 0, 0, 0},
                                     {BPF_JMP | BPF_JGT | BPF_K, 0, 1, longer_than},
                                     {BPF_RET | BPF_K, 0, 0, 0xffffffff},
                                     {BPF_RET | BPF_K, 0, 0, 0}}};
    const sock_fprog program{static_cast<unsigned short>(code.size()), code.data()};
    sockaddr_ll everything{};
    everything.sll_family = AF_PACKET;
    everything.sll_protocol = htons(ETH_P_ALL);
    everything.sll_ifindex = interface.empty() ? 0 : static_cast<int>(if_nametoindex(interface.c_str()));
    // Nothing comes before bind, so nothing passes by the filter.
    if (!fd_ || setsockopt(fd_.get(), SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) != 0 ||
        bind(fd_.get(), reinterpret_cast<const sockaddr*>(&everything), sizeof(everything)) != 0) {
      return failed("watch the switch's ports (AF_PACKET)");
    }
    return {};
  }
  int fd() const { return fd_.get(); }
  // Takes what has arrived; the longest so far.
  std::uint64_t largest() {
    char byte = 0;
    for (ssize_t n = 0; (n = recv(fd_.get(), &byte, 1, MSG_TRUNC)) > 0;) {
      largest_ = std::max(largest_, static_cast<std::uint64_t>(n));
    }
    return largest_;
  }
  // All that passed the filter, also those that found no room here.
  std::uint64_t count() {
    tpacket_stats stats{};
    socklen_t length = sizeof(stats);
    getsockopt(fd_.get(), SOL_PACKET, PACKET_STATISTICS, &stats, &length);
    return count_ += stats.tp_packets;  // the kernel's own counter starts over at each reading
  }

 private:
  Fd fd_;
  std::uint64_t largest_ = 0, count_ = 0;
};

// The taps of a switch: one pair for all ports, or a pair for each when their MTUs differ.
struct Watch {
  std::string switch_name;
  std::vector<Tap> samples;
  std::vector<Tap> oversized;

  void drain() {
    for (Tap& tap : samples) tap.largest();
    for (Tap& tap : oversized) tap.largest();
  }
  std::uint64_t seen() {
    std::uint64_t sum = 0;
    for (Tap& tap : samples) sum += tap.count();
    return sum;
  }
};

struct Burst {
  Fd listener;
  Fd sender;
  Fd receiver;
  std::uint64_t sent = 0;
  std::uint64_t arrived = 0;
};

sockaddr_in address_of_host(int host, std::uint16_t port_in_network_order) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = port_in_network_order;
  inet_pton(AF_INET, host_address(host).c_str(), &address.sin_addr);
  return address;
}

// Sockets stay in the namespace they were made in, whichever thread uses them.
Result<void> start(const FabricSpec& spec, int from, int distance, Burst& burst) {
  const int to = (from + distance) % spec.hosts;
  sockaddr_in address = address_of_host(to, 0);
  const auto listening = run_inside(host_namespace(spec.name, to), [&]() -> Result<void> {
    burst.listener = Fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    socklen_t length = sizeof(address);
    if (!burst.listener || bind(burst.listener.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
        listen(burst.listener.get(), 1) != 0 ||
        getsockname(burst.listener.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) {
      return failed("listen on a host of the fabric");
    }
    return {};
  });
  if (!listening) return listening;
  return run_inside(host_namespace(spec.name, from), [&]() -> Result<void> {
    burst.sender = Fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!burst.sender || (connect(burst.sender.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 &&
                          errno != EINPROGRESS)) {
      return failed("connect two hosts of the fabric");
    }
    return {};
  });
}

// Moves what can be moved now. False when there is nothing more to do for this burst.
bool advance(Burst& burst, std::uint64_t bytes) {
  static constexpr std::array<char, 65536> kZeros{};
  std::array<char, 65536> into;
  if (!burst.receiver)
    burst.receiver = Fd(accept4(burst.listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  while (burst.sent < bytes) {
    const std::size_t size = std::min<std::uint64_t>(kZeros.size(), bytes - burst.sent);
    const ssize_t n = send(burst.sender.get(), kZeros.data(), size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno != EAGAIN) return false;  // refused, reset or unreachable: counts as not arrived
    if (n <= 0) break;
    burst.sent += static_cast<std::uint64_t>(n);
  }
  while (burst.receiver) {
    const ssize_t n = recv(burst.receiver.get(), into.data(), into.size(), 0);
    if (n < 0) break;
    if (n == 0) return false;
    burst.arrived += static_cast<std::uint64_t>(n);
  }
  return burst.arrived < bytes;
}

void run_bursts(std::vector<Burst>& bursts, std::uint64_t bytes, std::vector<Watch>& watches, Clock::time_point until) {
  while (Clock::now() < until) {
    std::vector<pollfd> polled;
    for (Burst& burst : bursts) {
      if (!advance(burst, bytes)) continue;
      polled.push_back({burst.receiver ? burst.receiver.get() : burst.listener.get(), POLLIN, 0});
      if (burst.sent < bytes) polled.push_back({burst.sender.get(), POLLOUT, 0});
    }
    for (Watch& watch : watches) watch.drain();
    if (polled.empty()) return;
    for (const Watch& watch : watches) polled.push_back({watch.samples.front().fd(), POLLIN, 0});
    poll(polled.data(), polled.size(), 100);
  }
}

Result<Watch> watch_switch(const Topology& topology, const Node& node) {
  Watch watch;
  watch.switch_name = node.name;
  std::vector<SwitchPort> ports = switch_ports(topology);
  std::erase_if(ports, [&](const SwitchPort& port) { return port.switch_namespace != node.net_namespace; });
  const bool alike =
      std::all_of(ports.begin(), ports.end(), [&](const SwitchPort& port) { return port.mtu == ports.front().mtu; });
  if (alike) {
    ports.resize(1);
    ports.front().interface.clear();
  }
  const auto opened = run_inside(node.net_namespace, [&]() -> Result<void> {
    for (const SwitchPort& port : ports) {
      watch.samples.emplace_back();
      watch.oversized.emplace_back();
      if (const auto done = watch.samples.back().open(port.interface, 0); !done) return done;
      const auto limit = static_cast<std::uint32_t>(frame_bytes(port.mtu));
      if (const auto done = watch.oversized.back().open(port.interface, limit); !done) return done;
    }
    return {};
  });
  if (!opened) return tl::unexpected(opened.error());
  return watch;
}

// One burst from every host to the one `distance` further; what has arrived.
Result<std::uint64_t> burst_once(const FabricSpec& spec, int distance, std::uint64_t bytes, std::vector<Watch>& watches,
                                 Clock::time_point until) {
  std::vector<Burst> bursts(static_cast<std::size_t>(spec.hosts));
  for (int host = 0; host < spec.hosts; ++host) {
    const auto started = start(spec, host, distance, bursts[static_cast<std::size_t>(host)]);
    if (!started) return tl::unexpected(started.error());
  }
  run_bursts(bursts, bytes, watches, until);
  std::uint64_t arrived = 0;
  for (const Burst& burst : bursts) arrived += burst.arrived;
  return arrived;
}

// Which switch a flow passes is the hash's choice: with a hundred tries of all hosts, no spine of 64 stays unseen.
constexpr int kTries = 100;

}  // namespace

Result<PacketProof> prove_packets(const FabricSpec& spec) {
  const Topology topology = topology_of(spec);
  PacketProof proof;
  int mtu = 0;
  for (const TopologyLink& link : topology.links) mtu = std::max(mtu, link.mtu);
  proof.allowed_bytes = frame_bytes(mtu);
  proof.burst_bytes = 256 * 1024;
  for (const TopologyLink& link : topology.links) {
    const std::uint64_t rate_bps = link.ends[0].rate_bps;
    if (rate_bps != 0) proof.burst_bytes = std::min(proof.burst_bytes, rate_bps / 8 / 50);
  }
  proof.burst_bytes = std::max(proof.burst_bytes, 16 * frame_bytes(mtu));
  std::vector<Watch> watches;
  for (std::size_t i = static_cast<std::size_t>(spec.hosts); i < topology.nodes.size(); ++i) {
    auto watch = watch_switch(topology, topology.nodes[i]);
    if (!watch) return tl::unexpected(watch.error());
    watches.push_back(std::move(*watch));
  }
  const auto all_seen = [&] {
    return std::all_of(watches.begin(), watches.end(), [](Watch& watch) { return watch.seen() > 0; });
  };
  const auto until = Clock::now() + kBound;
  for (int one = 0; one < kTries && (one == 0 || (!all_seen() && Clock::now() < until)); ++one) {
    // Neighbours by number often share a leaf, so routed fabrics begin with the host farthest by number.
    const int distance = topology.is_routed() ? 1 + (spec.hosts / 2 + one - 1) % (spec.hosts - 1) : 1;
    const std::uint64_t bytes = one == 0 ? proof.burst_bytes : 16 * frame_bytes(mtu);
    const auto arrived = burst_once(spec, distance, bytes, watches, until);
    if (!arrived) return tl::unexpected(arrived.error());
    proof.arrived_bytes += *arrived;
  }
  for (Watch& watch : watches) {
    watch.drain();
    if (watch.seen() == 0) proof.unseen_switches.push_back(watch.switch_name);
    proof.seen_packets += watch.seen();
    for (Tap& tap : watch.samples) proof.largest_bytes = std::max(proof.largest_bytes, tap.largest());
    for (Tap& tap : watch.oversized) {
      proof.largest_bytes = std::max(proof.largest_bytes, tap.largest());
      proof.oversized_packets += tap.count();
    }
  }
  return proof;
}

}  // namespace clustar::bench::fabric
