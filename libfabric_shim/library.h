// libfabric.so.1, opened at run time and kept: its dependencies (PSM's libraries) take signal handlers when they are
// loaded, which happens before any code of a module that needs them; and it frees little when it is unloaded. All other
// calls of libfabric go through its objects.
#pragma once

#include <rdma/fabric.h>

#include <cstdint>

#include "transport/base/result.h"

namespace clustar::transport::ofi {

struct Library {
  decltype(&fi_getinfo) get_info = nullptr;
  decltype(&fi_freeinfo) free_info = nullptr;
  decltype(&fi_dupinfo) duplicate_info = nullptr;
  decltype(&fi_fabric) open_fabric = nullptr;
  decltype(&fi_strerror) error_text = nullptr;
  decltype(&fi_version) version = nullptr;
  decltype(&fi_getparams) get_params = nullptr;
  decltype(&fi_freeparams) free_params = nullptr;

  // Opened by the first call; any thread. Error: it cannot be opened, the loader's reason, and which package has it.
  static const Result<Library>& get();
};

}  // namespace clustar::transport::ofi
