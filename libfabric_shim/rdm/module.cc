// libclustar-ofi.so: all that needs libfabric, behind transport/module.h.

#include "transport/module.h"

#include <memory>

#include "libfabric_shim/rdm/ofi_transport.h"
#include "transport/io/contained_backend.h"

namespace clustar::transport::ofi {
namespace {

Result<std::unique_ptr<Transport>> create(const TransportContext& context) {
  return io::contained("libclustar-ofi.so", [&] { return OfiTransport::create(context); });
}

}  // namespace
}  // namespace clustar::transport::ofi

extern "C" __attribute__((visibility("default"))) const clustar::transport::ModuleEntry clustar_module;
const clustar::transport::ModuleEntry clustar_module = {.create = clustar::transport::ofi::create};
