#include "transport/io/verbs/handle.h"

#include <atomic>

namespace clustar::transport::io::verbs {
namespace {

std::atomic<std::uint64_t> refusals{0};

void note(int error) {
  if (error != 0) refusals.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

void Destroy::operator()(ibv_context* object) const { note(ibv_close_device(object)); }
void Destroy::operator()(ibv_pd* object) const { note(ibv_dealloc_pd(object)); }
void Destroy::operator()(ibv_mr* object) const { note(ibv_dereg_mr(object)); }
void Destroy::operator()(ibv_mw* object) const { note(ibv_dealloc_mw(object)); }
void Destroy::operator()(ibv_comp_channel* object) const { note(ibv_destroy_comp_channel(object)); }
void Destroy::operator()(ibv_cq* object) const { note(ibv_destroy_cq(object)); }
void Destroy::operator()(ibv_srq* object) const { note(ibv_destroy_srq(object)); }
void Destroy::operator()(ibv_ah* object) const { note(ibv_destroy_ah(object)); }
void Destroy::operator()(ibv_qp* object) const { note(ibv_destroy_qp(object)); }

std::uint64_t refused_destructions() { return refusals.load(std::memory_order_relaxed); }

}  // namespace clustar::transport::io::verbs
