// How all HTML pages look: colours as variables, by scheme; text, tables, plots; narrow windows and paper.
#pragma once

#include <string>

namespace clustar::bench::report {

// Colours for many series that are told apart by colour-blind people, too (hues after Okabe and Ito), darkened on white
// and lightened on black: variables --s0 to --s11, and classes s0 to s11 of them. --a and --b are two arms, --c what
// both are compared to.
inline constexpr int kSeriesColours = 12;

// The whole style sheet. A page adds its own colours: .line-CLASS { stroke } and .fill-CLASS { fill }.
std::string page_style();

}  // namespace clustar::bench::report
