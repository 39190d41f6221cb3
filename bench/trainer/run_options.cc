#include "bench/trainer/run_options.h"

#include <fmt/format.h>

#include <span>
#include <utility>

#include "bench/trainer/compute/rank_compute.h"
#include "bench/trainer/compute/residence.h"
#include "bench/trainer/digest.h"
#include "bench/trainer/graph/device_math.h"
#include "bench/trainer/tolerance.h"

namespace clustar::bench::trainer {
namespace {

constexpr double kMib = 1024 * 1024;

std::string hex_of(const std::string& text) { return fmt::format("{:016x}", digest(std::as_bytes(std::span(text)))); }

std::string mib(std::size_t bytes) { return fmt::format("{}", static_cast<double>(bytes) / kMib); }

std::string codec_text(const CodecOptions& codec) {
  if (codec.codec == Codec::kNone) return "none";
  std::string text = fmt::format("{}, {}", to_string(codec.codec), to_string(codec.path));
  if (codec.codec == Codec::kTopK) text += fmt::format(", fraction {}", codec.topk_fraction);
  return text;
}

// By what gradients are summed, as far as it is of use.
std::string collective_text(const TrainConfig& config, int ranks, int channels) {
  if (ranks == 1) return "none";
  std::string text = to_string(config.collective);
  if (config.collective == CollectiveKind::kParaexpress) {
    text += fmt::format(", plan {}, {} helpers", to_string(config.paraexpress.plan), config.paraexpress.helpers);
    if (!config.paraexpress.regions.empty()) text += ", regions " + hex_of(config.paraexpress.regions);
  }
  const bool exchanges = config.exchange.all_reduce == AllReduce::kAllToAll;
  if (config.collective == CollectiveKind::kProxy || (config.collective == CollectiveKind::kNccl && exchanges)) {
    text += fmt::format(", {}", to_string(config.exchange.all_reduce));
    if (exchanges) {
      text += fmt::format(", missing {}", to_string(config.exchange.missing));
    }
  }
  if (opens_plugin(config.collective)) text += fmt::format(", {} channels", channels);
  return text;
}

std::string mathematics(const TrainConfig& config, int ranks) {
  if (config.compute.device != DeviceKind::kCuda) return graph::cpu_math_name();
  const graph::cuda::MathOptions& math = config.compute.math;
  std::string text = "own CUDA kernels";
  if (stays_on_device(config, ranks)) text += ", the update's too";
  if (math != graph::cuda::MathOptions{}) {
    text += fmt::format("; --device-math {}{}", to_string(math.choice),
                        math.cudnn == graph::cuda::kNoLibrary ? " without cuDNN" : "");
  }
  return text;
}

// What a model learns, and from what.
void add_training(const TrainConfig& config, int ranks, const Dataset& dataset, std::vector<RunOption>& all) {
  const ModelOptions& model = config.model_options;
  all.insert(all.end(),
             {{"version of clustar", CLUSTAR_VERSION},
              {"mathematics", mathematics(config, ranks), Shared::kBits},
              {"--model", config.model},
              {"--image-size", std::to_string(model.image_size)},
              {"--classes", std::to_string(model.classes)},
              {"--width-divisor", std::to_string(model.width_divisor)},
              {"--epochs", std::to_string(config.epochs), Shared::kRanks},
              {"--batch", std::to_string(config.batch)},
              {"--lr", fmt::format("{}", config.rate)},
              {"--momentum", fmt::format("{}", config.momentum)},
              {"--weight-decay", fmt::format("{}", config.weight_decay)},
              {"--seed", std::to_string(config.seed)},
              {"--precision", to_string(config.precision)},
              {"--loss-scale", to_text(config.loss_scale)},
              {"--loss-scale-interval", std::to_string(config.loss_scale.interval)},
              {"data set (--data)", fmt::format("{} examples, digest {:016x}", dataset.size(), digest(dataset))}});
}

void add_parallelism(const TrainConfig& config, int ranks, std::vector<RunOption>& all) {
  const auto yes = [](bool value) { return std::string(value ? "yes" : "no"); };
  all.insert(all.end(),
             {{"ranks", std::to_string(ranks)},
              {"--first-bucket-mb", mib(config.first_bucket_bytes)},
              {"--bucket-mb", mib(config.bucket_bytes)},
              {"--overlap-forward", yes(config.overlap_forward), Shared::kRanks},
              {"--front-buckets", std::to_string(config.front_buckets), Shared::kRanks},
              {"--initial-buckets", config.initial_buckets == InitialBuckets::kOne ? "one" : "caps", Shared::kRanks},
              {"--no-rebuild-buckets", yes(!config.rebuild_buckets), Shared::kRanks},
              {"--accumulate", std::to_string(config.accumulate)},
              {"--optimizer-sharding", parallel::to_string(config.sharding)},
              {"--traffic", parallel::to_text(config.layers), Shared::kRanks},
              {"--no-communication", yes(config.no_communication), Shared::kRanks},
              {"--codec", codec_text(config.codec)},
              {"--codec-path", to_string(config.codec.path), Shared::kRanks},
              {"--topk-fraction", fmt::format("{}", config.codec.topk_fraction), Shared::kRanks}});
}

}  // namespace

std::vector<RunOption> run_options(const TrainConfig& config, int ranks, int channels, const Dataset& dataset,
                                   const std::optional<LayerTimes>& times) {
  std::vector<RunOption> all;
  add_training(config, ranks, dataset, all);
  add_parallelism(config, ranks, all);
  const std::string target = config.target_accuracy ? fmt::format("{}", *config.target_accuracy) : "none";
  all.insert(all.end(), {{"--check-equal", std::to_string(static_cast<int>(config.check_equal)), Shared::kRanks},
                         {"--target-accuracy", target, Shared::kRanks},
                         {"--compute", hex_of(times ? to_text(*times) : ""), Shared::kRanks},
                         {"--device", config.compute.device == DeviceKind::kCuda ? "cuda" : "cpu", Shared::kRanks},
                         {"--update", stays_on_device(config, ranks) ? "device" : "host", Shared::kRanks},
                         {"--examples", std::to_string(replayed_examples(config)), Shared::kRanks},
                         {"--time-scale", fmt::format("{}", config.compute.time_scale), Shared::kRanks},
                         {"--byte-scale", fmt::format("{}", config.compute.byte_scale), Shared::kRanks},
                         {"collective", collective_text(config, ranks, channels), Shared::kBits},
                         {"--collective", to_string(config.collective), Shared::kRanks},
                         {"--all-reduce", to_string(config.exchange.all_reduce), Shared::kRanks},
                         {"--missing", to_string(config.exchange.missing), Shared::kRanks},
                         {"--plan", to_string(config.paraexpress.plan), Shared::kRanks},
                         {"--tolerant", config.tolerance ? to_text(*config.tolerance, ranks) : "none", Shared::kRanks},
                         {"the region map (--regions)", hex_of(config.paraexpress.regions), Shared::kRanks},
                         {"--checkpoint", config.checkpoint.file, Shared::kRanks},
                         {"--checkpoint-every", std::to_string(config.checkpoint.every), Shared::kRanks},
                         {"--resume", config.checkpoint.resume, Shared::kRanks},
                         {"--channels", std::to_string(channels), Shared::kRanks}});
  return all;
}

}  // namespace clustar::bench::trainer
