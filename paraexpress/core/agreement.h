// What the ranks agree on after an operation with helpers: which of them are gone, and how much of their results is
// known. Each rank says its view as numbers; the maximum over all ranks, element by element, is what all go by.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "paraexpress/core/group.h"

namespace clustar::paraexpress {

// One rank's view of a helper.
struct HelperView {
  bool lost = false;
  std::uint64_t elements = 0;  // of the shard's result, from its begin, that came
};
// Two numbers per helper, for a maximum. Ranks below 256, elements below 2^48.
std::vector<std::uint64_t> encode_views(std::span<const HelperView> views, Member rank);

struct HelperFate {
  bool lost = false;
  // Of a lost one: `holder`, the lowest rank that has most, has so many elements of the result, from the shard's begin.
  std::uint64_t elements = 0;
  Member holder = 0;
};
std::vector<HelperFate> decode_fates(std::span<const std::uint64_t> maxima);

// The group without some helpers; the others move up. `lost`: by helper.
Group without_helpers(const Group& group, const std::vector<bool>& lost);

// One star of all ranks, rooted at one: by it the holder gives what it has, and the rest is summed once more, in the
// order in which the helper would have done it.
Forest star_of_ranks(std::uint32_t ranks, Member root);

}  // namespace clustar::paraexpress
