// Ownership of libfabric's objects: closed once, in the order in which their owners end.
#pragma once

#include <rdma/fabric.h>

#include <memory>

namespace clustar::transport::ofi {

template <class T>
struct CloseFid {
  void operator()(T* object) const { fi_close(&object->fid); }
};
template <class T>
using Fid = std::unique_ptr<T, CloseFid<T>>;

}  // namespace clustar::transport::ofi
