// What a person sees of a run: who is compared, a line for each row as it comes, and how to read them.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "bench/perf/perf.h"

namespace clustar::bench::perf {

std::string size_text(std::size_t bytes);  // "8 B", "64 KiB"
std::string header(const nlohmann::json& arms, const Options& options);
std::string line(const RowResult& result);
std::string footer(const Report& report, const Options& options);

}  // namespace clustar::bench::perf
