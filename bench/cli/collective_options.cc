#include "bench/cli/collective_options.h"

#include "bench/cli/options.h"
#include "bench/trainer/exchange.h"

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

}  // namespace clustar::bench::cli
