// Smallest effective bottleneck first (Varys): by the bytes at the port that has most of the coflow.
#include "coflow/core/policies/ordered.h"

namespace clustar::coflow {

std::unique_ptr<Scheduler> make_sebf(const Table& table, const MaddOptions& options) {
  const auto key = [](const Table& all, CoflowId id) { return all.bottleneck(id) / all.coflow(id).weight; };
  return std::make_unique<Madd>(table, key, Madd::Keys::kAtArrival, options);
}

}  // namespace clustar::coflow
