#include "bench/sim/render.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace clustar::bench::sim {
namespace {

std::string number(double value) {
  if (value != 0 && std::abs(value) < 0.001) return fmt::format("{:.1e}", value);
  return std::abs(value) >= 1000 ? fmt::format("{:.0f}", value) : fmt::format("{:.4g}", value);
}

std::string verdict(const Row& row) {
  if (!row.bar) return "";
  return fmt::format("  [{} {} {}: {}]", row.figures[row.bar->figure].name,
                     row.bar->at_least ? ">=" : "<=", number(row.bar->limit), row.met() ? "met" : "MISSED");
}

}  // namespace

std::string table(const Experiment& experiment, const Rows& rows) {
  std::size_t situation = 0, arm = 0;
  for (const Row& row : rows) {
    situation = std::max(situation, row.situation.size());
    arm = std::max(arm, row.arm.size());
  }
  std::string text = fmt::format("{}: {}\n", experiment.name, experiment.what);
  for (const Row& row : rows) {
    text += fmt::format("  {:<{}}  {:<{}}", row.situation, situation, row.arm, arm);
    for (const Figure& figure : row.figures) text += fmt::format("  {} {}", figure.name, number(figure.value));
    text += verdict(row) + "\n";
  }
  return text;
}

nlohmann::json to_json(const Experiment& experiment, const Rows& rows) {
  nlohmann::json list = nlohmann::json::array();
  for (const Row& row : rows) {
    nlohmann::json figures = nlohmann::json::object();
    for (const Figure& figure : row.figures) figures[figure.name] = figure.value;
    nlohmann::json one = {
        {"experiment", experiment.name}, {"situation", row.situation}, {"arm", row.arm}, {"figures", figures}};
    if (row.bar) {
      one["bar"] = {{"figure", row.figures[row.bar->figure].name},
                    {row.bar->at_least ? "at_least" : "at_most", row.bar->limit},
                    {"met", row.met()}};
    }
    list.push_back(std::move(one));
  }
  return list;
}

}  // namespace clustar::bench::sim
