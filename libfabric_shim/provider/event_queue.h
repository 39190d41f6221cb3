// An event queue, for programs that open one: nothing here has events, so it only ever is empty.
#pragma once

#include "libfabric_shim/provider/domain.h"

namespace clustar::libfabric_shim::provider {

class EventQueue final : public fid_eq {
 public:
  static int open(fid_fabric* fabric, fi_eq_attr* attr, fid_eq** made, void* context);
  EventQueue(Fabric& fabric, void* context);
  ~EventQueue() { --fabric_.children; }

 private:
  Fabric& fabric_;
};

}  // namespace clustar::libfabric_shim::provider
