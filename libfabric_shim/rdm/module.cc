// libclustar-ofi.so: all that needs libfabric, behind transport/module.h.

#include "transport/module.h"

#include <memory>
#include <string>
#include <string_view>

#include "libfabric_shim/providers_probe.h"
#include "libfabric_shim/rdm/ofi_transport.h"
#include "transport/io/contained_backend.h"

namespace clustar::transport::ofi {
namespace {

Result<std::unique_ptr<Transport>> create(const TransportContext& context) {
  return io::contained("libclustar-ofi.so", [&] { return OfiTransport::create(context); });
}

Result<Providers> providers(const std::string& forced, const std::string& progress) {
  return io::contained("libclustar-ofi.so", [&] { return ask_providers(forced, progress); });
}

ModuleEntry::Function find(const char* name) {
  // A function of another shape does not compile.
  constexpr AskProviders kAsks = providers;
  return std::string_view(name) == kAskProviders ? reinterpret_cast<ModuleEntry::Function>(kAsks) : nullptr;
}

}  // namespace
}  // namespace clustar::transport::ofi

extern "C" __attribute__((visibility("default"))) const clustar::transport::ModuleEntry clustar_module;
const clustar::transport::ModuleEntry clustar_module = {.create = clustar::transport::ofi::create,
                                                        .find = clustar::transport::ofi::find};
