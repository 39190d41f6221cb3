// Whether and how GPU memory is offered to NCCL.
#pragma once

#include <string>

#include "transport/base/setting.h"

namespace clustar {

struct GdrSettings {
  // auto: offered where the NIC reaches it | off: never | staged: where the NIC does not, it is copied by way of pinned
  // host memory of ours, for comparisons with NCCL's own host buffers.
  std::string gdr = "auto";
  // For tests without a GPU: host memory plays GPU memory. Every transport offers it, NCCL is asked to flush, and
  // nothing may touch it but what could touch a GPU's.
  bool emulate = false;

  static const TypedTable<GdrSettings>& table();
};

}  // namespace clustar
