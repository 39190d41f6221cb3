#include "tests/conformance/ofi_packets_under_test.h"

#include <thread>
#include <utility>

#include "libfabric_shim/dgram/devices.h"
#include "transport/net/interfaces.h"

namespace clustar::transport::conformance {
namespace {

// Three ends on loopback, where nothing is lost but what a socket's buffer cannot hold.
class OfiBed final : public PacketIoBed {
 public:
  static Result<std::unique_ptr<PacketIoBed>> create(const std::string& host, const ofi::OfiIoOptions& options) {
    // The suite lets a burst of 4,096 packets wait: about 1 KiB each, as the kernel counts.
    constexpr std::size_t kNeeded = 6 << 20;
    auto bed = std::make_unique<OfiBed>();
    for (auto& end : bed->ends_) {
      auto opened = open_ofi("udp", host, options);
      if (!opened) return tl::unexpected(opened.error());
      end = std::move(*opened);
      if (end->socket_room() < kNeeded) {
        return fail(ErrorCode::kUnavailable, "needs receive buffers of 3 MiB: root, or sysctl net.core.rmem_max");
      }
    }
    const net::Family family = host == "::1" ? net::Family::kIpv6 : net::Family::kIpv4;
    bed->control_ = net::find_interfaces("=lo", family).value().front().addresses.front().endpoint();
    if (auto added = bed->add_all_peers(); !added) return tl::unexpected(added.error());
    return bed;
  }
  io::PacketIo& end(std::size_t index) override { return *ends_[index]; }
  net::Endpoint control(std::size_t) override { return control_; }
  void advance(Duration duration) override { std::this_thread::sleep_for(duration); }

 private:
  net::Endpoint control_{};
  std::unique_ptr<ofi::OfiIo> ends_[kEnds];
};

PacketIoUnderTest bed(const std::string& name, const std::string& host, const ofi::OfiIoOptions& options) {
  return {name, [host, options] { return OfiBed::create(host, options); }};
}

}  // namespace

Result<std::unique_ptr<ofi::OfiIo>> open_ofi(const std::string& provider, const std::string& host,
                                             const ofi::OfiIoOptions& options) {
  const auto infos = ofi::find_infos("any", ofi::Service::kDatagrams);
  if (!infos) return tl::unexpected(infos.error());
  const auto interfaces = net::find_interfaces("=lo", host == "::1" ? net::Family::kIpv6 : net::Family::kIpv4);
  if (!interfaces) return tl::unexpected(interfaces.error());
  auto devices = ofi::find_datagram_devices(*infos, provider, *interfaces);
  if (!devices) return tl::unexpected(devices.error());
  return ofi::OfiIo::open(std::move(devices->front().info), options);
}

std::vector<PacketIoUnderTest> ofi_packets_under_test() {
  const ofi::OfiIoOptions usual;
  ofi::OfiIoOptions one_path;
  one_path.paths = 1;
  one_path.receives = one_path.held = one_path.sends = 16;
  ofi::OfiIoOptions many_paths;
  many_paths.paths = ofi::kMostPaths;
  ofi::OfiIoOptions completing = usual;
  completing.inject = false;
  completing.sends = 16;
  return {bed("ofi_udp", "127.0.0.1", usual), bed("ofi_udp_one_path", "127.0.0.1", one_path),
          bed("ofi_udp_16_paths", "127.0.0.1", many_paths), bed("ofi_udp_completions", "127.0.0.1", completing),
          bed("ofi_udp_ipv6", "::1", usual)};
}

// The list of this program.
std::vector<PacketIoUnderTest> packet_ios_under_test() {
  std::vector<PacketIoUnderTest> all = ofi_packets_under_test();
  for (PacketIoUnderTest& one : decorated(all.front())) all.push_back(std::move(one));
  return all;
}

}  // namespace clustar::transport::conformance
