// Owner of one object of libibverbs.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>

namespace clustar::transport::io::verbs {

// The library refuses to destroy what something else still uses (EBUSY), and the object then stays until the process
// ends: the order below is the owner's business. Refusals are counted for tests.
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
// regions, protection domains; contexts. A member is destroyed before those declared above it.
template <class T>
using Handle = std::unique_ptr<T, Destroy>;

}  // namespace clustar::transport::io::verbs
