// What the pages of page.h have in common. All of it throws nlohmann's exceptions for a document of another form.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "bench/report/plot.h"

namespace clustar::bench::coflow {

inline constexpr const char* kBaseline = "maxmin";  // which does without coflows and wastes nothing

std::string sweep_page(const nlohmann::json& document);
std::string jobs_page(const nlohmann::json& document);

double number(const nlohmann::json& row, const char* key);
std::string policy_of(const nlohmann::json& row);

// Each policy's colour and dashes are those of its place, in all plots and tables of a page.
report::Series series_of(const std::string& policy, std::size_t place);
// The policy with its line, and cells that are escaped already, as a row of a table.
std::string policy_row(const std::string& policy, std::size_t place, const std::vector<std::string>& cells);
// A cell's text; `best` or `worse` stands out.
std::string figure(const std::string& text, const char* kind = "");
// The number at /KEY (which may be a path) in `row`; it stands out where none of `results` has less.
std::string best_cell(const nlohmann::json& results, const nlohmann::json& row, const std::string& key, int digits);

// As cdf() makes it: level until the next value, then up. Without values of 0, which a logarithm does not show.
using Curve = std::vector<std::pair<double, double>>;
Curve steps_of(const Curve& curve);

}  // namespace clustar::bench::coflow
