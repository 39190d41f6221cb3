#include "bench/cli/data_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <system_error>

#include "bench/trainer/checkpoint/checkpoints.h"
#include "bench/trainer/limits.h"

namespace clustar::bench::cli {

void add_data_source_options(CLI::App& command, trainer::TrainConfig& config, const std::string& group) {
  command
      .add_option(
          "--data", config.data,
          "What to train on, by what is there. For models of digits: a directory with an IDX data set (MNIST's "
          "files, plain or .gz; of several, t10k comes first), or its images file. For models of images: a "
          "directory of CIFAR-10's binary files, or one .bin; or a folder with a sub-folder of JPEG, PPM or PGM "
          "files for each class. For gpt: a text file. Without it, examples are generated")
      ->group(group);
  command
      .add_flag("--skip-damaged", config.skip_damaged,
                "Leave out images of a folder that cannot be read, and say how many. Each is read once before the "
                "training; without this option, one that cannot be read ends the run when a batch needs it")
      ->group(group);
}

void add_data_options(CLI::App& command, trainer::TrainConfig& config) {
  add_data_source_options(command, config);
  command
      .add_option("--examples", config.generated,
                  "How many examples to generate when there is no --data [10000 digits, 1000 images, 2000 texts]")
      ->check(CLI::Range(trainer::kExamples.least, trainer::kExamples.most));
  command
      .add_option("--prefetch", config.prefetch,
                  "Batches that a thread of each rank prepares ahead of the steps; 0: none, steps prepare theirs. The "
                  "bits are the same [2 where images are decoded or resampled, otherwise 0]")
      ->check(CLI::Range(std::size_t{0}, trainer::kMaxPrefetch));
}

void add_checkpoint_options(CLI::App& command, trainer::TrainConfig& config) {
  command.add_option("--checkpoint", config.checkpoint.file,
                     "Write what is needed to resume to this file, in one step, after epochs and at the end. With a "
                     "codec or --missing residual, what each rank keeps is beside it, in FILE.epochE.rankR.CHECKSUM");
  command.add_option("--checkpoint-every", config.checkpoint.every, "Epochs between two checkpoints")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  command.add_option("--resume", config.checkpoint.resume,
                     "Continue what this checkpoint is of, with the same options and data, as if it had not been "
                     "interrupted; --epochs counts those that are over, too");
}

std::string data_contradiction(const CLI::App& command, const trainer::TrainConfig& config) {
  if (!config.data.empty() && command.count("--examples") > 0) {
    return "--examples is for generated data; without --data only";
  }
  if (config.data.empty() && config.skip_damaged) return "--skip-damaged is for folders of images; with --data only";
  std::error_code error;
  if (!config.data.empty() && !std::filesystem::exists(config.data, error)) {
    return fmt::format("--data: there is no file or directory '{}'", config.data);
  }
  return {};
}

std::string checkpoint_contradiction(const CLI::App& command, const trainer::TrainConfig& config) {
  const trainer::CheckpointOptions& options = config.checkpoint;
  if (options.file.empty() && command.count("--checkpoint-every") > 0) return "--checkpoint-every needs --checkpoint";
  if (options.file.empty() && options.resume.empty()) return {};
  const char* const given = options.file.empty() ? "--resume" : "--checkpoint";
  if (config.tolerance) {
    return fmt::format(
        "{} cannot be had with --tolerant: what came late is kept by its engines until a later sum, and "
        "would be lost; leave one out",
        given);
  }
  if (config.no_communication) {
    return fmt::format("{} cannot be had with --no-communication, where the replicas drift apart; leave one out",
                       given);
  }
  if (config.initial_buckets == trainer::InitialBuckets::kOne) {
    return fmt::format("{} cannot be had with --initial-buckets one: what goes on would begin with one bucket again",
                       given);
  }
  std::error_code error;
  if (!options.resume.empty() && !std::filesystem::exists(options.resume, error)) {
    return fmt::format("--resume: there is no file '{}'", options.resume);
  }
  if (!options.file.empty()) {
    if (const auto ok = trainer::check_checkpoint_path(options.file); !ok) return "--checkpoint: " + ok.error().message;
  }
  return {};
}

}  // namespace clustar::bench::cli
