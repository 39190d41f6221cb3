// Owner of one object of libibverbs.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>

namespace clustar::transport::io::verbs {

// The order below is the owner's business. The kernel refuses most of what something else still uses (EBUSY): the
// object then stays until the process ends, and is counted for tests. Nothing protects a context: ibv_close_device
// frees it whatever was made with it, and what is destroyed after it reads freed memory.
struct Destroy {
  void operator()(ibv_context* object) const;
  void operator()(ibv_pd* object) const;
  void operator()(ibv_mr* object) const;
  void operator()(ibv_mw* object) const;
  void operator()(ibv_comp_channel* object) const;
  void operator()(ibv_cq* object) const;
  void operator()(ibv_srq* object) const;
  void operator()(ibv_ah* object) const;
  void operator()(ibv_qp* object) const;
};
std::uint64_t refused_destructions();

// Destroyed in this order: queue pairs, address handles, shared receive queues, completion queues, channels; windows,
// regions, protection domains; contexts. A member is destroyed before those declared above it, but a memberwise
// assignment replaces the upper ones first: what owns several, or children elsewhere, is moved by construction only.
template <class T>
using Handle = std::unique_ptr<T, Destroy>;

}  // namespace clustar::transport::io::verbs
