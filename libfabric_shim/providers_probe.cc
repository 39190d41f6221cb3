#include "libfabric_shim/providers_probe.h"

#include <fmt/format.h>

#include "libfabric_shim/dgram/choice.h"
#include "libfabric_shim/info.h"
#include "libfabric_shim/offer.h"

namespace clustar::transport::ofi {
namespace {

Result<Providers> providers_with(Service service, const std::string& progress) {
  const auto infos = find_infos(progress, service);
  if (!infos) return tl::unexpected(infos.error());
  const std::uint32_t version = Library::get()->version();
  return Providers{fmt::format("{}.{}", FI_MAJOR(version), FI_MINOR(version)), providers_of(*infos), {}, {}};
}

void take(const Choice& choice, Providers& providers) {
  providers.taken = choice.provider;
  providers.why = choice.why;
}

}  // namespace

Result<Providers> ask_providers(const std::string& forced, const std::string& progress) {
  auto providers = providers_with(Service::kMessages, "any");
  if (!providers) return providers;
  if (const auto offer = find_offer(forced, progress)) {
    take(offer->choice, *providers);
  } else {
    providers->why = offer.error().message;
  }
  return providers;
}

Result<Providers> ask_datagrams(const std::string& forced, const std::string& progress, const std::string& no_rdma) {
  auto providers = providers_with(Service::kDatagrams, progress);
  if (!providers) return providers;
  if (const auto choice = choose_datagrams(providers->there, forced, no_rdma)) {
    take(*choice, *providers);
  } else {
    providers->why = choice.error().message;
  }
  return providers;
}

}  // namespace clustar::transport::ofi
