#include "bench/cli/collective_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "bench/cli/options.h"
#include "bench/trainer/compute/rank_compute.h"
#include "bench/trainer/compute/residence.h"
#include "bench/trainer/exchange.h"
#include "bench/trainer/model.h"
#include "bench/trainer/rank.h"
#include "bench/trainer/tolerance.h"
#include "paraexpress/core/order.h"

namespace clustar::bench::cli {
namespace {

constexpr const char* kNothingToSum = "--no-communication leaves all collectives out; leave out --collective, too";

bool given(const CLI::App& command, const char* option) { return command.get_option(option)->count() > 0; }

std::string exchange_contradiction(const CLI::App& command, const trainer::TrainConfig& config) {
  const bool exchanges = config.exchange.all_reduce == trainer::AllReduce::kAllToAll;
  const trainer::CodecOptions& codec = config.codec;
  if (!exchanges && given(command, "--missing")) {
    return "--missing is for --all-reduce all-to-all only: a ring's lost bytes are partial sums, which read as zero";
  }
  if (exchanges && codec.codec != trainer::Codec::kNone && codec.path == trainer::CodecPath::kGather) {
    return "--codec-path gather sends blobs by all-gather and reduces nothing; with --all-reduce all-to-all use "
           "--codec-path reduce";
  }
  return {};
}

std::string of_paraexpress_only(const CLI::App& command) {
  for (const char* option : {"--plan", "--regions", "--helpers", "--helpers-root", "--tolerant"}) {
    if (given(command, option)) return std::string(option) + " is of --collective paraexpress only";
  }
  return {};
}

// Of those that the collective has no use for, each with what is so instead.
std::string first_given(const CLI::App& command, const trainer::TrainConfig& config,
                        std::initializer_list<std::pair<const char*, const char*>> of_others) {
  for (const auto& [option, instead] : of_others) {
    if (given(command, option)) {
      return fmt::format("{} is not for --collective {}: {}", option, to_string(config.collective), instead);
    }
  }
  return {};
}

// NCCL's own algorithms are what it likes; an exchange of sends and receives is added up by kernels of ours.
std::string nccl_exchange_contradiction(const trainer::TrainConfig& config) {
  constexpr int kSomeRanks = 2;
  if (config.exchange.all_reduce != trainer::AllReduce::kAllToAll) return {};
  if (config.compute.device != trainer::DeviceKind::kCuda) {
    return "--all-reduce all-to-all with --collective nccl adds up in a GPU's memory; take --device cuda with it, or "
           "--collective proxy";
  }
  if (config.compute.update == trainer::UpdatePlace::kHost) {
    return "--all-reduce all-to-all with --collective nccl adds up in a GPU's memory; leave out --update host";
  }
  if (const std::string why = trainer::needs_host_memory(config, kSomeRanks); !why.empty()) {
    return "--all-reduce all-to-all with --collective nccl adds up in a GPU's memory: " + why +
           "; take --collective proxy";
  }
  if (config.exchange.missing != proxy::Missing::kResidual) return {};
  return "--missing residual is of --collective proxy only; with nccl: zero or rescale";
}

std::string nccl_contradiction(const CLI::App& command, const trainer::TrainConfig& config) {
  if (const std::string wrong = nccl_exchange_contradiction(config); !wrong.empty()) return wrong;
  if (config.no_communication) return kNothingToSum;
  if (given(command, "--plugin-version")) {
    return "--plugin-version is of --collective proxy only; NCCL takes the newest version that it knows";
  }
  return of_paraexpress_only(command);
}

std::string paraexpress_contradiction(const CLI::App& command, const trainer::TrainConfig& config) {
  constexpr const char* kNoPlugin = "ParaExpress opens no plugin; CLUSTAR_TRANSPORT says over what it sends";
  constexpr const char* kPlans =
      "ParaExpress goes by --plan (allowed: auto, direct, ring, double-tree, hierarchical, server, sharded)";
  constexpr const char* kReliable = "ParaExpress loses nothing, but with --tolerant p=SHARE; leave it out";
  const std::string wrong = first_given(command, config,
                                        {{"--plugin", kNoPlugin},
                                         {"--plugin-version", kNoPlugin},
                                         {"--channels", kPlans},
                                         {"--all-reduce", kPlans},
                                         {"--missing", kReliable},
                                         {"--loss-tolerance", kReliable}});
  if (!wrong.empty()) return wrong;
  if (config.no_communication) return kNothingToSum;
  if (!config.tolerance) return {};
  for (const char* option : {"--plan", "--regions", "--helpers"}) {
    if (given(command, option)) {
      return fmt::format("{} is not for --tolerant, where each rank adds up its part of all; leave it out", option);
    }
  }
  return config.codec.codec == trainer::Codec::kNone
             ? ""
             : "--codec is not for --tolerant: both keep what a step leaves out";
}

std::string ps_contradiction(const CLI::App& command, const trainer::TrainConfig& config) {
  constexpr const char* kNoPlugin = "the parameter server opens no plugin: it has the kernel's TCP";
  constexpr const char* kOneConnection = "each worker has one connection to the parameter server, which adds up alone";
  constexpr const char* kReliable = "the kernel's TCP loses nothing; leave it out";
  constexpr const char* kNoFaults =
      "faults are injected by clustar's own transports; allowed: those of `clustar fabric`";
  const std::string wrong = first_given(
      command, config,
      {{"--plugin", kNoPlugin},
       {"--plugin-version", kNoPlugin},
       {"--channels", kOneConnection},
       {"--all-reduce", kOneConnection},
       {"--missing", kReliable},
       {"--loss-tolerance", kReliable},
       {"--inject-loss", kNoFaults},
       {"--inject-faults", kNoFaults},
       {"--overlap-forward", "a baseline without overlap; allowed: --collective proxy, nccl and paraexpress"}});
  if (!wrong.empty()) return wrong;
  if (config.no_communication) return kNothingToSum;
  return of_paraexpress_only(command);
}

void add_slow_rank(const std::string& text, std::map<int, double>& slow) {
  const std::size_t equals = std::min(text.find('='), text.size());
  int rank = -1;
  double factor = 0;
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  const auto of_rank = std::from_chars(begin, begin + equals, rank);
  const auto of_factor = std::from_chars(std::min(begin + equals + 1, end), end, factor);
  const bool good = of_rank.ec == std::errc() && of_rank.ptr == begin + equals && of_factor.ec == std::errc() &&
                    of_factor.ptr == end && rank >= 0 && factor >= 1 && factor <= 1000;
  if (!good || !slow.emplace(rank, factor).second) {
    throw CLI::ValidationError("--slow", "'" + text + "' is not RANK=FACTOR, a factor from 1 to 1000, each rank once");
  }
}

}  // namespace

void add_collective_options(CLI::App& command, trainer::TrainConfig& config, trainer::RankOptions& rank) {
  command
      .add_option(
          "--collective", config.collective,
          "What sums the gradients: proxy|nccl|paraexpress|ps. proxy: this program drives the plugin as NCCL would; "
          "nccl: "
          "NCCL's library does, on a GPU, or without one on an emulated device: `scripts/nccl-host -- clustar train "
          "--collective nccl ...` builds and names its library; paraexpress: clustar's own engine, by --plan, over the "
          "transport of CLUSTAR_TRANSPORT and without a plugin; ps: the baseline of 2018, one parameter server in rank "
          "0's "
          "process, over a plain TCP connection per worker, with serialising copies and no overlap [proxy]")
      ->transform(choice({"proxy", "nccl", "paraexpress", "ps"}));
  command
      .add_option("--nccl-library", rank.nccl_library,
                  "NCCL's library for --collective nccl [libnccl.so.2, as the loader finds it]")
      ->envname("CLUSTAR_NCCL_LIBRARY");
  command
      .add_option("--plan", config.paraexpress.plan,
                  "By which plan ParaExpress sums: auto|direct|ring|double-tree|hierarchical|server|sharded. auto: for "
                  "each size "
                  "of a bucket the one that should be quickest; hierarchical needs --regions, sharded --helpers [auto]")
      ->transform(choice({"auto", "direct", "ring", "double-tree", "hierarchical", "server", "sharded"}));
  command
      .add_option(
          "--regions", config.paraexpress.regions_path,
          "For ParaExpress, which rank is in which region: a line each, as 'rack0 ranks=0-3 oversubscription=4'; "
          "or probe: the ranks measure who shares an uplink, and go by one region where that is not clear [all in one]")
      ->type_name("FILE|probe");
  command
      .add_option(
          "--helpers", config.paraexpress.helpers,
          "For ParaExpress, processes that only add, with NICs of their own (`clustar aggregator`); with --ranks "
          "they are started, too. Where one dies the ranks go on without it [0]")
      ->check(CLI::Range(0, static_cast<int>(paraexpress::kMostHelpers)));
  command.add_option("--helpers-root", config.paraexpress.helpers_root,
                     "HOST:PORT of rank 0 where ranks and helpers meet; another port than --root's");
  command
      .add_option_function<std::string>(
          "--tolerant",
          [&config](const std::string& text) {
            auto tolerance = trainer::parse_tolerance(text);
            if (!tolerance) throw CLI::ValidationError("--tolerant", tolerance.error().message);
            config.tolerance = *tolerance;
          },
          "For ParaExpress: a step ends without late ranks. q: gradients that it needs [all ranks but one]; deadline: "
          "how long it waits for more [20ms]; staleness: steps in a row that a rank may miss before the others wait "
          "[8]; p: what the network may lose of gradients, with CLUSTAR_TRANSPORT=mlt [0]. What comes late or is lost "
          "is summed in a later step. As q=3,deadline=5ms,staleness=8,p=1%")
      ->type_name("TERMS");
  command
      .add_option_function<std::vector<std::string>>(
          "--slow",
          [&config](const std::vector<std::string>& all) {
            for (const std::string& text : all) add_slow_rank(text, config.slow);
          },
          "Ranks that take FACTOR times as long to compute a step, as slower machines would: they sleep")
      ->delimiter(',')
      ->type_name("RANK=FACTOR");
  command
      .add_option("--all-reduce", config.exchange.all_reduce,
                  "How the ranks sum a bucket: ring|all-to-all. all-to-all: each rank adds up its part of what all "
                  "others send it, so that a lost packet costs one rank's contribution and no partial sum; with "
                  "--collective nccl by its sends and receives, on --device cuda [ring; with nccl its own all-reduce]")
      ->transform(choice({"ring", "all-to-all"}));
  command
      .add_option("--missing", config.exchange.missing,
                  "With all-to-all, what becomes of an element that lost contributions: zero|rescale|residual. "
                  "rescale: the sum of the others times ranks / contributions; residual: what was lost of a rank's "
                  "gradient is added to its next one [rescale]")
      ->transform(choice({"zero", "rescale", "residual"}));
}

std::string collective_contradiction(const CLI::App& command, const trainer::TrainConfig& config) {
  std::string wrong;
  switch (config.collective) {
    case trainer::CollectiveKind::kProxy: wrong = of_paraexpress_only(command); break;
    case trainer::CollectiveKind::kNccl: wrong = nccl_contradiction(command, config); break;
    case trainer::CollectiveKind::kParaexpress: wrong = paraexpress_contradiction(command, config); break;
    case trainer::CollectiveKind::kPs: wrong = ps_contradiction(command, config); break;
  }
  return wrong.empty() ? exchange_contradiction(command, config) : wrong;
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
  const auto model = trainer::make_model(config.model, config.model_options);
  if (!model) return model.error().message;
  const auto fits = trainer::check_front(config, trainer::plan_of(config, *model));
  return fits ? std::string() : "--front-buckets: " + fits.error().message;
}

}  // namespace clustar::bench::cli
