#include "libfabric_shim/offer.h"

#include <utility>

namespace clustar::transport::ofi {
namespace {

Result<Offer> offer_with(const std::string& provider, const std::string& progress) {
  auto infos = find_infos(progress);
  if (!infos) return tl::unexpected(infos.error());
  auto choice = choose(providers_of(*infos), provider);
  if (!choice) return tl::unexpected(choice.error());
  return Offer{std::move(*infos), std::move(*choice)};
}

}  // namespace

// libfabric leaves out what does not make progress as it is asked to, so what is missing may be there.
Result<Offer> find_offer(const std::string& provider, const std::string& progress) {
  auto offer = offer_with(provider, progress);
  if (offer || progress == "any") return offer;
  const auto other = offer_with(provider, "any");
  if (!other) return offer;
  const auto with_it = find_infos(progress);
  const std::vector<std::string> there = with_it ? providers_of(*with_it) : std::vector<std::string>{};
  return fail(ErrorCode::kInvalidArgument, no_such_progress(progress, other->choice.provider, there));
}

}  // namespace clustar::transport::ofi
