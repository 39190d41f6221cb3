#include "bench/cli/compute_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>

#include "bench/cli/options.h"
#include "bench/report/report.h"
#include "bench/trainer/compute/cards.h"
#include "bench/trainer/compute/rank_compute.h"
#include "bench/trainer/compute/residence.h"

namespace clustar::bench::cli {
namespace {

using trainer::graph::cuda::MathChoice;
using trainer::graph::cuda::MathOptions;

constexpr const char* kGroup = "Compute";

std::string replay_contradiction(const trainer::TrainConfig& config) {
  if (!config.record_compute.empty()) return "--record-compute is of a run that computes, not of a replay";
  if (!config.data.empty()) return "--data: a replay reads none; leave it out";
  if (config.target_accuracy) return "--target-accuracy: a replay learns nothing";
  if (!config.checkpoint.file.empty() || !config.checkpoint.resume.empty()) {
    return "--checkpoint and --resume: a replay learns nothing";
  }
  if (config.codec.codec != trainer::Codec::kNone && config.compute.byte_scale != 1) {
    return "--byte-scale cuts tensors, which --codec takes as matrices; allowed: one of them";
  }
  return {};
}

std::string take_device(const ComputeTexts& texts, trainer::TrainConfig& config) {
  config.compute.device = texts.device == "cuda" ? trainer::DeviceKind::kCuda : trainer::DeviceKind::kCpu;
  config.compute.cuda_driver = texts.cuda_driver;
  if (config.compute.device == trainer::DeviceKind::kCpu) {
    if (texts.update != trainer::UpdatePlace::kAuto) return "--update is of --device cuda";
    if (texts.math != MathOptions{}) return "--device-math, --cublas and --cudnn are of --device cuda";
    return texts.cuda_driver.empty() ? "" : "--cuda-driver is of --device cuda";
  }
  if (texts.math.choice == MathChoice::kKernels && texts.math != MathOptions{.choice = MathChoice::kKernels}) {
    return "--device-math kernels takes no --cublas or --cudnn; allowed with them: auto, libraries";
  }
  config.compute.math = texts.math;
  config.compute.update = texts.update;
  return config.compute.replays() ? "--device cuda computes, and --compute replays; allowed: one of them" : "";
}

void add_math_options(CLI::App& command, ComputeTexts& texts) {
  command
      .add_option(
          "--device-math", texts.math.choice,
          "What computes products and convolutions with --device cuda. libraries: cuBLAS, and cuDNN where it is "
          "found. kernels: our own. auto: libraries where cuBLAS is found")
      ->transform(choice({"auto", "kernels", "libraries"}))
      ->group(kGroup);
  command.add_option("--cublas", texts.math.cublas, "cuBLAS's library, if not libcublas.so.13, .12 or .11")
      ->type_name("LIBRARY")
      ->group(kGroup);
  command
      .add_option("--cudnn", texts.math.cudnn,
                  "cuDNN's library, if not libcudnn.so.9 or .8. none: convolutions are products by cuBLAS")
      ->type_name("LIBRARY|none")
      ->group(kGroup);
}

}  // namespace

void add_replay_options(CLI::App& command, ComputeTexts& texts) {
  command
      .add_option(
          "--compute", texts.compute,
          fmt::format("cpu: train for real. replay=FILE: take the time that FILE (--record-compute) says of each "
                      "layer, and send gradients of the real size. estimate=CARD: the same with times from "
                      "published figures of {}",
                      fmt::join(trainer::card_names(), ", ")))
      ->type_name("cpu|replay=FILE|estimate=CARD")
      ->group(kGroup)
      ->capture_default_str();
  command
      .add_option("--time-scale", texts.time_scale,
                  "Of a replay: every time is multiplied by this. Names of files that are written tell it")
      ->check(number_between(1 / trainer::kMostScale, trainer::kMostScale))
      ->group(kGroup)
      ->capture_default_str();
  command
      .add_option("--byte-scale", texts.byte_scale,
                  "Of a replay: every tensor, and each limit of a bucket, is divided by this. A line of rate R then "
                  "stands for one of R x time scale x byte scale")
      ->check(number_between(1.0, trainer::kMostScale))
      ->group(kGroup)
      ->capture_default_str();
}

void add_record_option(CLI::App& command, ComputeTexts& texts) {
  command
      .add_option("--record-compute", texts.record, "Write what each layer took on rank 0, for --compute replay=FILE")
      ->type_name("FILE")
      ->group(kGroup);
}

void add_device_options(CLI::App& command, ComputeTexts& texts) {
  command
      .add_option("--device", texts.device,
                  "Where the network is computed. cuda: on the GPU of the rank's number, counted round")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->group(kGroup)
      ->capture_default_str();
  command
      .add_option(
          "--cuda-driver", texts.cuda_driver,
          "The CUDA driver's library for --device cuda, if not libcuda.so.1. That of an emulated device runs the "
          "same kernels without a GPU, and the output says so")
      ->type_name("LIBRARY")
      ->group(kGroup);
  command
      .add_option(
          "--update", texts.update,
          "Where gradients are summed and parameters updated with --device cuda. device: in the GPU's memory, by "
          "--collective nccl or of one rank. host: in the host's, by any collective. auto: device where it can be")
      ->transform(choice({"auto", "host", "device"}))
      ->group(kGroup);
  add_math_options(command, texts);
}

std::string take_compute(const ComputeTexts& texts, trainer::TrainConfig& config, int ranks) {
  const auto compute = trainer::parse_compute(texts.compute, texts.time_scale, texts.byte_scale);
  if (!compute) return compute.error().message;
  config.compute = *compute;
  config.record_compute = texts.record;
  if (const auto writable = report::check_writable(config.record_compute); !writable) {
    return "--record-compute: " + writable.error().message;
  }
  if (std::string wrong = take_device(texts, config); !wrong.empty()) return wrong;
  if (!config.compute.replays()) return {};
  if (std::string wrong = replay_contradiction(config); !wrong.empty()) return wrong;
  const auto model = trainer::make_model(config.model, config.model_options);
  if (!model) return {};  // which the model's own options say
  if (const auto times = trainer::replayed_times(config, *model, ranks); !times) {
    return "--compute: " + times.error().message;
  }
  return {};
}

std::string update_contradiction(const trainer::TrainConfig& config, int ranks) {
  if (config.compute.update != trainer::UpdatePlace::kDevice) return {};
  const std::string why = trainer::needs_host_memory(config, ranks);
  return why.empty() ? "" : fmt::format("--update device: {}; allowed: auto or host", why);
}

}  // namespace clustar::bench::cli
