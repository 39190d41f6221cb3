// Every setting of the product.
#pragma once

#include <map>
#include <string>

#include "transport/base/config.h"

namespace clustar {

Config::Tables all_settings();

// Of this process's environment. Error: an unknown name, a bad value or a contradiction, with what is allowed.
Result<Config> load_settings();
// The same from given variables.
Result<Config> load_settings(const std::map<std::string, std::string>& environment);

}  // namespace clustar
