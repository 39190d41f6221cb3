// libclustar-verbs.so: all that needs libibverbs, behind transport/module.h.

#include "transport/module.h"

#include <dlfcn.h>

#include <exception>
#include <string>

#include "mlt/driver/module_device.h"
#include "mlt/driver/verbs_device.h"
#include "mlt/driver/verbs_uc_device.h"
#include "transport/io/verbs/dmabuf_probe.h"
#include "transport/verbs/ports.h"
#include "transport/verbs/settings.h"
#include "transport/verbs/verbs_transport.h"

namespace clustar::transport::verbs {
namespace {

// libibverbs allocates when it is loaded and frees nothing when it is unloaded: so it stays, and a process that loads
// the plugin again and again does not grow.
__attribute__((constructor)) void keep_libibverbs() {
  static_cast<void>(dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE));
}

// No exception leaves the module: it has a C++ runtime of its own.
template <class Call>
auto contained(Call&& call) -> decltype(call()) {
  try {
    return call();
  } catch (const std::exception& error) {
    return fail(ErrorCode::kInternal, std::string("libclustar-verbs.so: ") + error.what());
  } catch (...) {
    return fail(ErrorCode::kInternal, "libclustar-verbs.so: an exception without a name");
  }
}

Result<std::unique_ptr<Transport>> create(const TransportContext& context) {
  return contained([&] { return VerbsTransport::create(context); });
}

Result<void> check_devices(const Config& config) {
  return contained([&]() -> Result<void> {
    const Settings settings(config);
    if (const auto ports = usable_ports(settings); !ports) return tl::unexpected(ports.error());
    // MLT takes ports by the addresses of interfaces, so one of these has to be a port's.
    const auto interfaces = net::find_interfaces(settings.interface_filter, settings.family);
    if (!interfaces) return tl::unexpected(interfaces.error());
    Result<void> checked;
    for (const net::Interface& interface : *interfaces) {
      const auto port = mlt::driver::rdma_port_of(config, interface, interface.addresses.front());
      if (port) return {};
      if (checked) checked = tl::unexpected(port.error());
    }
    return checked;
  });
}

Result<mlt::driver::Device> open_ud(const Config& config, const net::Interface& interface, const net::Address& local) {
  return contained([&] { return mlt::driver::open_verbs_ud_device(config, interface, local); });
}

Result<mlt::driver::Device> open_uc(const Config& config, const net::Interface& interface, const net::Address& local) {
  return contained([&] { return mlt::driver::open_verbs_uc_device(config, interface, local); });
}

Result<mlt::driver::Reach> find_reach(const Config& config, const net::Interface& interface,
                                      const net::Address& local) {
  return contained(
      [&]() -> Result<mlt::driver::Reach> { return mlt::driver::find_verbs_reach(config, interface, local); });
}

Result<io::verbs::DmaBufProbe> probe_dma_buf(const std::string& device) {
  return contained([&] { return io::verbs::probe_dma_buf(device); });
}

ModuleEntry::Function find(const char* name) {
  const struct {
    std::string name;
    ModuleEntry::Function function;
  } offers[] = {
      {mlt::driver::kCheckDevices, reinterpret_cast<ModuleEntry::Function>(check_devices)},
      {mlt::driver::kFindReach, reinterpret_cast<ModuleEntry::Function>(find_reach)},
      {mlt::driver::module_device_name("verbs_ud"), reinterpret_cast<ModuleEntry::Function>(open_ud)},
      {mlt::driver::module_device_name("verbs_uc"), reinterpret_cast<ModuleEntry::Function>(open_uc)},
      {io::verbs::kProbeDmaBuf, reinterpret_cast<ModuleEntry::Function>(probe_dma_buf)},
  };
  for (const auto& offer : offers) {
    if (offer.name == name) return offer.function;
  }
  return nullptr;
}

}  // namespace
}  // namespace clustar::transport::verbs

extern "C" __attribute__((visibility("default"))) const clustar::transport::ModuleEntry clustar_module;
const clustar::transport::ModuleEntry clustar_module = {clustar::transport::ModuleEntry::kAbi, sizeof(clustar::Config),
                                                        CLUSTAR_VERSION, clustar::transport::verbs::create,
                                                        clustar::transport::verbs::find};
