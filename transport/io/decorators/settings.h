// Faults on purpose. Part of the plugin, which knows the setting without the module.
#pragma once

#include <string>

#include "transport/base/setting.h"

namespace clustar {

struct FaultSettings {
  std::string inject;  // FaultSpec's text; empty: none

  static const TypedTable<FaultSettings>& table();
};

}  // namespace clustar
