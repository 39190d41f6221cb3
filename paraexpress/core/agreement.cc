#include "paraexpress/core/agreement.h"

namespace clustar::paraexpress {
namespace {

constexpr std::uint64_t kLastRank = 255;

}  // namespace

std::vector<std::uint64_t> encode_views(std::span<const HelperView> views, Member rank) {
  std::vector<std::uint64_t> numbers;
  for (const HelperView& view : views) {
    numbers.push_back(view.lost ? 1 : 0);
    numbers.push_back(view.elements << 8 | (kLastRank - rank));
  }
  return numbers;
}

std::vector<HelperFate> decode_fates(std::span<const std::uint64_t> maxima) {
  std::vector<HelperFate> fates;
  for (std::size_t i = 0; i + 1 < maxima.size(); i += 2) {
    fates.push_back({maxima[i] != 0, maxima[i + 1] >> 8, static_cast<Member>(kLastRank - (maxima[i + 1] & kLastRank))});
  }
  return fates;
}

Group without_helpers(const Group& group, const std::vector<bool>& lost) {
  Group left = group;
  left.helpers = 0;
  left.regions.region_of.resize(group.ranks);
  for (std::uint32_t helper = 0; helper < group.helpers; ++helper) {
    if (lost[helper]) continue;
    ++left.helpers;
    left.regions.region_of.push_back(group.regions.region_of[group.ranks + helper]);
  }
  return left;
}

Forest star_of_ranks(std::uint32_t ranks, Member root) {
  return {ranks, 0, {{1, root, std::vector<Member>(ranks, root)}}};
}

}  // namespace clustar::paraexpress
