// The page of the coordinator.
#pragma once

#include <string>

namespace clustar::coflow::control {

// One file: HTML, style and script; it asks for /state.json each second and for nothing else.
std::string page_html();

// Its parts.
extern const char* const kPageStyle;
extern const char* const kPageScript;

}  // namespace clustar::coflow::control
