// libclustar-ofi.so: all that needs libfabric, behind transport/module.h.

#include "transport/module.h"

#include <dlfcn.h>

#include <exception>
#include <memory>
#include <string>

#include "libfabric_shim/rdm/ofi_transport.h"
#include "transport/io/contained_backend.h"

namespace clustar::transport::ofi {
namespace {

// libfabric and its providers allocate when they are loaded, have threads and hooks, and free little when they are
// unloaded: so it stays, and a process that loads the plugin again and again does not grow.
__attribute__((constructor)) void keep_libfabric() {
  static_cast<void>(dlopen("libfabric.so.1", RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE));
}

Result<std::unique_ptr<Transport>> create(const TransportContext& context) {
  return io::contained("libclustar-ofi.so", [&] { return OfiTransport::create(context); });
}

}  // namespace
}  // namespace clustar::transport::ofi

extern "C" __attribute__((visibility("default"))) const clustar::transport::ModuleEntry clustar_module;
const clustar::transport::ModuleEntry clustar_module = {.create = clustar::transport::ofi::create};
