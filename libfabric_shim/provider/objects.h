// What all objects that libfabric sees have in common: a `fid` first, and tables of functions.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>

#include <cstddef>

#include "libfabric_shim/provider/provider.h"

namespace clustar::libfabric_shim::provider {

// The object of ours that a program holds as `Base`, of which `fid` is the first member.
template <class Object, class Base>
Object& object_of(fid* id) {
  return *static_cast<Object*>(reinterpret_cast<Base*>(id));
}

inline int no_bind(fid*, fid*, std::uint64_t) { return -FI_ENOSYS; }
inline int no_control(fid*, int, void*) { return -FI_ENOSYS; }
inline int no_ops(fid*, const char*, std::uint64_t, void**, void*) { return -FI_ENOSYS; }

using CloseCall = int (*)(fid*);
using BindCall = int (*)(fid*, fid*, std::uint64_t);
using ControlCall = int (*)(fid*, int, void*);
inline fi_ops fid_table(CloseCall close, BindCall bind = no_bind, ControlCall control = no_control) {
  fi_ops ops{};
  ops.size = sizeof(ops);
  ops.close = close;
  ops.bind = bind;
  ops.control = control;
  ops.ops_open = no_ops;
  return ops;
}

inline void set_id(fid& id, std::size_t fclass, void* context, fi_ops& ops) {
  id.fclass = fclass;
  id.context = context;
  id.ops = &ops;
}

}  // namespace clustar::libfabric_shim::provider
