#include "bench/trainer/compute/rank_compute.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "bench/trainer/compute/cards.h"
#include "bench/trainer/compute/device_compute.h"
#include "bench/trainer/compute/network_compute.h"
#include "bench/trainer/compute/replay_compute.h"
#include "bench/trainer/graph/cuda/cuda_math.h"
#include "gdr/launch/device.h"

namespace clustar::bench::trainer {

std::size_t largest_share(int batch, int ranks) { return static_cast<std::size_t>((batch + ranks - 1) / ranks); }

std::size_t largest_micro_batch(const TrainConfig& config, int ranks) {
  return largest_share(static_cast<int>(largest_share(config.batch, ranks)), config.accumulate);
}

BucketPlan plan_of(const TrainConfig& config, const Model& model, int ranks) {
  BucketPlan plan = scaled_plan(model, config.first_bucket_bytes, config.bucket_bytes, config.compute.byte_scale);
  const bool shards = config.sharding == parallel::Sharding::kZero1 && !config.no_communication;
  plan.caps.shards = shards ? static_cast<std::size_t>(ranks) : 1;
  plan.caps.precision = config.precision;
  return config.initial_buckets == InitialBuckets::kOne ? plan_one_bucket(plan.tensor_elements, plan.caps)
                                                        : plan_buckets(plan.tensor_elements, plan.caps);
}

Result<std::optional<LayerTimes>> replayed_times(const TrainConfig& config, const Model& model, int ranks) {
  if (!config.compute.replays()) return std::nullopt;
  if (config.compute.kind == ComputeKind::kEstimate) {
    return estimate(model, *find_card(config.compute.source), largest_share(config.batch, ranks));
  }
  auto times = load_layer_times(config.compute.source);
  if (!times) return tl::unexpected(times.error());
  if (auto fits = check_fits(*times, model); !fits) {
    return fail(fits.error().code, fmt::format("'{}': {}", config.compute.source, fits.error().message));
  }
  return std::move(*times);
}

std::size_t replayed_examples(const TrainConfig& config) {
  constexpr std::size_t kUsual = 1000;
  if (!config.compute.replays()) return 0;
  return config.generated != 0 ? config.generated : kUsual;
}

namespace {

Result<std::unique_ptr<graph::CudaMath>> open_cuda(const TrainConfig& config, int rank) {
  const std::string& driver = config.compute.cuda_driver;
  // That of NCCL's collective, which counts them alike.
  auto math = graph::CudaMath::open(driver.empty() ? gdr::launch::kCudaDriver : driver, rank, config.compute.math);
  if (!math) {
    const std::string& said = math.error().message;
    const bool of_library = said.find("cuBLAS") != std::string::npos || said.find("cuDNN") != std::string::npos ||
                            said.find("--cublas") != std::string::npos;
    const char* const mend = of_library ? "name other files by --cublas and --cudnn, do without cuDNN by --cudnn none, "
                                          "or take --device-math kernels and neither"
                                        : "install the GPU's driver, name one by --cuda-driver (docs/cuda.md has an "
                                          "emulated one), or take --device cpu";
    return fail(math.error().code, fmt::format("--device cuda: {}; {}", said, mend));
  }
  return math;
}

}  // namespace

Result<RankCompute> make_compute(const TrainConfig& config, const Model& model, const BucketPlan& plan,
                                 const std::optional<LayerTimes>& times, int rank, int ranks) {
  RankCompute made;
  if (times) {
    made.compute = std::make_unique<ReplayCompute>(model, plan, *times, config.compute.time_scale,
                                                   config.seed + static_cast<std::uint64_t>(rank));
    return made;
  }
  if (!config.record_compute.empty()) made.clock = std::make_unique<LayerClock>(model);
  const NetworkCompute::Options options{.seed = config.seed,
                                        .rank = rank,
                                        .most_share = largest_micro_batch(config, ranks),
                                        .precision = config.precision,
                                        .clock = made.clock.get()};
  if (config.compute.device == DeviceKind::kCuda) {
    auto math = open_cuda(config, rank);
    if (!math) return tl::unexpected(math.error());
    made.emulated = (*math)->emulated();
    made.libraries = (*math)->libraries();
    made.compute = std::make_unique<DeviceCompute>(model, plan, **math, options);
    made.math = std::move(*math);
  } else {
    made.math = graph::make_cpu_math();
    made.compute = std::make_unique<NetworkCompute>(model, plan, *made.math, options);
  }
  return made;
}

nlohmann::json replay_json(const TrainConfig& config, const std::optional<LayerTimes>& times, int ranks) {
  if (!times) return nullptr;
  const ComputeOptions& options = config.compute;
  const double share = static_cast<double>(largest_share(config.batch, ranks)) / static_cast<double>(times->batch);
  return {{"label", fmt::format("REPLAY, not computed: times {}, x {}; bytes / {}", times->source(), options.time_scale,
                                options.byte_scale)},
          {"estimated", times->estimated},
          {"device", times->device},
          {"batch", times->batch},
          {"layer_times", options.kind == ComputeKind::kReplay ? nlohmann::json(options.source) : nlohmann::json()},
          {"time_scale", options.time_scale},
          {"byte_scale", options.byte_scale},
          {"forward_s", times->forward_s() * share * options.time_scale},
          {"backward_s", times->backward_s() * share * options.time_scale}};
}

}  // namespace clustar::bench::trainer
