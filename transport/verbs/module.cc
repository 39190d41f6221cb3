// libclustar-verbs.so: all that needs libibverbs, behind transport/module.h.

#include "transport/module.h"

#include <dlfcn.h>

#include <memory>
#include <string>
#include <string_view>

#include "transport/io/contained_backend.h"
#include "transport/io/verbs/dmabuf_probe.h"
#include "transport/io/verbs/verbs_backend.h"
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

constexpr const char* kModule = "libclustar-verbs.so";

Result<std::unique_ptr<Transport>> create(const TransportContext& context) {
  return io::contained(kModule, [&] { return VerbsTransport::create(context); });
}

Result<std::unique_ptr<io::PacketBackend>> open_backend(std::string_view io, const Config& config, const Log& log) {
  using io::verbs::VerbsBackend;
  return io::contained(kModule, [&]() -> Result<std::unique_ptr<io::PacketBackend>> {
    if (io != "verbs_ud" && io != "verbs_uc") {
      return fail(ErrorCode::kUnavailable, std::string(kModule) + " carries packets as verbs_ud and verbs_uc only");
    }
    // Why no NIC can be used at all says more than why no interface is one's.
    if (const auto ports = usable_ports(Settings(config)); !ports) return tl::unexpected(ports.error());
    const auto kind = io == "verbs_ud" ? VerbsBackend::Kind::kUd : VerbsBackend::Kind::kUc;
    auto made = VerbsBackend::create(kind, config, log);
    if (!made) return made;
    return std::make_unique<io::ContainedBackend>(kModule, std::move(*made));
  });
}

Result<io::verbs::DmaBufProbe> probe_dma_buf(const std::string& device) {
  return io::contained(kModule, [&] { return io::verbs::probe_dma_buf(device); });
}

ModuleEntry::Function find(const char* name) {
  // A function of another shape does not compile.
  constexpr io::OpenPacketBackend kOpens = open_backend;
  constexpr io::verbs::ProbeDmaBuf kProbes = probe_dma_buf;
  const struct {
    std::string name;
    ModuleEntry::Function function;
  } offers[] = {
      {io::kOpenPacketBackend, reinterpret_cast<ModuleEntry::Function>(kOpens)},
      {io::verbs::kProbeDmaBuf, reinterpret_cast<ModuleEntry::Function>(kProbes)},
  };
  for (const auto& offer : offers) {
    if (offer.name == name) return offer.function;
  }
  return nullptr;
}

}  // namespace
}  // namespace clustar::transport::verbs

extern "C" __attribute__((visibility("default"))) const clustar::transport::ModuleEntry clustar_module;
const clustar::transport::ModuleEntry clustar_module = {.create = clustar::transport::verbs::create,
                                                        .find = clustar::transport::verbs::find};
