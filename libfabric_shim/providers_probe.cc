#include "libfabric_shim/providers_probe.h"

#include <fmt/format.h>

#include "libfabric_shim/choice.h"
#include "libfabric_shim/info.h"

namespace clustar::transport::ofi {

Result<Providers> ask_providers(const std::string& forced) {
  const auto infos = find_infos("any");
  if (!infos) return tl::unexpected(infos.error());
  const std::uint32_t version = Library::get()->version();
  Providers providers{fmt::format("{}.{}", FI_MAJOR(version), FI_MINOR(version)), providers_of(*infos), {}, {}};
  const auto choice = choose(providers.there, forced);
  if (choice) {
    providers.taken = choice->provider;
    providers.why = choice->why;
  } else {
    providers.why = choice.error().message;
  }
  return providers;
}

}  // namespace clustar::transport::ofi
