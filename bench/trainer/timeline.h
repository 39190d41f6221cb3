// When things happened in the latest steps of a rank: computing, and each bucket on its way.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <nlohmann/json_fwd.hpp>
#include <utility>
#include <vector>

namespace clustar::bench::trainer {

// From a bucket's start to the end of its collective.
using BucketTimes =
    std::vector<std::pair<std::chrono::steady_clock::time_point, std::chrono::steady_clock::time_point>>;

// Seconds in which at least one of them was under way: they overlap, so their times are united, not added.
double time_under_way(BucketTimes times);

struct StepTimes {
  using Instant = std::chrono::steady_clock::time_point;
  Instant begin{}, backward{}, backward_end{}, end{};
  BucketTimes buckets{};
};

class Timeline {
 public:
  static constexpr std::size_t kSteps = 3;

  void add(StepTimes step) {
    if (steps_.size() == kSteps) steps_.pop_front();
    steps_.push_back(std::move(step));
  }
  // [{begin_s, backward_s, backward_end_s, end_s, buckets_s [[from, to]]}], from the first one's begin.
  nlohmann::json to_json() const;

 private:
  std::deque<StepTimes> steps_;
};

}  // namespace clustar::bench::trainer
