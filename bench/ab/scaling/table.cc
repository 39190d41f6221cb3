// The table of results.h.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "bench/ab/scaling/results.h"

namespace clustar::bench::ab::scaling {
namespace {

using nlohmann::json;

// Models on slow lines make less than one image in a second.
std::string rate(const json& value) {
  const double number = value.get<double>();
  return fmt::format("{:.{}f}", number, number >= 100 ? 0 : number >= 10 ? 1 : 2);
}

std::string spread(const json& values) {
  return fmt::format("{} ({} to {})", rate(values["median"]), rate(values["min"]), rate(values["max"]));
}

std::string arm_line(char letter, const json& arm) {
  std::string more;
  json all = arm["settings"];
  all.update(arm["options"]);
  for (const auto& [name, value] : all.items()) more += " " + name + "=" + value.get<std::string>();
  if (more == " " + arm["name"].get<std::string>()) more.clear();
  return fmt::format("  {}  {}; congestion control: {}{}{}\n", letter, arm["name"].get<std::string>(),
                     arm["congestion_control"].get<std::string>(),
                     arm["congestion_control_explicit"].get<bool>() ? "" : " (kernel's default)", more);
}

std::string row(const std::string& ranks, const std::string& what, const std::string& rates, const std::string& linear,
                const std::string& efficiency, const std::string& exposed, const std::string& ratio) {
  return fmt::format("  {:>5}  {:<17}{:>26}{:>10}{:>12}{:>13}  {}\n", ranks, what, rates, linear, efficiency, exposed,
                     ratio);
}

std::string ratio_of(const json& outcome, const json& point) {
  if (point["arm"] != "candidate") return {};
  for (const json& one : outcome["ratios"]) {
    if (one["ranks"] != point["ranks"]) continue;
    return fmt::format("{:.3f} ({:.3f} to {:.3f})", one["ratio"].get<double>(), one["low"].get<double>(),
                       one["high"].get<double>());
  }
  return {};
}

}  // namespace

std::string table(const json& outcome) {
  std::string text =
      fmt::format("\n{} ({}) on {}; {} round{} in {:.0f} s\n", outcome["model"].get<std::string>(),
                  outcome["shape"].get<std::string>(), outcome["place"]["text"].get<std::string>(),
                  outcome["rounds"].get<int>(), outcome["rounds"] == 1 ? "" : "s", outcome["seconds"].get<double>());
  if (!outcome["replay"].is_null()) text += fmt::format("  {}\n", outcome["replay"]["label"].get<std::string>());
  text += arm_line('A', outcome["arms"][0]) + arm_line('B', outcome["arms"][1]);
  text += fmt::format("  {}\n\n", rule_text(outcome));
  text += row("ranks", "median (range)", "images/s", "linear", "efficiency", "exposed, ms", "B/A  (95 % interval)");
  int before = 0;
  for (const json& point : outcome["points"]) {
    const int ranks = point["ranks"];
    const std::string arm = point["arm"];
    const std::string what = arm == "baseline" ? "A" : arm == "candidate" ? "B" : arm;
    text +=
        row(ranks == before ? "" : fmt::format("{}", ranks), what, spread(point["images_per_second"]),
            rate(point["linear_images_per_second"]), fmt::format("{:.3f}", point["efficiency"]["median"].get<double>()),
            fmt::format("{:.2f}", point["exposed_comm_ms_per_step"].get<double>()), ratio_of(outcome, point));
    before = ranks;
  }
  text += "\n";
  for (const json& warning : outcome["warnings"]) text += "  warning: " + warning.get<std::string>() + "\n";
  return text;
}

}  // namespace clustar::bench::ab::scaling
