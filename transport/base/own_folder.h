// Where this code is installed.
#pragma once

#include <string>

namespace clustar {

// The folder of the shared object (or executable) that this code is part of; "." if that cannot be told.
std::string own_folder();

}  // namespace clustar
