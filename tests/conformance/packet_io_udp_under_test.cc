#include <thread>

#include "tests/conformance/packet_io_under_test.h"
#include "transport/io/udp/udp_io.h"

namespace clustar::transport::conformance {
namespace {

// Three ends on loopback, where nothing is lost but what a socket's buffer cannot hold.
class UdpBed final : public PacketIoBed {
 public:
  static Result<std::unique_ptr<PacketIoBed>> create(const io::udp::UdpOptions& options) {
    // The suite lets a burst of 4,096 packets wait: about 1 KiB each, as the kernel counts.
    constexpr std::size_t kNeeded = 6 << 20;
    auto bed = std::make_unique<UdpBed>();
    for (auto& end : bed->ends_) {
      auto opened = io::udp::UdpIo::open(options);
      if (!opened) return tl::unexpected(opened.error());
      end = std::move(*opened);
      if (end->receive_buffer_bytes() < kNeeded) {
        return fail(ErrorCode::kUnavailable, "needs receive buffers of 3 MiB: root, or sysctl net.core.rmem_max");
      }
      if ((options.allow_gso && !end->offloads().gso) || (options.allow_gro && !end->offloads().gro)) {
        return fail(ErrorCode::kUnavailable, "needs a kernel with UDP_SEGMENT and UDP_GRO");
      }
    }
    if (auto added = bed->add_all_peers(); !added) return tl::unexpected(added.error());
    return bed;
  }
  io::PacketIo& end(std::size_t index) override { return *ends_[index]; }
  net::Endpoint control(std::size_t end) override { return io::udp::endpoint_of(ends_[end]->local().ip); }
  void advance(Duration duration) override { std::this_thread::sleep_for(duration); }

 private:
  std::unique_ptr<io::udp::UdpIo> ends_[kEnds];
};

PacketIoUnderTest bed(const std::string& name, const io::udp::UdpOptions& options) {
  return {name, [options] { return UdpBed::create(options); }};
}

}  // namespace

std::vector<PacketIoUnderTest> udp_under_test() {
  io::udp::UdpOptions usual;
  usual.local = "127.0.0.1";
  usual.max_packet = 1472;
  usual.receive_buffers = 512;
  io::udp::UdpOptions plain = usual;
  plain.allow_gso = plain.allow_gro = false;
  io::udp::UdpOptions only_gso = usual;
  only_gso.allow_gro = false;
  only_gso.max_packet = 8972;
  io::udp::UdpOptions one_path = usual;
  one_path.paths = 1;
  one_path.send_batch = one_path.receive_batch = 1;
  io::udp::UdpOptions many_paths = usual;
  many_paths.paths = 32;
  io::udp::UdpOptions ipv6 = usual;
  ipv6.local = "::1";
  io::udp::UdpOptions ipv6_plain = plain;
  ipv6_plain.local = "::1";
  return {bed("udp", usual),
          bed("udp_plain", plain),
          bed("udp_gso_without_gro", only_gso),
          bed("udp_one_path", one_path),
          bed("udp_32_paths", many_paths),
          bed("udp_ipv6", ipv6),
          bed("udp_ipv6_plain", ipv6_plain)};
}

}  // namespace clustar::transport::conformance
