#include "bench/trainer/checkpoint/run_identity.h"

#include <fmt/format.h>

#include <string>

#include "bench/trainer/digest.h"
#include "bench/trainer/graph/device_math.h"

namespace clustar::bench::trainer {
namespace {

std::string codec_text(const CodecOptions& codec) {
  if (codec.codec == Codec::kNone) return "none";
  std::string text = fmt::format("{}, {}", to_string(codec.codec), to_string(codec.path));
  if (codec.codec == Codec::kTopK) text += fmt::format(", fraction {}", codec.topk_fraction);
  return text;
}

std::string collective_text(const TrainConfig& config, int ranks, int channels) {
  if (ranks == 1) return "none";
  std::string text = to_string(config.collective);
  if (config.collective == CollectiveKind::kParaexpress) {
    text += fmt::format(", plan {}, {} helpers", to_string(config.paraexpress.plan), config.paraexpress.helpers);
    if (!config.paraexpress.regions.empty()) {
      text += fmt::format(", regions {:016x}", digest(std::as_bytes(std::span(config.paraexpress.regions))));
    }
  }
  if (config.collective == CollectiveKind::kProxy) {
    text += fmt::format(", {}", to_string(config.exchange.all_reduce));
    if (config.exchange.all_reduce == AllReduce::kAllToAll) {
      text += fmt::format(", missing {}", to_string(config.exchange.missing));
    }
  }
  if (opens_plugin(config.collective)) text += fmt::format(", {} channels", channels);
  return text;
}

}  // namespace

Facts run_identity(const TrainConfig& config, int ranks, int channels, const Dataset& dataset) {
  const ModelOptions& model = config.model_options;
  return {{"version of clustar", CLUSTAR_VERSION},
          {"mathematics", config.compute.device == DeviceKind::kCuda ? "own CUDA kernels" : graph::cpu_math_name()},
          {"--model", config.model},
          {"--image-size", std::to_string(model.image_size)},
          {"--classes", std::to_string(model.classes)},
          {"--width-divisor", std::to_string(model.width_divisor)},
          {"--batch", std::to_string(config.batch)},
          {"--lr", fmt::format("{}", config.rate)},
          {"--momentum", fmt::format("{}", config.momentum)},
          {"--weight-decay", fmt::format("{}", config.weight_decay)},
          {"--seed", std::to_string(config.seed)},
          {"ranks", std::to_string(ranks)},
          {"first bucket, bytes", std::to_string(config.first_bucket_bytes)},
          {"buckets, bytes", std::to_string(config.bucket_bytes)},
          {"--accumulate", std::to_string(config.accumulate)},
          {"--optimizer-sharding", parallel::to_string(config.sharding)},
          {"gradient codec", codec_text(config.codec)},
          {"collective", collective_text(config, ranks, channels)},
          {"data set", fmt::format("{} examples, digest {:016x}", dataset.size(), digest(dataset))}};
}

}  // namespace clustar::bench::trainer
