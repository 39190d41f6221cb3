#include "bench/cli/precision_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "bench/cli/options.h"
#include "bench/trainer/precision/loss_scaler.h"
#include "bench/trainer/precision/precision.h"

namespace clustar::bench::cli {
namespace {

using trainer::LossScaling;
using trainer::Precision;

// What knows no 16-bit gradients.
std::string precision_contradiction(const trainer::TrainConfig& config) {
  const std::string given = fmt::format("--precision {}", to_string(config.precision));
  if (config.codec.codec != trainer::Codec::kNone) {
    return fmt::format("{}: codecs encode float32 gradients; leave --codec or --precision out", given);
  }
  if (config.tolerance) {
    return fmt::format("{}: --tolerant keeps what is late in float32; leave one out", given);
  }
  if (config.collective == trainer::CollectiveKind::kPs) {
    return fmt::format("{}: --collective ps sums float32; allowed: proxy, nccl and paraexpress", given);
  }
  if (config.exchange.missing == proxy::Missing::kResidual) {
    return fmt::format("{}: --missing residual keeps what is lost in float32; allowed: rescale and zero", given);
  }
  return {};
}

}  // namespace

void add_precision_options(CLI::App& command, trainer::TrainConfig& config) {
  const std::string group = "Precision";
  command
      .add_option("--precision", config.precision,
                  "Type of activations and gradients, on the rank and on the network: f32|bf16|f16. Weights, the "
                  "optimiser and sums of products stay float32, as with PyTorch's AMP [f32]")
      ->transform(choice({"f32", "bf16", "f16"}))
      ->group(group);
  command
      .add_option_function<std::string>(
          "--loss-scale",
          [&config](const std::string& text) {
            auto options = trainer::parse_loss_scale(text);
            if (!options) throw CLI::ValidationError("--loss-scale", options.error().message);
            options->interval = config.loss_scale.interval;
            config.loss_scale = *options;
          },
          "By what the loss is multiplied, so that small gradients are not lost in 16 bits: none|dynamic|SCALE, "
          "or dynamic=SCALE of the first step. dynamic: from 65536, halved when a gradient was not finite; such a step "
          "is skipped on all ranks, and the next forward pass waits for all buckets, also with --overlap-forward "
          "[dynamic for "
          "f16, none for bf16]")
      ->type_name("SCALE")
      ->group(group);
  command
      .add_option("--loss-scale-interval", config.loss_scale.interval,
                  "A dynamic loss scale doubles after so many steps in a row that were finite")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str()
      ->group(group);
}

std::string take_precision(const CLI::App& command, trainer::TrainConfig& config) {
  const auto given = [&](const char* option) { return command.get_option(option)->count() > 0; };
  // A replay has no loss.
  if (!given("--loss-scale") && !config.compute.replays()) {
    config.loss_scale.scaling = usual_loss_scale(config.precision).scaling;
  }
  if (config.precision == Precision::kFloat32) {
    for (const char* option : {"--loss-scale", "--loss-scale-interval"}) {
      if (given(option)) return fmt::format("{} is for 16-bit gradients; add --precision f16 or bf16", option);
    }
    return {};
  }
  if (given("--loss-scale-interval") && config.loss_scale.scaling != LossScaling::kDynamic) {
    return "--loss-scale-interval is for a dynamic scale; add --loss-scale dynamic";
  }
  if (config.compute.replays() && config.loss_scale.scaling != LossScaling::kNone) {
    return "--loss-scale: a replay has no loss to scale";
  }
  if (!config.record_compute.empty()) {
    return "--record-compute: rounding to 16 bits on this processor is no time of a layer; record with --precision f32";
  }
  return precision_contradiction(config);
}

}  // namespace clustar::bench::cli
