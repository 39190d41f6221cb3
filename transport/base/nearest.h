// "Did you mean ...?" for the names of settings, options and commands.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace clustar {

// The one of `known` that `name` is most likely a mistyped form of; "" where none is near: one in three characters
// may be wrong, or whole words between underscores and dashes missing.
std::string nearest(std::string_view name, const std::vector<std::string>& known);

// "; did you mean Y?", or "".
std::string did_you_mean(std::string_view name, const std::vector<std::string>& known);

}  // namespace clustar
