// Files of sysfs and procfs: small, sometimes gone, unreadable or nonsense.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "transport/base/result.h"

namespace clustar::gdr {

// Up to `most` bytes. Errors name the path and why; what is no plain file is one, so that nothing can block.
Result<std::string> read_small_file(const std::string& path, std::size_t most = 4096);
// The first line, without characters that a terminal would obey; "" when it cannot be read.
std::string first_line(const std::string& path);
// Names in a folder, sorted. Error: it cannot be listed.
Result<std::vector<std::string>> names_in(const std::string& folder);
// Where a path leads when all links are followed; error: nowhere.
Result<std::string> real_path(const std::string& path);
bool is_there(const std::string& path);
// A link, wherever it leads.
bool is_link(const std::string& path);
// `text` with a ? for each character that a terminal would obey.
std::string printable(std::string text);

}  // namespace clustar::gdr
