// All-reduces by each plan as real bytes, between the hosts of a fabric that is made for it: one host per rank and per
// helper, one leaf switch per region behind an uplink of its oversubscription. What `clustar plan --live` measures.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "paraexpress/core/group.h"
#include "transport/base/result.h"

namespace clustar::bench::paraexpress::live {

namespace px = clustar::paraexpress;

inline constexpr std::uint32_t kMostRanks = 32;
inline constexpr std::uint32_t kMostHelpers = 16;
inline constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 30;

struct LiveOptions {
  px::Group group{};
  std::vector<std::uint64_t> sizes{};
  std::vector<std::string> only{};  // names of rows; empty: all
  int rounds = 5;
  bool probe = false;  // the plans go by the region map that the engine finds, not by the group's; without helpers
  std::uint64_t rate_bps = 200'000'000;  // of each host's line
  std::uint64_t delay_ns = 0;            // of each link
  std::map<std::string, std::string> environment{};
  std::function<bool()> stop{};  // looked at now and then
};

// One plan at one size. "auto": the engine's own choice by what it measured; "ring by number": a ring of a library that
// does not know the regions.
struct LiveRow {
  std::string name{};
  std::string chosen{};           // by auto
  std::vector<double> seconds{};  // of the slowest rank, by round; none where it would have taken too long
};
struct LiveSize {
  std::uint64_t bytes = 0;
  std::vector<LiveRow> rows{};
};

struct LiveResult {
  std::string found{};  // the region map that the engine found; empty: it did not probe
  std::vector<LiveSize> sizes{};
};

using Say = std::function<void(const std::string& line)>;

// Every result is checked, element by element. Errors name the rank and the plan. kUnavailable: no root, interrupted.
Result<LiveResult> measure(const LiveOptions& options, const Say& say);

std::string text(const LiveOptions& options, const LiveResult& result);
// {rate_bps, delay_ns, rounds, regions{true, found, right}, sizes[]: {bytes, plans[]: {plan, chosen, seconds[]}}}
nlohmann::json to_json(const LiveOptions& options, const LiveResult& result);

}  // namespace clustar::bench::paraexpress::live
