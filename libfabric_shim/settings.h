// Settings of the transport over libfabric. Needs no libfabric: the names are known where the module is not.
#pragma once

#include <cstdint>
#include <string>

#include "transport/base/setting.h"

namespace clustar {

struct OfiSettings {
  std::string provider;                 // libfabric's name of it, or the front of that ("tcp"); empty: the best
  std::string progress = "any";         // any: as the provider likes | manual: by our calls | auto: by its threads
  std::uint32_t eager_bytes = 8 << 10;  // largest message that may go ahead of its receive
  std::uint32_t chunk_bytes = 4 << 20;  // a longer message is cut into messages of this size

  static const TypedTable<OfiSettings>& table();
};

}  // namespace clustar
