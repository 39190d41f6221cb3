// An order of coflows for a network with few priority levels.
#pragma once

#include <span>
#include <vector>

#include "coflow/core/table.h"

namespace clustar::coflow {

// Cuts `ordered` (first to serve first) into at most `levels` classes: by bytes left, as Crux (SIGCOMM 2024) compresses
// priorities by load, each level with the same multiple of those of the one before it, the last with `last_over_first`
// times those of the first; 1: equal. What comes first is served now and wants to be told apart; the order of what
// comes late will change before its turn. 0 levels: each coflow its own. A coflow is never cut; a class has one at
// least.
std::vector<std::vector<CoflowId>> into_levels(const Table& table, std::span<const CoflowId> ordered, int levels,
                                               double last_over_first);

}  // namespace clustar::coflow
