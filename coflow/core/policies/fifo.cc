// First in, first out: coflows in the order of their arrival. CoflowSim's FIFO.
#include "coflow/core/policies/ordered.h"

namespace clustar::coflow {

std::unique_ptr<Scheduler> make_fifo(const Table& table, const MaddOptions& options) {
  return std::make_unique<Madd>(
      table, [](const Table&, CoflowId) { return 0.0; }, Madd::Keys::kAtArrival, options);
}

}  // namespace clustar::coflow
