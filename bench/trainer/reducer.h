// Sums gradient buckets over the ranks while backward still runs, and measures how much of that was hidden.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "bench/proxy/communicator.h"
#include "bench/trainer/buckets.h"
#include "transport/base/result.h"

namespace clustar::bench::trainer {

using Clock = std::chrono::steady_clock;

// One step's communication on this rank, in seconds.
struct StepCommunication {
  double total_s = 0;    // time in which at least one bucket was under way
  double exposed_s = 0;  // time that compute stood still for it: from the end of backward to the last bucket's arrival
};

// One step: tensor_ready() for every tensor, then finish(). The gradients must stay untouched in between, but for
// those of tensors that are not ready yet. Without a communicator nothing is sent and nothing waits.
class GradientReducer {
 public:
  // `plan` and `communicator` must outlive the reducer.
  GradientReducer(const BucketPlan& plan, std::span<float> gradients, proxy::Communicator* communicator);

  // Starts each bucket whose last tensor this was, in bucket order whatever the order of tensors: collectives must
  // start in the same order on all ranks.
  void tensor_ready(std::size_t tensor);
  // Call when backward is over: waits for all buckets. Errors name the bucket.
  Result<StepCommunication> finish();

 private:
  struct InFlight {
    std::unique_ptr<proxy::Pending> pending;
    Clock::time_point started;
  };
  const BucketPlan& plan_;
  std::span<float> gradients_;
  proxy::Communicator* communicator_;
  std::vector<std::size_t> bucket_of_;  // by tensor
  std::vector<std::size_t> missing_;    // by bucket: tensors that are not ready
  std::vector<InFlight> in_flight_;     // by bucket, as far as started
};

}  // namespace clustar::bench::trainer
