#include "bench/trainer/compute/residence.h"

namespace clustar::bench::trainer {

std::string needs_host_memory(const TrainConfig& config, int ranks) {
  if (config.precision != Precision::kFloat32) return "gradients of 16 bits are packed there";
  if (config.accumulate > 1) return "micro-batches are added up there";
  if (config.codec.codec != Codec::kNone) return "codecs work there";
  if (ranks == 1 || config.no_communication) return "";
  if (config.sharding != parallel::Sharding::kNone) return "ZeRO-1's shards are updated there";
  if (config.collective != CollectiveKind::kNccl) return "only --collective nccl sums in a GPU's memory";
  return "";
}

bool stays_on_device(const TrainConfig& config, int ranks) {
  return config.compute.device == DeviceKind::kCuda && config.compute.update != UpdatePlace::kHost &&
         needs_host_memory(config, ranks).empty();
}

}  // namespace clustar::bench::trainer
