// Registration of host memory: a name for a range, nothing more; the kernel copies.
#pragma once

#include <memory>

#include "transport/api/transport.h"

namespace clustar::transport::tcp {

inline Result<void> check_host(const gdr::MemoryRef& memory) {
  if (memory.kind != gdr::MemoryKind::kHost) {
    return fail(ErrorCode::kInvalidArgument,
                std::string("tcp registers host memory only, not ") + gdr::to_string(memory.kind));
  }
  return {};
}

}  // namespace clustar::transport::tcp
