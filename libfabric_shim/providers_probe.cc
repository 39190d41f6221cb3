#include "libfabric_shim/providers_probe.h"

#include <fmt/format.h>

#include "libfabric_shim/offer.h"

namespace clustar::transport::ofi {

Result<Providers> ask_providers(const std::string& forced, const std::string& progress) {
  const auto infos = find_infos("any");
  if (!infos) return tl::unexpected(infos.error());
  const std::uint32_t version = Library::get()->version();
  Providers providers{fmt::format("{}.{}", FI_MAJOR(version), FI_MINOR(version)), providers_of(*infos), {}, {}};
  const auto offer = find_offer(forced, progress);
  if (offer) {
    providers.taken = offer->choice.provider;
    providers.why = offer->choice.why;
  } else {
    providers.why = offer.error().message;
  }
  return providers;
}

}  // namespace clustar::transport::ofi
