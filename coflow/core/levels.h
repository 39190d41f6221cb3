// An order of coflows for a network with few priority levels.
#pragma once

#include <span>
#include <vector>

#include "coflow/core/table.h"

namespace clustar::coflow {

// Cuts `ordered` (first to serve first) into at most `levels` classes of about equal bytes left, so that no level has
// nothing to tell apart (Crux, SIGCOMM 2024, compresses its priorities by load, too). 0 levels: each coflow its own.
// A coflow is never cut; a class has one at least.
std::vector<std::vector<CoflowId>> into_levels(const Table& table, std::span<const CoflowId> ordered, int levels);

}  // namespace clustar::coflow
