// Three ends over libfabric's verbs datagrams: two on rxe_a and one on rxe_b.
#include <map>
#include <thread>
#include <utility>

#include "libfabric_shim/dgram/devices.h"
#include "libfabric_shim/dgram/ofi_io.h"
#include "tests/conformance/packet_io_under_test.h"
#include "tests/rdma/link.h"
#include "transport/net/interfaces.h"

namespace clustar::transport::conformance {
namespace {

class OfiVerbsBed final : public PacketIoBed {
 public:
  static Result<std::unique_ptr<PacketIoBed>> create(const ofi::OfiIoOptions& options) {
    if (const std::string reason = tests::why_no_devices(); !reason.empty()) {
      return fail(ErrorCode::kUnavailable, reason);
    }
    const auto infos = ofi::find_infos("any", ofi::Service::kDatagrams);
    if (!infos) return tl::unexpected(infos.error());
    auto bed = std::make_unique<OfiVerbsBed>();
    for (std::size_t i = 0; i < kEnds; ++i) {
      const auto interfaces = net::find_interfaces(i == 1 ? "=vb" : "=va", net::Family::kIpv4);
      if (!interfaces) return tl::unexpected(interfaces.error());
      auto devices = ofi::find_datagram_devices(*infos, "verbs", *interfaces);
      if (!devices) return tl::unexpected(devices.error());
      bed->controls_[i] = devices->front().interface.addresses.front().endpoint();
      auto opened = ofi::OfiIo::open(std::move(devices->front().info), options);
      if (!opened) return tl::unexpected(opened.error());
      bed->ends_[i] = std::move(*opened);
    }
    if (auto added = bed->add_all_peers(); !added) return tl::unexpected(added.error());
    return bed;
  }
  io::PacketIo& end(std::size_t index) override { return *ends_[index]; }
  net::Endpoint control(std::size_t end) override { return controls_[end]; }
  void advance(Duration duration) override { std::this_thread::sleep_for(duration); }

 private:
  net::Endpoint controls_[kEnds]{};
  std::unique_ptr<ofi::OfiIo> ends_[kEnds];
};

}  // namespace

std::vector<PacketIoUnderTest> packet_ios_under_test() {
  // A burst of the suite must find receives, or it is lost: 4,096 packets on one path.
  const ofi::OfiIoOptions usual{.paths = 2, .receives = 4096, .held = 64};
  return {{"ofi_verbs", [usual] { return OfiVerbsBed::create(usual); }}};
}

}  // namespace clustar::transport::conformance
