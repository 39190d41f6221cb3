#include <string>
#include <utility>

#include "mlt/driver/module_device.h"
#include "mlt/driver/udp_device.h"
#include "tests/plugin/device_memory_transport.h"
#include "transport/api/device_table.h"
#include "transport/module.h"
#include "transport/tcp/tcp_transport.h"

namespace clustar::transport {
namespace {

// TCP over one interface that looks like two ports, which may be fused. `swapped`: each has the other's place.
class FusingTransport final : public Transport {
 public:
  FusingTransport(std::unique_ptr<Transport> tcp, bool swapped)
      : tcp_(std::move(tcp)), table_(two_of(*tcp_, swapped)) {}

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
  std::string summary() const override { return tcp_->summary(); }

 private:
  static std::vector<DeviceProperties> two_of(const Transport& tcp, bool swapped) {
    std::vector<DeviceProperties> two(2, tcp.devices()[0]);
    two[0].name = "port_a";
    two[1].name = "port_b";
    two[0].rail_id = two[1].rail_id = 5;
    two[1].plane_id = 1;
    two[0].force_flush = true;
    if (swapped) std::swap(two[0], two[1]);
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
  if (config.tcp_sockets == 13) return fail(ErrorCode::kUnavailable, "no device of this kind");
  log.info("the test module was asked for a transport");
  auto tcp = tcp::TcpTransport::create(context);
  if (tcp && config.ib_hca == "device-memory") {
    return tests::with_device_memory(std::move(*tcp), gdr::kAnyKind, "by the test module", false, log);
  }
  if (tcp && config.ib_hca == "swallowing") {
    return tests::with_device_memory(std::move(*tcp), gdr::kAnyKind, "", true, log);
  }
  if (tcp && config.ib_hca == "cuda-pointers") {
    return tests::with_device_memory(std::move(*tcp), gdr::kHostOnly | gdr::bit(gdr::MemoryKind::kCuda),
                                     "no dma-bufs here", false, log);
  }
  const bool swapped = config.ib_hca == "fusing-swapped";
  if (!tcp || (config.ib_hca != "fusing" && !swapped)) return tcp;
  return std::make_unique<FusingTransport>(std::move(*tcp), swapped);
}

Result<mlt::driver::Device> open_device(const Config&, const net::Interface& interface, const net::Address& local) {
  auto device = mlt::driver::open_udp_device(interface, local);
  if (!device) return device;
  device->describe = [] { return std::string("a device of the test module"); };
  return device;
}

Result<void> check_devices(const Config& config) {
  if (config.ib_hca == "absent") return fail(ErrorCode::kUnavailable, "no NIC of the test module");
  return {};
}

ModuleEntry::Function find(const char* name) {
  if (std::string(name) == mlt::driver::module_device_name("verbs_ud")) {
    return reinterpret_cast<ModuleEntry::Function>(open_device);
  }
  if (std::string(name) == mlt::driver::kCheckDevices) return reinterpret_cast<ModuleEntry::Function>(check_devices);
  return nullptr;
}

}  // namespace
}  // namespace clustar::transport

extern "C" __attribute__((visibility("default"))) const clustar::transport::ModuleEntry clustar_module;
const clustar::transport::ModuleEntry clustar_module = {clustar::transport::ModuleEntry::kAbi, sizeof(clustar::Config),
                                                        CLUSTAR_VERSION, clustar::transport::create,
                                                        clustar::transport::find};
