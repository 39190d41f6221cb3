#include "tests/conformance/dpdk_packets_under_test.h"

#include <fmt/format.h>

#include <functional>
#include <thread>
#include <utility>

#include "tests/conformance/own_network.h"
#include "transport/io/dpdk/core/device_spec.h"
#include "transport/io/dpdk/eal.h"

namespace clustar::transport::conformance {
namespace {

using io::dpdk::DpdkIo;

// The suite lets a burst of 4,096 packets wait.
constexpr io::dpdk::PortOptions kRoomy{.descriptors = 2048, .held = 4096};

net::Endpoint host_number(std::size_t end) {
  return {false, 0, {std::byte{10}, std::byte{9}, {}, static_cast<std::byte>(end + 1)}};
}

class DpdkBed final : public PacketIoBed {
 public:
  using OpenEnd = std::function<Result<std::unique_ptr<DpdkIo>>(std::size_t end)>;

  // `same_host`: all ends have one address.
  static Result<std::unique_ptr<PacketIoBed>> create(const OpenEnd& open, bool same_host) {
    if (const auto begun = begin_dpdk(); !begun) return tl::unexpected(begun.error());
    auto bed = std::make_unique<DpdkBed>();
    bed->same_host_ = same_host;
    for (std::size_t i = 0; i < kEnds; ++i) {
      auto opened = open(i);
      if (!opened) return tl::unexpected(opened.error());
      bed->ends_[i] = std::move(*opened);
    }
    if (auto added = bed->add_all_peers(); !added) return tl::unexpected(added.error());
    bed->let_neighbours_answer();
    return bed;
  }
  io::PacketIo& end(std::size_t index) override { return *ends_[index]; }
  net::Endpoint control(std::size_t end) override { return host_number(same_host_ ? 0 : end); }
  void advance(Duration duration) override { std::this_thread::sleep_for(duration); }
  bool refuses_bursts() const override { return true; }

 private:
  void let_neighbours_answer() {
    for (int round = 0; round < 5000; ++round) {
      bool all = true;
      for (auto& end : ends_) {
        static_cast<void>(end->before_sleep());
        all = all && end->knows_ways();
      }
      if (all || same_host_) return;
      advance(std::chrono::microseconds(200));
    }
  }

  bool same_host_ = false;
  std::unique_ptr<DpdkIo> ends_[kEnds];
};

std::string address_of(std::size_t end) { return fmt::format("10.9.0.{}/24", end + 1); }

// Three ends of one host, whose packets no wire sees.
PacketIoUnderTest one_host() {
  return {"dpdk_one_host", [] {
            return DpdkBed::create([](std::size_t) { return open_dpdk("net_ring0", address_of(0), kRoomy); }, true);
          }};
}

// Three pairs of virtual interfaces, whose other ends a bridge joins. An interface with an XDP program takes its
// packets from a ring of 256, which a busy machine may empty late. A queue in front of it holds the rest (from
// Linux 6.16 on; older kernels drop them).
Result<void> bridge() {
  if (const auto own = enter_own_network(); !own) return own;
  std::string command = "ip link del sw 2>/dev/null; ip link add sw type bridge forward_delay 0 && ip link set sw up";
  for (std::size_t i = 0; i < PacketIoBed::kEnds; ++i) {
    command += fmt::format(
        " && (ip link del e{0} 2>/dev/null; ip link add e{0} type veth peer name p{0} && "
        "ip link set p{0} master sw up && tc qdisc add dev p{0} root pfifo limit 20000 && ip link set e{0} up)",
        i);
  }
  return shell(command);
}

PacketIoUnderTest over_veth(const std::string& name, const std::string& driver, io::dpdk::DpdkIoOptions options) {
  return {name, [=]() -> Result<std::unique_ptr<PacketIoBed>> {
            if (const auto made = bridge(); !made) return tl::unexpected(made.error());
            return DpdkBed::create(
                [&](std::size_t end) {
                  return open_dpdk(fmt::format("{}{},iface=e{}", driver, end, end), address_of(end), kRoomy, options);
                },
                false);
          }};
}

// The kernel has the ends' addresses, too, and answers for each at its own interface only.
PacketIoUnderTest over_xdp_beside_the_kernel() {
  return {"dpdk_af_xdp_beside_the_kernel", []() -> Result<std::unique_ptr<PacketIoBed>> {
            if (const auto made = bridge(); !made) return tl::unexpected(made.error());
            std::string command = "echo 1 > /proc/sys/net/ipv4/conf/all/arp_ignore";
            for (std::size_t end = 0; end < PacketIoBed::kEnds; ++end) {
              command += fmt::format(" && ip addr add {} dev e{}", address_of(end), end);
            }
            if (const auto made = shell(command); !made) return tl::unexpected(made.error());
            return DpdkBed::create(
                [&](std::size_t end) {
                  return open_dpdk(fmt::format("net_af_xdp{},iface=e{}", end, end), address_of(end), kRoomy);
                },
                false);
          }};
}

// A bridge takes for itself what goes to the MAC of one of its ports, which is the device's, too, at first.
PacketIoUnderTest over_tap() {
  return {"dpdk_tap", []() -> Result<std::unique_ptr<PacketIoBed>> {
            if (const auto own = enter_own_network(); !own) return tl::unexpected(own.error());
            const auto made =
                shell("ip link del sw 2>/dev/null; ip link add sw type bridge forward_delay 0 && ip link set sw up");
            if (!made) return tl::unexpected(made.error());
            return DpdkBed::create(
                [](std::size_t end) -> Result<std::unique_ptr<DpdkIo>> {
                  auto opened = open_dpdk(fmt::format("net_tap{},iface=t{}", end, end), address_of(end), kRoomy);
                  const auto joined = shell(
                      fmt::format("ip link set t{0} address 02:00:00:00:09:0{0} txqueuelen 10000 master sw up", end));
                  if (opened && !joined) return tl::unexpected(joined.error());
                  return opened;
                },
                false);
          }};
}

}  // namespace

Result<void> begin_dpdk() { return io::dpdk::start_eal({.memory_mb = 1536}); }

Result<std::unique_ptr<DpdkIo>> open_dpdk(const std::string& device, const std::string& address,
                                          const io::dpdk::PortOptions& port, const io::dpdk::DpdkIoOptions& options) {
  const auto specs = io::dpdk::parse_devices(device + "@" + address);
  if (!specs) return tl::unexpected(specs.error());
  auto host = io::dpdk::Host::open(specs->front(), *specs->front().subnet, port);
  if (!host) return tl::unexpected(host.error());
  io::dpdk::DpdkIoOptions with = options;
  with.inbox = port.held;
  with.link = io::LinkProfile::usual(io::LinkKind::kPollMode);
  return DpdkIo::open(std::move(*host), with);
}

// The list of this program.
std::vector<PacketIoUnderTest> packet_ios_under_test() {
  return {
      one_host(),
      over_veth("dpdk_af_packet", "net_af_packet", {.paths = 32}),
      over_veth("dpdk_af_xdp", "net_af_xdp", {.paths = 1}),
      over_xdp_beside_the_kernel(),
      over_tap(),
  };
}

}  // namespace clustar::transport::conformance
