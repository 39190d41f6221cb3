// libclustar-dpdk.so: all that needs DPDK, behind transport/module.h. It stays loaded, as DPDK does: see README.md.

#include "transport/module.h"

#include <memory>
#include <string>
#include <string_view>

#include "transport/io/contained_backend.h"
#include "transport/io/dpdk/dpdk_backend.h"

namespace clustar::transport::io::dpdk {
namespace {

constexpr const char* kModule = "libclustar-dpdk.so";

Result<std::unique_ptr<Transport>> create(const TransportContext&) {
  return fail(ErrorCode::kUnavailable, std::string(kModule) + " carries packets of mlt: CLUSTAR_TRANSPORT=mlt");
}

Result<std::unique_ptr<PacketBackend>> open_backend(std::string_view io, const Config& config, const Log& log) {
  return contained(kModule, [&]() -> Result<std::unique_ptr<PacketBackend>> {
    if (io != "dpdk") return fail(ErrorCode::kUnavailable, std::string(kModule) + " carries packets as dpdk only");
    auto made = DpdkBackend::create(config, log);
    if (!made) return made;
    return std::make_unique<ContainedBackend>(kModule, std::move(*made));
  });
}

ModuleEntry::Function find(const char* name) {
  // A function of another shape does not compile.
  constexpr OpenPacketBackend kOpens = open_backend;
  if (std::string_view(name) == kOpenPacketBackend) return reinterpret_cast<ModuleEntry::Function>(kOpens);
  return nullptr;
}

}  // namespace
}  // namespace clustar::transport::io::dpdk

extern "C" __attribute__((visibility("default"))) const clustar::transport::ModuleEntry clustar_module;
const clustar::transport::ModuleEntry clustar_module = {.create = clustar::transport::io::dpdk::create,
                                                        .find = clustar::transport::io::dpdk::find};
