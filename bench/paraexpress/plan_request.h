// What a user asks `clustar plan` for, as a group and a network. Errors name what is allowed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "paraexpress/core/cost.h"
#include "transport/base/result.h"

namespace clustar::bench::paraexpress {

struct PlanRequest {
  std::uint32_t ranks = 8;
  std::uint32_t helpers = 0;
  std::string regions_path{};                  // a file of parse_region_map's form
  std::uint32_t region_size = 0;               // members per region, where there is no file; 0: all in one
  double oversubscription = 1;                 // of such regions
  std::optional<std::uint64_t> random_seed{};  // ranks dealt to the places at random
};
// kInvalidArgument: "FILE:LINE: ...", or what cannot be together.
Result<clustar::paraexpress::Group> group_of(const PlanRequest& request);

// "40G", "1.6T", "200Mbit": in bytes per second.
Result<double> parse_nic_rate(const std::string& text);

// "3=5ms": rank 3's contribution is there 5 ms after the others'; up to 60 s.
Result<void> add_lag(const std::string& text, std::uint32_t ranks, std::vector<double>& lag_s);

// "4KiB,1M": each from 1 byte to kMostBytes, at most 64 of them.
Result<std::vector<std::uint64_t>> parse_sizes(const std::string& text);

}  // namespace clustar::bench::paraexpress
