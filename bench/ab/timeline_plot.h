// The latest steps of an arm's typical run on rank 0, as lanes: what computes, and each bucket's coflow on its way.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace clustar::bench::ab {

// Of a document's result; empty: its runs have no timeline.
std::string timeline_plot(const nlohmann::json& result);

}  // namespace clustar::bench::ab
