#include "bench/cli/ab_training.h"

#include <fmt/format.h>

#include <filesystem>

#include "bench/cli/data_options.h"
#include "bench/cli/model_options.h"
#include "bench/cli/options.h"
#include "bench/trainer/limits.h"
#include "bench/trainer/model.h"
#include "bench/trainer/rank.h"

namespace clustar::bench::cli {

void add_ab_training_options(CLI::App& command, AbTraining& options, ab::Plan& plan) {
  const std::string group = "Training (as clustar train)";
  trainer::TrainConfig& train = plan.train;
  train.epochs = 2;
  train.generated = 4000;
  const auto add = [&](const char* name, auto& value, const char* what) {
    return command.add_option(name, value, what)->group(group)->capture_default_str();
  };
  options.model_given = add_model_options(command, train, group);
  options.epochs_given = add("--epochs", train.epochs, "Passes over the training examples in each run");
  options.epochs_given->check(CLI::Range(trainer::kEpochs.least, trainer::kEpochs.most));
  add("--batch", train.batch, "Global batch")->check(CLI::Range(trainer::kBatch.least, trainer::kBatch.most));
  add("--lr", train.rate, "Learning rate")->check(number_between(trainer::kRate.least, trainer::kRate.most));
  add("--momentum", train.momentum, "Momentum")->check(number_between(0.0, 1.0));
  add("--weight-decay", train.weight_decay, "Weight decay, of every parameter")->check(number_between(0.0, 1.0));
  add("--seed", train.seed, "Seed of the first round; each round adds one, the same for both arms");
  add_data_source_options(command, train, group);
  options.examples_given = add("--examples", train.generated, "Examples to generate without --data")
                               ->check(CLI::Range(trainer::kExamples.least, trainer::kExamples.most));
  options.target_given =
      command
          .add_option("--target-accuracy", options.target_accuracy,
                      "End a run after the epoch with this held-out accuracy (0 to 1), and compare the time to it")
          ->check(number_between(0.0, 1.0))
          ->group(group);
  add("--channels", plan.channels, "Rings that share each all-reduce; of a plugin's arm")->check(CLI::Range(1, 32));
  add("--bucket-mb", options.bucket_mib, "Size of a gradient bucket, MiB")->check(number_between(0.0001, 65536.0));
  add("--first-bucket-mb", options.first_bucket_mib, "Size of the first bucket, MiB")
      ->check(number_between(0.0001, 65536.0));
  add("--stall-timeout", plan.stall_timeout_s, "A run without progress for this many seconds fails")
      ->check(CLI::Range(1, 86400));
  add_replay_options(command, options.compute);
}

Result<void> complete_ab_training(const AbTraining& options, ab::Plan& plan) {
  trainer::TrainConfig& train = plan.train;
  train.bucket_bytes = static_cast<std::size_t>(options.bucket_mib * AbTraining::kMib);
  train.first_bucket_bytes = static_cast<std::size_t>(options.first_bucket_mib * AbTraining::kMib);
  if (options.target_given->count() > 0) train.target_accuracy = options.target_accuracy;
  if (const std::string wrong = take_compute(options.compute, train, plan.ranks); !wrong.empty()) {
    return fail(ErrorCode::kInvalidArgument, wrong);
  }
  if (const std::string wrong = model_contradiction(train); !wrong.empty()) {
    return fail(ErrorCode::kInvalidArgument, wrong);
  }
  if (train.data.empty() && train.skip_damaged) {
    return fail(ErrorCode::kInvalidArgument, "--skip-damaged is for folders of images; with --data only");
  }
  if (train.data.empty()) return {};
  std::error_code error;
  if (!std::filesystem::exists(train.data, error)) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("--data: there is no '{}'", train.data));
  }
  if (options.examples_given->count() > 0) {
    return fail(ErrorCode::kInvalidArgument, "--examples is for generated examples; without --data only");
  }
  return {};
}

Result<void> check_ab_data(const trainer::TrainConfig& train) {
  const auto model = trainer::make_model(train.model, train.model_options);
  if (!model) return tl::unexpected(model.error());
  if (train.compute.replays()) return {};
  const auto data = trainer::load_data(train, *model);
  return data ? Result<void>() : tl::unexpected(data.error());
}

}  // namespace clustar::bench::cli
