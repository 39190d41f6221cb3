#include "bench/trainer/reducer.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

namespace clustar::bench::trainer {
namespace {

double seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

GradientReducer::GradientReducer(const BucketPlan& plan, std::span<float> gradients, proxy::Communicator* communicator)
    : plan_(plan), gradients_(gradients), communicator_(communicator), bucket_of_(plan.tensor_offset.size()) {
  for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
    missing_.push_back(plan.buckets[b].tensors.size());
    for (const std::size_t tensor : plan.buckets[b].tensors) bucket_of_[tensor] = b;
  }
}

void GradientReducer::tensor_ready(std::size_t tensor) {
  --missing_[bucket_of_[tensor]];
  if (communicator_ == nullptr) return;
  while (in_flight_.size() < plan_.buckets.size() && missing_[in_flight_.size()] == 0) {
    const Bucket& bucket = plan_.buckets[in_flight_.size()];
    const Clock::time_point now = Clock::now();
    in_flight_.push_back({communicator_->all_reduce(gradients_.data() + bucket.offset, bucket.elements,
                                                    proxy::DataType::kFloat32, proxy::ReduceOp::kSum),
                          now});
  }
}

Result<StepCommunication> GradientReducer::finish() {
  for (std::size_t b = 0; b < missing_.size(); ++b) missing_[b] = plan_.buckets[b].tensors.size();
  StepCommunication step;
  if (communicator_ == nullptr) return step;
  const Clock::time_point backward_over = Clock::now();
  // Buckets overlap in time (a later one queues behind an earlier one), so their times are united, not added.
  Clock::time_point covered_to = in_flight_.empty() ? backward_over : in_flight_.front().started;
  std::optional<Error> error;
  for (std::size_t b = 0; b < in_flight_.size(); ++b) {
    // After a failure the later buckets are aborted, and waited for too: until then they may write to the gradients.
    const auto stats = in_flight_[b].pending->wait();
    if (!stats && !error) {
      error = stats.error();
      error->message = fmt::format("all-reduce of gradient bucket {} of {} ({} bytes) failed: {}", b + 1,
                                   plan_.buckets.size(), plan_.buckets[b].elements * sizeof(float), error->message);
      communicator_->abort();
    }
    if (!stats) continue;
    const auto length = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(stats->seconds));
    const Clock::time_point end = in_flight_[b].started + length;
    const Clock::time_point from = std::max(covered_to, in_flight_[b].started);
    if (end > from) step.total_s += seconds(end - from);
    covered_to = std::max(covered_to, end);
  }
  in_flight_.clear();
  if (error) return tl::unexpected(*std::move(error));
  step.exposed_s = seconds(Clock::now() - backward_over);
  return step;
}

}  // namespace clustar::bench::trainer
