// Which other recovery mlt uses. Part of the plugin, which knows the setting without the module.
#pragma once

#include "transport/base/setting.h"
#include "transport/base/time.h"

namespace clustar {

struct CompareSettings {
  // A message ends so long after its first packet, whatever is missing, which breaks the loss contract for every
  // message; 0: never.
  Duration static_deadline{0};

  static const TypedTable<CompareSettings>& table();
};

}  // namespace clustar
