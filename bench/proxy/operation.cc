#include "bench/proxy/operation.h"

#include <utility>

namespace clustar::bench::proxy {

std::size_t collective_bytes(const CollectiveRequest& request, int ranks) {
  const bool by_block =
      request.collective == Collective::kReduceScatter || request.collective == Collective::kAllGather;
  return request.count * element_bytes(request.type) * (by_block ? static_cast<std::size_t>(ranks) : 1);
}

Result<CollectiveStats> Completion::wait() const {
  std::unique_lock lock(mutex_);
  finished_.wait(lock, [this] { return result_.has_value(); });
  return *result_;
}

void Completion::finish(Result<CollectiveStats> result) {
  {
    const std::lock_guard lock(mutex_);
    result_ = std::move(result);
    done_.store(true, std::memory_order_release);
  }
  finished_.notify_all();
}

}  // namespace clustar::bench::proxy
