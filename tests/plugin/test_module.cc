#include <string>
#include <utility>

#include "tests/plugin/device_memory_transport.h"
#include "transport/api/device_table.h"
#include "transport/io/decorators/forwarding_io.h"
#include "transport/io/udp/udp_backend.h"
#include "transport/io/verbs/settings.h"
#include "transport/module.h"
#include "transport/tcp/settings.h"
#include "transport/tcp/tcp_transport.h"

namespace clustar::transport {
namespace {

// TCP over one interface that looks like two ports of a PCI device, which may be fused. "fusing-swapped": each has the
// other's place; "fusing-virtual": they are none of PCI's, as SoftRoCE's.
class FusingTransport final : public Transport {
 public:
  FusingTransport(std::unique_ptr<Transport> tcp, const std::string& how)
      : tcp_(std::move(tcp)), table_(two_of(*tcp_, how)) {}

  const char* name() const override { return "fusing"; }
  std::span<const DeviceProperties> devices() const override { return table_.devices(); }
  Result<int> fuse(std::span<const int> members) override { return table_.fuse(members); }
  Result<std::unique_ptr<Listener>> listen(int device, const ChannelOptions& options) override {
    if (!knows(device)) return fail(ErrorCode::kInvalidArgument, "no such device");
    return tcp_->listen(0, options);
  }
  Result<std::unique_ptr<PendingConnect>> connect(int device, const Handle& handle,
                                                  const ChannelOptions& options) override {
    if (!knows(device)) return fail(ErrorCode::kInvalidArgument, "no such device");
    return tcp_->connect(0, handle, options);
  }
  Counters counters() const override { return tcp_->counters(); }

 private:
  static std::vector<DeviceProperties> two_of(const Transport& tcp, const std::string& how) {
    std::vector<DeviceProperties> two(2, tcp.devices()[0]);
    two[0].name = "port_a";
    two[1].name = "port_b";
    two[0].rail_id = two[1].rail_id = 5;
    two[1].plane_id = 1;
    two[0].force_flush = true;
    for (DeviceProperties& port : two)
      port.pci_path = how == "fusing-virtual" ? "" : "/sys/devices/pci0000:00/0000:00:01.0";
    if (how == "fusing-swapped") std::swap(two[0], two[1]);
    return two;
  }
  bool knows(int device) const { return device >= 0 && static_cast<std::size_t>(device) < table_.devices().size(); }

  std::unique_ptr<Transport> tcp_;
  DeviceTable table_;
};

// Does what it is told by settings that have another meaning elsewhere: the test needs none of its own then.
Result<std::unique_ptr<Transport>> create(const TransportContext& context) {
  const Config& config = context.config;
  const Log& log = context.log;
  if (config.get<TcpSettings>().sockets == 13) return fail(ErrorCode::kUnavailable, "no device of this kind");
  log.info("the test module was asked for a transport");
  auto tcp = tcp::TcpTransport::create(context);
  if (tcp && config.get<IbSettings>().hca == "device-memory") {
    return tests::with_device_memory(std::move(*tcp), gdr::kAnyKind, "by the test module", false, log);
  }
  if (tcp && config.get<IbSettings>().hca == "swallowing") {
    return tests::with_device_memory(std::move(*tcp), gdr::kAnyKind, "", true, log);
  }
  if (tcp && config.get<IbSettings>().hca == "cuda-pointers") {
    return tests::with_device_memory(std::move(*tcp), gdr::kHostOnly | gdr::bit(gdr::MemoryKind::kCuda),
                                     "no dma-bufs here", false, log);
  }
  const std::string& how = config.get<IbSettings>().hca;
  if (!tcp || how.rfind("fusing", 0) != 0) return tcp;
  return std::make_unique<FusingTransport>(std::move(*tcp), how);
}

class ModulesIo final : public io::ForwardingIo {
 public:
  using ForwardingIo::ForwardingIo;
  std::string describe() const override { return "a device of the test module"; }
};

class ModulesBackend final : public io::PacketBackend {
 public:
  explicit ModulesBackend(std::unique_ptr<io::PacketBackend> udp) : udp_(std::move(udp)) {}
  const char* name() const override { return "verbs_ud"; }
  Result<std::vector<io::DeviceInfo>> devices() override { return udp_->devices(); }
  Result<std::unique_ptr<io::PacketIo>> open(std::size_t device) override {
    auto io = udp_->open(device);
    if (!io) return io;
    return std::make_unique<ModulesIo>(std::move(*io));
  }

 private:
  const std::unique_ptr<io::PacketBackend> udp_;
};

Result<std::unique_ptr<io::PacketBackend>> open_backend(std::string_view kind, const Config& config, const Log&) {
  if (config.get<IbSettings>().hca == "absent") return fail(ErrorCode::kUnavailable, "no NIC of the test module");
  if (kind != "verbs_ud") return fail(ErrorCode::kUnavailable, "libclustar-verbs.so has no such packets");
  auto udp = io::udp::UdpBackend::create(config);
  if (!udp) return udp;
  return std::make_unique<ModulesBackend>(std::move(*udp));
}

ModuleEntry::Function find(const char* name) {
  constexpr io::OpenPacketBackend kOpens = open_backend;
  if (std::string(name) == io::kOpenPacketBackend) return reinterpret_cast<ModuleEntry::Function>(kOpens);
  return nullptr;
}

}  // namespace
}  // namespace clustar::transport

extern "C" __attribute__((visibility("default"))) const clustar::transport::ModuleEntry clustar_module;
const clustar::transport::ModuleEntry clustar_module = {.create = clustar::transport::create,
                                                        .find = clustar::transport::find};
