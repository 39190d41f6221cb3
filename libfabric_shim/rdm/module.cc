// libclustar-ofi.so: all that needs libfabric, behind transport/module.h.

#include "transport/module.h"

#include <memory>
#include <string>
#include <string_view>

#include "libfabric_shim/dgram/ofi_backend.h"
#include "libfabric_shim/providers_probe.h"
#include "libfabric_shim/rdm/ofi_transport.h"
#include "transport/io/contained_backend.h"

namespace clustar::transport::ofi {
namespace {

Result<std::unique_ptr<Transport>> create(const TransportContext& context) {
  return io::contained("libclustar-ofi.so", [&] { return OfiTransport::create(context); });
}

Result<std::unique_ptr<io::PacketBackend>> open_backend(std::string_view io, const Config& config, const Log& log) {
  constexpr const char* kModule = "libclustar-ofi.so";
  return io::contained(kModule, [&]() -> Result<std::unique_ptr<io::PacketBackend>> {
    if (io != "ofi") return fail(ErrorCode::kUnavailable, std::string(kModule) + " carries packets as ofi only");
    auto made = OfiBackend::create(config, log);
    if (!made) return made;
    return std::make_unique<io::ContainedBackend>(kModule, std::move(*made));
  });
}

Result<Providers> providers(const std::string& forced, const std::string& progress) {
  return io::contained("libclustar-ofi.so", [&] { return ask_providers(forced, progress); });
}

Result<Providers> datagrams(const std::string& forced, const std::string& progress, const std::string& no_rdma) {
  return io::contained("libclustar-ofi.so", [&] { return ask_datagrams(forced, progress, no_rdma); });
}

ModuleEntry::Function find(const char* name) {
  // A function of another shape does not compile.
  constexpr AskProviders kAsks = providers;
  constexpr AskDatagrams kAsksDatagrams = datagrams;
  constexpr io::OpenPacketBackend kOpens = open_backend;
  const std::string_view wanted = name;
  if (wanted == kAskProviders) return reinterpret_cast<ModuleEntry::Function>(kAsks);
  if (wanted == kAskDatagrams) return reinterpret_cast<ModuleEntry::Function>(kAsksDatagrams);
  return wanted == io::kOpenPacketBackend ? reinterpret_cast<ModuleEntry::Function>(kOpens) : nullptr;
}

}  // namespace
}  // namespace clustar::transport::ofi

extern "C" __attribute__((visibility("default"))) const clustar::transport::ModuleEntry clustar_module;
const clustar::transport::ModuleEntry clustar_module = {.create = clustar::transport::ofi::create,
                                                        .find = clustar::transport::ofi::find};
