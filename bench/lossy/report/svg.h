// From what gnuplot's svg terminal writes to SVG that stands inside a page: scripts ask for colours that mean roles
// (below), which become the page's variables and so follow its scheme.
#pragma once

#include <string>
#include <vector>

#include "transport/base/result.h"

namespace clustar::bench::lossy_report {

// Roles as gnuplot colours, to be written behind `rgb`.
inline constexpr const char* kAxisColour = "'#000101'";
inline constexpr const char* kTextColour = "'#000102'";
inline constexpr const char* kGridColour = "'#000103'";
inline constexpr const char* kMarkColour = "'#000104'";
std::string slot_colour(int slot);  // of the Palette

// A place for the page's text in a script. Labels never reach gnuplot, which has characters that mean something
// outside and inside of quotes; they take the place of their tokens in the SVG.
std::string label_token(std::size_t index);

// `name` is what a reader without eyes gets. kInternal when it is no SVG.
Result<std::string> inline_svg(const std::string& gnuplot_svg, const std::string& name,
                               const std::vector<std::string>& labels);

}  // namespace clustar::bench::lossy_report
