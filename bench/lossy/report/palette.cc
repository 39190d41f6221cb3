#include "bench/lossy/report/palette.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "bench/lossy/report/fields.h"

namespace clustar::bench::lossy_report {
namespace {

using nlohmann::json;

constexpr int kEach = kSlots / 2;  // slots of ours, then as many of the kernel's

bool is_ours(const json& arm) {
  for (const char* key : {"transport", "name"}) {
    const std::string value = text(arm, key);
    for (const char* word : {"mlt", "clustar"}) {
      if (value.find(word) != std::string::npos) return true;
    }
  }
  return false;
}

const std::vector<std::vector<double>>& dashes() {
  static const std::vector<std::vector<double>> all{{7, 3}, {2, 2}, {9, 3, 2, 3}, {4, 4}, {12, 4}, {6, 2, 2, 2, 2, 2}};
  return all;
}

}  // namespace

std::string ArmStyle::swatch() const {
  return fmt::format(
      "<svg class=swatch viewBox=\"0 0 34 10\" aria-hidden=true><line x1=0 y1=5 x2=34 y2=5 stroke=\"var(--s{})\" "
      "stroke-width={} stroke-dasharray=\"{}\" /></svg>",
      slot, width() + 0.6, dash.empty() ? "none" : fmt::format("{}", fmt::join(dash, " ")));
}

Palette::Palette(const json& scenarios) {
  std::size_t ours = 0, others = 0;
  for (const json& scenario : scenarios) {
    for (const json& arm : list(scenario, "arms")) {
      ArmStyle style{.slot = 0, .ours = is_ours(arm), .dash = {}};
      std::size_t& count = style.ours ? ours : others;
      if (!styles_.try_emplace(text(arm, "name")).second) continue;
      style.slot = static_cast<int>(count % kEach) + (style.ours ? 0 : kEach);
      if (!style.ours) style.dash = dashes()[count % dashes().size()];
      styles_[text(arm, "name")] = style;
      ++count;
    }
  }
}

const ArmStyle& Palette::of(const std::string& arm) const {
  static const ArmStyle unknown;
  const auto found = styles_.find(arm);
  return found == styles_.end() ? unknown : found->second;
}

}  // namespace clustar::bench::lossy_report
