// What is trained in a comparison: the options of `clustar ab` that both arms share.
#pragma once

#include <CLI/CLI.hpp>

#include "bench/ab/experiment.h"
#include "bench/cli/compute_options.h"
#include "bench/trainer/buckets.h"
#include "transport/base/result.h"

namespace clustar::bench::cli {

struct AbTraining {
  static constexpr double kMib = 1024 * 1024;

  double bucket_mib = trainer::kDefaultBucketBytes / kMib;
  double first_bucket_mib = trainer::kDefaultFirstBucketBytes / kMib;
  double target_accuracy = 0;
  ComputeTexts compute;
  CLI::Option* model_given = nullptr;
  CLI::Option* epochs_given = nullptr;
  CLI::Option* target_given = nullptr;
  CLI::Option* examples_given = nullptr;
};

// Of `plan` its train, channels and stall_timeout_s.
void add_ab_training_options(CLI::App& command, AbTraining& options, ab::Plan& plan);
// After the command line was read. kInvalidArgument: what does not fit together.
Result<void> complete_ab_training(const AbTraining& options, ab::Plan& plan);

// Whether the data can be used, before any rank starts, so that it is said once. A replay reads none.
Result<void> check_ab_data(const trainer::TrainConfig& train);

}  // namespace clustar::bench::cli
