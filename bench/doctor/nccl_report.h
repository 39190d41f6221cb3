// What `clustar doctor nccl` says, for people and for tools, and of several hosts.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "bench/doctor/check.h"
#include "bench/doctor/nccl_facts.h"

namespace clustar::bench::doctor {

// `all`: every setting in the banner, too, not only those that are not at their default.
std::string to_text(const NcclFacts& facts, const std::vector<Check>& checks, bool all);
nlohmann::json to_json(const NcclFacts& facts, const std::vector<Check>& checks);

// The banner's "config: name = value (source)" lines.
struct BannerSetting {
  std::string name{};
  std::string value{};
  std::string source{};
};
std::vector<BannerSetting> settings_of(const Banner& banner);

// One host's `results`, or why there are none.
struct HostReport {
  std::string host{};
  std::string failure{};
  std::string json{};  // of `results`
};

// Whether all are alike. `shared`: names of the settings that all ranks need alike.
std::vector<Check> compare(const std::vector<HostReport>& hosts, const std::vector<std::string>& shared);

}  // namespace clustar::bench::doctor
