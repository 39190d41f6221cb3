#include "bench/trainer/collective.h"

#include "bench/trainer/failed_pending.h"

namespace clustar::bench::trainer {

std::unique_ptr<Pending> Collective::reduce_scatter(Buffer, std::size_t, Precision, Event) {
  return failed_pending({ErrorCode::kUnavailable,
                         "this collective has no reduce-scatter; allowed: proxy, nccl, and paraexpress without "
                         "--tolerant"});
}

std::unique_ptr<Pending> Collective::all_to_all(Buffer, Buffer, const BlockSizes&) {
  return failed_pending({ErrorCode::kUnavailable,
                         "this collective has no all-to-all; allowed: proxy, nccl, and paraexpress without "
                         "--tolerant"});
}

}  // namespace clustar::bench::trainer
