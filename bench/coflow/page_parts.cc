#include "bench/coflow/page_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "bench/report/page.h"
#include "bench/report/style.h"

namespace clustar::bench::coflow {
namespace {

// Every other is solid, so that neighbours are told apart without colour.
int dash_of(std::size_t place) { return place % 2 == 0 ? 0 : static_cast<int>(1 + place / 2 % (report::kDashes - 1)); }

std::string colour_of(std::size_t place) { return fmt::format("s{}", place % report::kSeriesColours); }

double least(const nlohmann::json& results, const nlohmann::json::json_pointer& key) {
  double value = results.at(0).at(key).get<double>();
  for (const nlohmann::json& row : results) value = std::min(value, row.at(key).get<double>());
  return value;
}

}  // namespace

double number(const nlohmann::json& row, const char* key) { return row.at(key).get<double>(); }

std::string policy_of(const nlohmann::json& row) { return row.at("policy").get<std::string>(); }

report::Series series_of(const std::string& policy, std::size_t place) {
  return {.name = policy, .css_class = colour_of(place), .dash = dash_of(place)};
}

std::string figure(const std::string& text, const char* kind) {
  return *kind == '\0' ? report::cell(text) : fmt::format("<td class={}>{}</td>", kind, report::escaped(text));
}

std::string best_cell(const nlohmann::json& results, const nlohmann::json& row, const std::string& key, int digits) {
  const nlohmann::json::json_pointer pointer("/" + key);
  const auto value = row.at(pointer).get<double>();
  const bool best = results.size() > 1 && value <= least(results, pointer);
  return figure(fmt::format("{:.{}f}", value, digits), best ? "best" : "");
}

Curve steps_of(const Curve& curve) {
  Curve steps;
  double share = 0;
  for (const auto& [value, up_to] : curve) {
    const double below = std::exchange(share, up_to);
    if (value <= 0) continue;
    steps.emplace_back(value, below);
    steps.emplace_back(value, share);
  }
  return steps;
}

std::string policy_row(const std::string& policy, std::size_t place, const std::vector<std::string>& cells) {
  std::string html = fmt::format(
      "<td><svg class=swatch viewBox=\"0 0 34 10\" aria-hidden=true><path d=\"M0 5h34\" class=\"line-{} "
      "dash{}\"/></svg>{}</td>",
      colour_of(place), dash_of(place), report::escaped(policy));
  for (const std::string& one : cells) html += one;
  return html;
}

}  // namespace clustar::bench::coflow
