// libclustar-faults.so: faults for experiments, which the registry opens only where CLUSTAR_INJECT_FAULTS asks for
// them.
#include "transport/module.h"

#include <fmt/format.h>

#include <cstring>

#include "transport/io/contained_backend.h"
#include "transport/io/decorators/faulty_backend.h"
#include "transport/io/decorators/settings.h"

namespace clustar::transport::io {
namespace {

constexpr const char* kModule = "libclustar-faults.so";

Result<std::unique_ptr<PacketBackend>> wrap(std::unique_ptr<PacketBackend> backend, const Config& config) {
  return contained(kModule, [&]() -> Result<std::unique_ptr<PacketBackend>> {
    const std::string faults = config.get<FaultSettings>().inject;
    const auto spec = FaultSpec::parse(faults);
    if (!spec) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("CLUSTAR_INJECT_FAULTS = '{}': {}", faults, spec.error().message));
    }
    return std::make_unique<ContainedBackend>(kModule, std::make_unique<FaultyBackend>(std::move(backend), *spec));
  });
}

Result<std::unique_ptr<Transport>> create(const TransportContext&) {
  return fail(ErrorCode::kUnavailable, "libclustar-faults.so is no transport");
}

ModuleEntry::Function find(const char* name) {
  constexpr WrapPacketBackend kWraps = wrap;
  if (std::strcmp(name, kWrapPacketBackend) != 0) return nullptr;
  return reinterpret_cast<ModuleEntry::Function>(kWraps);
}

}  // namespace
}  // namespace clustar::transport::io

extern "C" __attribute__((visibility("default"))) const clustar::transport::ModuleEntry clustar_module;
const clustar::transport::ModuleEntry clustar_module = {.create = clustar::transport::io::create,
                                                        .find = clustar::transport::io::find};
