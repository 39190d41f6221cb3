// A scenario's part of the page.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "bench/lossy/report/gnuplot.h"
#include "bench/lossy/report/palette.h"

namespace clustar::bench::lossy_report {

// Draws plots into a page, and remembers what went wrong.
class Plotter {
 public:
  explicit Plotter(GnuplotOptions options) : options_(std::move(options)) {}

  // A figure with its caption; why it is missing in place of the plot. "" for an empty script.
  std::string figure(const std::string& script, const std::string& caption, const std::vector<std::string>& labels);
  int plots() const { return plots_; }
  const std::vector<std::string>& problems() const { return problems_; }

 private:
  GnuplotOptions options_;
  int plots_ = 0;
  bool useless_ = false;  // there is no gnuplot, or one that does not end
  std::vector<std::string> problems_;
};

// What the scenario is called, in words for people.
std::string title_of(const nlohmann::json& scenario);
// Whether an arm had too few rounds for its percentiles.
bool is_indicative(const nlohmann::json& scenario);
// "s<index>": the section's id.
std::string anchor(std::size_t index);

std::string section(const nlohmann::json& scenario, std::size_t index, const Palette& palette, Plotter& plotter);

}  // namespace clustar::bench::lossy_report
