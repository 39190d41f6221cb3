// What one rank of a run computes with.
#pragma once

#include <cstddef>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "bench/trainer/compute/compute.h"
#include "bench/trainer/compute/layer_clock.h"
#include "bench/trainer/compute/layer_times.h"
#include "bench/trainer/config.h"
#include "bench/trainer/graph/device_math.h"
#include "bench/trainer/model.h"
#include "transport/base/result.h"

namespace clustar::bench::trainer {

// Of one step, at most, on one rank.
std::size_t largest_share(int batch, int ranks);
// Of one micro-batch of it.
std::size_t largest_micro_batch(const TrainConfig& config, int ranks);

// The tensors' layout and the first step's buckets, of the size that travels.
BucketPlan plan_of(const TrainConfig& config, const Model& model, int ranks = 1);

// The times that config.compute names: none where the run computes. Errors: see load_layer_times() and check_fits().
Result<std::optional<LayerTimes>> replayed_times(const TrainConfig& config, const Model& model, int ranks);

// How many examples a replay goes through, which has no data set; 0: the run computes.
std::size_t replayed_examples(const TrainConfig& config);

struct RankCompute {
  std::unique_ptr<graph::DeviceMath> math;  // null: nothing is computed
  bool emulated = false;                    // `math` is a GPU's that is not there
  std::string libraries;                    // of a GPU, as CudaMath has it
  std::unique_ptr<LayerClock> clock;        // null: config.record_compute names no file
  std::unique_ptr<Compute> compute;
};
// `model` outlives it; `plan` does not need to. kUnavailable: the device that config.compute names is not there.
Result<RankCompute> make_compute(const TrainConfig& config, const Model& model, const BucketPlan& plan,
                                 const std::optional<LayerTimes>& times, int rank, int ranks);

// {label, estimated, device, batch, layer_times, time_scale, byte_scale, forward_s, backward_s (of one rank's step, as
// replayed)}, or null without times.
nlohmann::json replay_json(const TrainConfig& config, const std::optional<LayerTimes>& times, int ranks);

}  // namespace clustar::bench::trainer
