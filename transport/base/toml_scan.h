// A look at a TOML file before its parser reads it.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "transport/base/result.h"

namespace clustar {

// What a file holds, or its first kMaxTomlBytes + 1 bytes. The error says why it cannot be read.
inline constexpr std::size_t kMaxTomlBytes = 1 << 20;  // 250 hosts and 250 switches need 100 kB
Result<std::string> read_toml_text(const std::string& path);

// "LINE: why" of the first line that must not reach the parser, which, with what it makes, calls itself for each
// bracket within another and each dot of a key: a file could go on with those until the stack is gone. `what` is what
// the file describes ("a topology").
std::optional<std::string> refuse_toml(const std::string& content, const std::string& what);

}  // namespace clustar
