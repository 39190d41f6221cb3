#include "bench/cli/training_options.h"

#include <CLI/CLI.hpp>

#include "bench/cli/options.h"
#include "bench/trainer/limits.h"

namespace clustar::bench::cli {

void add_sgd_options(CLI::App& command, trainer::TrainConfig& config) {
  command.add_option("--epochs", config.epochs, "Passes over the training examples")
      ->check(CLI::Range(trainer::kEpochs.least, trainer::kEpochs.most))
      ->capture_default_str();
  command
      .add_option("--batch", config.batch,
                  "Global batch: the examples of one step, of all ranks together, divided over the ranks. Shares "
                  "differ by at most one example when it does not divide evenly")
      ->check(CLI::Range(trainer::kBatch.least, trainer::kBatch.most))
      ->capture_default_str();
  command.add_option("--lr", config.rate, "Learning rate of SGD")
      ->check(number_between(trainer::kRate.least, trainer::kRate.most))
      ->capture_default_str();
  command.add_option("--momentum", config.momentum, "Momentum of SGD")
      ->check(number_between(0.0, 1.0))
      ->capture_default_str();
  command.add_option("--weight-decay", config.weight_decay, "Weight decay of SGD, of every parameter")
      ->check(number_between(0.0, 1.0))
      ->capture_default_str();
  command.add_option("--seed", config.seed, "Seed of initial weights, data split, order and generated data")
      ->capture_default_str();
}

CLI::Option* add_target_option(CLI::App& command, double& accuracy) {
  return command
      .add_option("--target-accuracy", accuracy, "Stop after the first epoch with this held-out accuracy (0 to 1)")
      ->check(number_between(0.0, 1.0));
}

}  // namespace clustar::bench::cli
