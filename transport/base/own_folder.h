// Where this code is installed.
#pragma once

#include <string>
#include <vector>

namespace clustar {

// The folder of the shared object (or executable) that this code is part of; "." if that cannot be told.
std::string own_folder();

// Where the plugin and its modules may be, nearest first: beside this code; for a program ../lib, or where an
// installation put libraries, seen from its programs (Debian: ../lib/x86_64-linux-gnu).
std::vector<std::string> module_folders();

// The file in the first of these folders that has it; in ../lib where none has.
std::string installed_library(const std::string& file);

}  // namespace clustar
