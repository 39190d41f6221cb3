#include "bench/cli/parallel_options.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "bench/cli/options.h"
#include "bench/trainer/exchange.h"
#include "bench/trainer/parallel/layer_terms.h"
#include "bench/trainer/parallel/optimizer.h"

namespace clustar::bench::cli {
namespace {

using trainer::TrainConfig;

// For an option that asks for more than sums of gradients.
std::string collective_trouble(const TrainConfig& config, int ranks, const char* option) {
  if (ranks == 1 || config.no_communication) {
    return fmt::format("{} says how ranks communicate, and these do not; leave it out", option);
  }
  if (config.collective == trainer::CollectiveKind::kPs) {
    return fmt::format("{} is not for --collective ps, which only sums; allowed: proxy, nccl and paraexpress", option);
  }
  if (config.tolerance) return fmt::format("{} is not for --tolerant, which only sums; leave one out", option);
  return {};
}

}  // namespace

void add_parallel_options(CLI::App& command, TrainConfig& config) {
  const std::string group = "How a step is divided";
  command
      .add_option("--initial-buckets", config.initial_buckets,
                  "Buckets of the first step, before they are planned again by the order in which gradients came: "
                  "caps|one. one: a single bucket, as DDP begins without find_unused_parameters [caps]")
      ->transform(choice({"caps", "one"}))
      ->group(group);
  command
      .add_flag_callback(
          "--no-rebuild-buckets", [&config] { config.rebuild_buckets = false; },
          "Keep the first step's buckets. Without this they are planned again once, as DDP does")
      ->group(group);
  command
      .add_option("--accumulate", config.accumulate,
                  "Micro-batches of a step: each rank computes its share in so many parts, and only the last one's "
                  "gradients, with those of the others, go over the network (DDP's no_sync)")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--optimizer-sharding", config.sharding,
                  "Who has the optimiser's state: none|zero1. none: every rank all of it; zero1 (ZeRO stage 1): each "
                  "rank that of its shard, so that gradients go by reduce-scatter and parameters by all-gather [none]")
      ->transform(choice({"none", "zero1"}))
      ->group(group);
  command
      .add_option_function<std::vector<std::string>>(
          "--traffic",
          [&config](const std::vector<std::string>& all) {
            for (const std::string& text : all) {
              const auto read = trainer::parallel::parse_layer(text, config.layers);
              if (!read) throw CLI::ValidationError("--traffic", read.error().message);
            }
          },
          "All-to-alls of layers that are spread over the ranks, in the middle of each forward and backward, with a "
          "communicator of their own (train-moe, train-dlrm): moe=experts:8,tokens:512,hidden:512,top-k:2 (tokens of "
          "each rank), or dlrm=tables:8,dim:64,batch:128 (batch of each rank). Bytes are real and checked, and nothing "
          "is computed with them")
      ->type_name("LAYER")
      ->group(group);
}

std::string parallel_contradiction(const TrainConfig& config, int ranks) {
  if (config.batch / ranks < config.accumulate) {
    return fmt::format(
        "--accumulate {} leaves some of {} ranks micro-batches without examples; allowed: 1 to {}, or a "
        "larger --batch",
        config.accumulate, ranks, config.batch / ranks);
  }
  if (config.sharding != trainer::parallel::Sharding::kNone) {
    const std::string wrong = collective_trouble(config, ranks, "--optimizer-sharding");
    if (!wrong.empty()) return wrong;
    if (config.codec.codec != trainer::Codec::kNone) {
      return "--optimizer-sharding sums gradients by reduce-scatter, which --codec has no path for; leave one out";
    }
    if (config.exchange.all_reduce == trainer::AllReduce::kAllToAll) {
      return "--optimizer-sharding sums gradients by a ring's reduce-scatter; leave out --all-reduce all-to-all";
    }
  }
  const std::string layers = to_text(config.layers);
  if (layers.empty()) return {};
  const std::string wrong = collective_trouble(config, ranks, "--traffic");
  if (!wrong.empty()) return wrong;
  const std::string unfit = layer_contradiction(config.layers, ranks);
  return unfit.empty() ? std::string() : "--traffic: " + unfit;
}

}  // namespace clustar::bench::cli
