// How each arm looks in every plot of a page: clustar's own transports are drawn solid, the kernel's TCP and MPTCP
// dashed, so that the two are told apart without colour.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "bench/report/style.h"

namespace clustar::bench::lossy_report {

struct ArmStyle {
  int slot = 0;  // of report::page_style()
  bool ours = true;
  std::vector<double> dash;  // empty: solid; in units of the plot

  double width() const { return ours ? 2.2 : 1.7; }
  // The same line beside the arm's name.
  std::string swatch() const;
};

inline constexpr int kSlots = report::kSeriesColours;

// Styles by arm name, in the order of first appearance in the scenarios, so that an arm looks the same everywhere.
class Palette {
 public:
  explicit Palette(const nlohmann::json& scenarios);
  // An arm that was not in the scenarios looks like the first.
  const ArmStyle& of(const std::string& arm) const;

 private:
  std::map<std::string, ArmStyle> styles_;
};

}  // namespace clustar::bench::lossy_report
