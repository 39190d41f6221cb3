#include "bench/cli/model_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>

#include "bench/trainer/model.h"

namespace clustar::bench::cli {

CLI::Option* add_model_options(CLI::App& command, trainer::TrainConfig& config, const std::string& group) {
  const CLI::Validator known_model(
      [](std::string& name) {
        const auto model = trainer::make_model(name);
        return model ? std::string() : model.error().message;
      },
      fmt::format("{}", fmt::join(trainer::model_names(), "|")));
  auto* model = command.add_option(
      "--model", config.model,
      "Model: of digits lr (784-10), mlp-small (784-512-10), mlp (784-512-512-10), cnn (two convolutions, "
      "512-128-10) or cnn-wide (fewer filters, 256-1280-10); of images alexnet, vgg16 or resnet50; of text "
      "gpt");
  model->check(known_model)->group(group)->capture_default_str();
  command
      .add_option("--image-size", config.model_options.image_size,
                  "Rows and columns of the images of alexnet, vgg16 and resnet50 [224]. With smaller ones they compute "
                  "less and have as many parameters")
      ->check(CLI::Range(std::size_t{1}, trainer::kMaxImageSize))
      ->group(group);
  command.add_option("--classes", config.model_options.classes, "Classes of alexnet, vgg16 and resnet50 [1000]")
      ->check(CLI::Range(std::size_t{2}, trainer::kMaxClasses))
      ->group(group);
  command
      .add_option("--width-divisor", config.model_options.width_divisor,
                  "A model of the same kind with channels and hidden units divided by 1, 2, 4, 8 or 16")
      ->check(CLI::Range(std::size_t{1}, trainer::kMaxWidthDivisor))
      ->group(group)
      ->capture_default_str();
  return model;
}

std::string model_contradiction(const trainer::TrainConfig& config) {
  const auto model = trainer::make_model(config.model, config.model_options);
  if (!model) return "--model: " + model.error().message;
  const bool digits = model->data == trainer::DataKind::kDigits;
  return digits || config.data.empty()
             ? std::string()
             : "--data is for models of digits; " + config.model + " takes generated data only";
}

}  // namespace clustar::bench::cli
