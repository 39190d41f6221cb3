#include "libfabric_shim/providers_probe.h"

#include <fmt/format.h>

#include "libfabric_shim/choice.h"
#include "libfabric_shim/dgram/choice.h"
#include "libfabric_shim/info.h"

namespace clustar::transport::ofi {
namespace {

template <class Choose>
Result<Providers> ask(Offer offer, Choose&& choose) {
  const auto infos = find_infos("any", offer);
  if (!infos) return tl::unexpected(infos.error());
  const std::uint32_t version = Library::get()->version();
  Providers providers{fmt::format("{}.{}", FI_MAJOR(version), FI_MINOR(version)), providers_of(*infos), {}, {}};
  const Result<Choice> choice = choose(providers.there);
  if (choice) {
    providers.taken = choice->provider;
    providers.why = choice->why;
  } else {
    providers.why = choice.error().message;
  }
  return providers;
}

}  // namespace

Result<Providers> ask_providers(const std::string& forced) {
  return ask(Offer::kMessages, [&](const auto& there) { return choose(there, forced); });
}

Result<Providers> ask_datagrams(const std::string& forced) {
  return ask(Offer::kDatagrams, [&](const auto& there) { return choose_datagrams(there, forced, {}); });
}

}  // namespace clustar::transport::ofi
