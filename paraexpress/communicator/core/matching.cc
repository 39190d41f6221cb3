#include "paraexpress/communicator/core/matching.h"

#include <algorithm>
#include <utility>

namespace clustar::paraexpress {
namespace {

bool fits(const Want& want, const Offer& offer) {
  return want.key == offer.key && (want.from == offer.from || want.from == kAnyMember);
}

bool in_vain(const Want& want, const Offer& offer) {
  if (want.from != offer.from || want.key.use == Use::kMessage || offer.key.use == Use::kMessage) return false;
  return offer.key.number > want.key.number || (offer.key.number == want.key.number && offer.key.use != want.key.use);
}

}  // namespace

std::optional<Offer> Matching::want(const Want& want) {
  const auto at = std::ranges::find_if(offers_, [&](const Offer& offer) { return fits(want, offer); });
  if (at == offers_.end()) {
    wants_.push_back(want);
    return std::nullopt;
  }
  Offer taken = std::move(*at);
  offers_.erase(at);
  return taken;
}

std::optional<Want> Matching::offer(Offer& offer) {
  const auto at = std::ranges::find_if(wants_, [&](const Want& want) { return fits(want, offer); });
  if (at == wants_.end()) {
    offers_.push_back(std::move(offer));
    return std::nullopt;
  }
  const Want taken = *at;
  wants_.erase(at);
  return taken;
}

std::optional<Want> Matching::contradicted(const Offer& offer) const {
  const auto at = std::ranges::find_if(wants_, [&](const Want& want) { return in_vain(want, offer); });
  return at == wants_.end() ? std::nullopt : std::optional(*at);
}

const Offer* Matching::contradicts(const Want& want) const {
  const bool comes = std::ranges::any_of(offers_, [&](const Offer& offer) { return fits(want, offer); });
  const auto at = std::ranges::find_if(offers_, [&](const Offer& offer) { return in_vain(want, offer); });
  return comes || at == offers_.end() ? nullptr : &*at;
}

const Offer* Matching::stray(std::uint64_t number) const {
  const auto at = std::ranges::find_if(
      offers_, [&](const Offer& offer) { return offer.key.use != Use::kMessage && offer.key.number <= number; });
  return at == offers_.end() ? nullptr : &*at;
}

bool Matching::withdraw(std::uint64_t id) {
  return std::erase_if(wants_, [id](const Want& want) { return want.id == id; }) != 0;
}

std::vector<Want> Matching::take_wants_of(Member from, bool any) {
  std::vector<Want> taken;
  std::erase_if(wants_, [&](const Want& want) {
    if (want.from != from && !(any && want.from == kAnyMember)) return false;
    taken.push_back(want);
    return true;
  });
  return taken;
}

}  // namespace clustar::paraexpress
