// A look at a TOML file before its parser reads it.
#pragma once

#include <optional>
#include <string>

namespace clustar::bench::fabric {

// "LINE: why" of the first line that must not reach the parser, which, with what it makes, calls itself for each
// bracket within another and each dot of a key: a file could go on with those until the stack is gone. `what` is what
// the file describes ("a topology").
std::optional<std::string> refuse_toml(const std::string& content, const std::string& what);

}  // namespace clustar::bench::fabric
