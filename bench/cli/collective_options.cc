#include "bench/cli/collective_options.h"

#include "bench/cli/options.h"
#include "bench/trainer/exchange.h"
#include "bench/trainer/model.h"
#include "bench/trainer/rank.h"

namespace clustar::bench::cli {

void add_collective_options(CLI::App& command, trainer::TrainConfig& config, trainer::RankOptions& rank) {
  command
      .add_option(
          "--collective", config.collective,
          "What sums the gradients: proxy|nccl. proxy: this program drives the plugin as NCCL would; nccl: NCCL's "
          "library does, on a GPU, or without one on an emulated device: `scripts/nccl-host -- clustar train "
          "--collective nccl ...` builds and names its library [proxy]")
      ->transform(choice({"proxy", "nccl"}));
  command
      .add_option("--nccl-library", rank.nccl_library,
                  "NCCL's library for --collective nccl [libnccl.so.2, as the loader finds it]")
      ->envname("CLUSTAR_NCCL_LIBRARY");
}

std::string nccl_contradiction(const trainer::TrainConfig& config, const trainer::RankOptions& rank) {
  if (config.collective != trainer::CollectiveKind::kNccl) return {};
  if (config.exchange.all_reduce == trainer::AllReduce::kAllToAll) {
    return "--all-reduce all-to-all is of --collective proxy only; NCCL chooses its own algorithm";
  }
  if (config.no_communication) return "--no-communication leaves all collectives out; leave out --collective, too";
  if (rank.plugin_version != 0) {
    return "--plugin-version is of --collective proxy only; NCCL takes the newest version that it knows";
  }
  return {};
}

void add_overlap_options(CLI::App& command, trainer::TrainConfig& config) {
  command.add_flag("--overlap-forward", config.overlap_forward,
                   "The next forward pass waits for a bucket when its layers need it, not for all buckets first: the "
                   "same bits");
  command
      .add_option("--front-buckets", config.front_buckets,
                  "So many of the last buckets, those of the front layers, have a communicator of their own, "
                  "train-front, so that they need not wait for the buckets before them. With "
                  "CLUSTAR_SEND_ORDER=coflow and CLUSTAR_SEND_URGENCY='comm=train-front,blocking;comm=train,gradient' "
                  "they go first")
      ->check(CLI::Range(0, 1000))
      ->capture_default_str();
}

std::string overlap_contradiction(const trainer::TrainConfig& config, int ranks) {
  if (config.front_buckets == 0) return {};
  if (ranks == 1 || config.no_communication) {
    return "--front-buckets says how ranks communicate, and these do not; leave it out";
  }
  if (config.collective != trainer::CollectiveKind::kProxy) return "--front-buckets is of --collective proxy only";
  const auto model = trainer::make_model(config.model);
  if (!model) return model.error().message;
  const auto plan = trainer::plan_buckets(model->tensor_elements(), config.first_bucket_bytes, config.bucket_bytes);
  const auto fits = trainer::check_front(config, plan);
  return fits ? std::string() : "--front-buckets: " + fits.error().message;
}

}  // namespace clustar::bench::cli
