// The settings of a Config, as people and machines want them.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "transport/base/config.h"

namespace clustar::bench::settings {

struct Row {
  SettingInfo info;
  std::string value;     // what counts
  std::string source;    // "default", "environment", ...
  std::string fallback;  // what counts where nothing is set, for a person
};

// Of all settings, in the order of their tables, those whose name or CLUSTAR_ variable begins with `prefix`, in either
// case.
std::vector<Row> rows(const Config& config, const std::string& prefix = {});

// A line each: "tcp_sockets = 1 (default)"; with `explain` what it means and what is allowed below.
std::string to_text(const std::vector<Row>& rows, bool explain);
// A table of variable, default, what is allowed and what it means; without values, so the same everywhere.
std::string to_markdown(const std::vector<Row>& rows);
nlohmann::json to_json(const std::vector<Row>& rows);

}  // namespace clustar::bench::settings
