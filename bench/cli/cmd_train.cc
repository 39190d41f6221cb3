// clustar train: parses the command line, then runs one rank or launches all of them.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/cli/arms.h"
#include "bench/cli/codec_options.h"
#include "bench/cli/collective_options.h"
#include "bench/cli/commands.h"
#include "bench/cli/compute_options.h"
#include "bench/cli/data_options.h"
#include "bench/cli/launcher_option.h"
#include "bench/cli/loss_options.h"
#include "bench/cli/model_options.h"
#include "bench/cli/options.h"
#include "bench/cli/parallel_options.h"
#include "bench/cli/precision_options.h"
#include "bench/cli/train_paths.h"
#include "bench/cli/training_options.h"
#include "bench/proxy/bootstrap.h"
#include "bench/proxy/net_plugin.h"
#include "bench/report/report.h"
#include "bench/trainer/aggregator.h"
#include "bench/trainer/compute/rank_compute.h"
#include "bench/trainer/config.h"
#include "bench/trainer/launcher.h"
#include "bench/trainer/launcher_place.h"
#include "bench/trainer/metrics.h"
#include "bench/trainer/model.h"
#include "bench/trainer/progress_view.h"
#include "bench/trainer/rank.h"
#include "bench/trainer/record.h"
#include "transport/base/own_folder.h"

namespace clustar::bench::cli {
namespace {

using nlohmann::json;
using trainer::ProgressView;

constexpr int kMaxRanks = 256;
constexpr std::chrono::milliseconds kRelay{50};  // between two steps that rank 0 reports to its launcher
constexpr double kMib = 1024 * 1024;

struct Options {
  trainer::TrainConfig config;
  trainer::RankOptions rank;
  ComputeTexts compute;
  int ranks = 1;
  double bucket_mib = trainer::kDefaultBucketBytes / kMib;
  double first_bucket_mib = trainer::kDefaultFirstBucketBytes / kMib;
  double target_accuracy = 0;
  int stall_timeout_s = 120;
  int report_fd = -1;  // set in ranks that another process launched
  std::string json_path;
  bool describe = false;
  bool no_progress = false;
  bool quiet = false;
  double inject_loss = 0;
  std::string inject_faults;
  double loss_tolerance = 0;
  const CLI::App* command = nullptr;
  // Which of the options were given.
  bool by_launcher = false;  // --launcher env
  CLI::Option* ranks_given = nullptr;
  CLI::Option* plugin_given = nullptr;
  CLI::Option* rank_given = nullptr;
  CLI::Option* size_given = nullptr;
  CLI::Option* root_given = nullptr;
  CLI::Option* target_given = nullptr;
  CLI::Option* check_given = nullptr;
  CLI::Option* loss_given = nullptr;

  bool launched() const { return report_fd >= 0; }
  // This process is one rank of several that others start.
  bool by_hand() const { return by_launcher || rank_given->count() > 0; }
};

int usage_error(const std::string& message) {
  std::cerr << "clustar train: " << message << "\nRun 'clustar train --help' for more information.\n";
  return kUsage;
}

int failure(const std::string& message) {
  std::cerr << "clustar train: " << message << "\n";
  return kFailed;
}

ProgressView::Style progress_style(const Options& options) {
  if (options.quiet || options.launched()) return ProgressView::Style::kNone;
  return !options.no_progress && isatty(STDERR_FILENO) != 0 ? ProgressView::Style::kBar : ProgressView::Style::kLines;
}

int write_results(const Options& options, const json& results) {
  if (!options.quiet) {
    // The table gives way to the JSON when that was asked for on standard output.
    (options.json_path == "-" ? std::cerr : std::cout)
        << (options.describe ? trainer::description(results) : trainer::summary(results)) << std::flush;
  }
  if (!options.json_path.empty()) {
    json document = report::envelope("train", results);
    document["command_line"] = report::command_line();
    const auto ok = report::write_json(document, options.json_path);
    if (!ok) return failure(ok.error().message);
    if (options.config.compute.replays() && !options.quiet && options.json_path != "-") {
      std::cout << "written to " << options.json_path << "\n";
    }
  }
  const json failed = results.value("failure", json(nullptr));
  return failed.is_null() ? kOk : failure(failed.get<std::string>());
}

int describe(const Options& options) {
  const auto model = trainer::make_model(options.config.model, options.config.model_options);
  if (!model) return usage_error(model.error().message);
  return write_results(options, trainer::describe(*model, trainer::plan_of(options.config, *model)));
}

// One rank in this process: the only one, one of several started by hand, or one that launch_ranks() started.
int run_one_rank(const Options& options) {
  // Ranks of mpirun, torchrun and srun are looked after by those; they do not say from which thread they start them.
  if (options.launched() && options.by_launcher) {
    trainer::write_record(options.report_fd, trainer::place_record(options.rank.rank));
  } else if (options.launched()) {
    trainer::end_with_launcher();
  }
  ProgressView view(progress_style(options));
  const bool shows = options.rank.rank == 0;
  std::chrono::steady_clock::time_point quiet_until{};
  const auto relay = [&](const trainer::Progress& progress) {
    const auto now = std::chrono::steady_clock::now();
    if (!progress.epoch_over && now < quiet_until) return;
    quiet_until = now + kRelay;
    trainer::write_record(options.report_fd, trainer::to_record(progress));
  };
  const auto results = trainer::run_rank(options.config, options.rank, [&](const trainer::Progress& progress) {
    if (!shows) return;
    if (options.launched()) {
      relay(progress);
    } else {
      view.show(progress);
    }
  });
  view.clear();
  if (!results) {
    if (!options.launched()) return failure(results.error().message);
    json record = trainer::to_record(results.error());
    record["rank"] = options.rank.rank;
    trainer::write_record(options.report_fd, record);
    return kFailed;
  }
  if (options.launched()) {
    if (shows) trainer::write_record(options.report_fd, {{"results", *results}});
    return kOk;
  }
  if (shows) return write_results(options, *results);
  return (*results)["failure"].is_null() ? kOk : failure((*results)["failure"].get<std::string>());
}

// This process's own argument list: its ranks get the same one and their rank.
std::vector<std::string> own_arguments() {
  std::ifstream in("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> arguments;
  for (std::string argument; std::getline(in, argument, '\0');) arguments.push_back(argument);
  return arguments;
}

int launch_ranks(Options& options) {
  const auto root = proxy::Bootstrap::pick_loopback_root();
  if (!root) return failure(root.error().message);
  const std::vector<std::string> own = own_arguments();
  ProgressView view(progress_style(options));
  json results;
  trainer::LaunchOptions launch;
  launch.ranks = options.ranks;
  trainer::ParaexpressOptions& plan = options.config.paraexpress;
  if (plan.helpers > 0) {
    const auto meeting = proxy::Bootstrap::pick_loopback_root();
    if (!meeting) return failure(meeting.error().message);
    plan.helpers_root = *meeting;
    launch.helpers = plan.helpers;
  }
  launch.arguments = [&](int rank) {
    if (rank >= options.ranks)
      return trainer::aggregator_arguments(own.front(), plan, options.ranks, rank - options.ranks,
                                           options.rank.stall_timeout);
    std::vector<std::string> arguments = own;
    if (plan.helpers > 0) arguments.insert(arguments.end(), {"--helpers-root", plan.helpers_root});
    for (std::string more :
         {std::string("--rank"), std::to_string(rank), std::string("--size"), std::to_string(options.ranks),
          std::string("--root"), *root, std::string("--report-fd"), std::to_string(trainer::kReportFd)}) {
      arguments.push_back(std::move(more));
    }
    return arguments;
  };
  launch.on_record = [&](int, const json& record) {
    trainer::Progress progress;
    if (trainer::from_record(record, progress)) view.show(progress);
    if (record.contains("results")) results = record["results"];
  };
  const auto ok = trainer::launch(launch);
  view.clear();
  if (!ok) return failure(ok.error().message);
  if (results.is_null()) return failure("rank 0 ended without results");
  return write_results(options, results);
}

// Which collectives sum gradients.
std::string loss_rules(const trainer::TrainConfig& config) {
  if (config.sharding == trainer::parallel::Sharding::kZero1) return "func=reducescatter";
  const bool exchanges = config.exchange.all_reduce == trainer::AllReduce::kAllToAll;
  return exchanges ? "func=allreduce;func=sendrecv" : "func=allreduce";
}

bool by_paraexpress(const Options& options) {
  return options.config.collective == trainer::CollectiveKind::kParaexpress;
}

// The plugin of more than one rank, and one that was named in any case. Empty: all is well.
std::string plugin_trouble(const Options& options, int ranks) {
  const bool unused =
      ranks == 1 || options.config.no_communication || !trainer::opens_plugin(options.config.collective);
  if (options.launched() || (unused && options.plugin_given->count() == 0)) return {};
  if (!is_file(options.rank.plugin)) {
    return fmt::format("--plugin: '{}' is not a file; name an NCCL net plugin (.so)", options.rank.plugin);
  }
  const auto versions = proxy::NetPlugin::exported_versions(options.rank.plugin);
  if (!versions) return "--plugin: " + versions.error().message;
  if (versions->empty()) {
    return fmt::format("--plugin: '{}' exports no ncclNetPlugin_v6 .. v12, so it is no NCCL net plugin",
                       options.rank.plugin);
  }
  if (options.rank.plugin_version == 0) return {};
  for (const int version : *versions) {
    if (version == options.rank.plugin_version) return {};
  }
  return fmt::format("--plugin-version {}: '{}' exports {}", options.rank.plugin_version, options.rank.plugin,
                     fmt::join(*versions, ", "));
}

// What the command line parser cannot check alone. Empty: all is well.
std::string contradiction(const Options& options) {
  const bool by_hand = options.by_hand();
  if (!options.by_launcher &&
      (by_hand != (options.size_given->count() > 0) || by_hand != (options.root_given->count() > 0))) {
    return "--rank, --size and --root belong together";
  }
  const int ranks = by_hand ? options.rank.size : options.ranks;
  if (by_hand && options.ranks_given->count() > 0 && options.ranks != options.rank.size) {
    return fmt::format("--ranks {} and --size {} contradict each other; --size is enough", options.ranks,
                       options.rank.size);
  }
  if (by_hand && options.rank.rank >= options.rank.size) {
    return fmt::format("--rank {} does not exist among {} (allowed: 0 to {})", options.rank.rank, options.rank.size,
                       options.rank.size - 1);
  }
  if (options.config.batch < ranks) {
    return fmt::format("--batch {} gives some of the {} ranks nothing to do; allowed: {} or more", options.config.batch,
                       ranks, ranks);
  }
  if (const std::string wrong = model_contradiction(options.config); !wrong.empty()) return wrong;
  if (const std::string wrong = data_contradiction(*options.command, options.config); !wrong.empty()) return wrong;
  if (options.config.no_communication && options.check_given->count() > 0 &&
      options.config.check_equal != trainer::CheckEqual::kOff) {
    return "--no-communication lets the replicas drift apart, so they cannot be compared; leave --check-equal out";
  }
  if (const std::string wrong = collective_contradiction(*options.command, options.config); !wrong.empty())
    return wrong;
  if (options.config.tolerance && options.config.tolerance->quorum > static_cast<std::uint32_t>(ranks)) {
    return fmt::format("--tolerant q={}: there are {} ranks; allowed: 1 to {}", options.config.tolerance->quorum, ranks,
                       ranks);
  }
  if (!options.config.slow.empty() && options.config.slow.rbegin()->first >= ranks) {
    return fmt::format("--slow: there is no rank {}; allowed: 0 to {}", options.config.slow.rbegin()->first, ranks - 1);
  }
  if (const std::string wrong = checkpoint_contradiction(*options.command, options.config); !wrong.empty()) {
    return wrong;
  }
  if (const std::string wrong = codec_contradiction(*options.command, options.config); !wrong.empty()) return wrong;
  if (const std::string wrong = overlap_contradiction(options.config, ranks); !wrong.empty()) return wrong;
  if (const std::string wrong = update_contradiction(options.config, ranks); !wrong.empty()) return wrong;
  if (const std::string wrong = parallel_contradiction(options.config, ranks); !wrong.empty()) return wrong;
  if (const auto writable = report::check_writable(options.launched() ? "" : options.json_path); !writable) {
    return "--json: " + writable.error().message;
  }
  const trainer::ParaexpressOptions& plan = options.config.paraexpress;
  if (by_hand && (plan.helpers > 0) != !plan.helpers_root.empty()) {
    return "--helpers and --helpers-root belong together where ranks are started by hand";
  }
  if (!plan.helpers_root.empty() && plan.helpers_root == options.rank.root) {
    return "--helpers-root and --root are the same; allowed: another port";
  }
  if (!by_hand && !plan.helpers_root.empty()) return "--helpers-root is for ranks that are started by hand (--rank)";
  if (plan.helpers > 0 && ranks == 1) return "--helpers: one rank alone has nothing to add up; leave it out";
  if (by_hand && !(options.by_launcher && ranks == 1)) {
    const std::size_t colon = options.rank.root.rfind(':');
    const std::string port = colon == std::string::npos ? "" : options.rank.root.substr(colon + 1);
    int number = 0;
    const auto parsed = std::from_chars(port.data(), port.data() + port.size(), number);
    const bool good = colon > 0 && parsed.ec == std::errc() && parsed.ptr == port.data() + port.size() && number >= 1 &&
                      number <= 65535;
    if (!good) return fmt::format("--root '{}' is not HOST:PORT with a port from 1 to 65535", options.rank.root);
  }
  return plugin_trouble(options, ranks);
}

// Into this process's environment, where its plugin finds them, or its ranks'.
Result<void> set_environment(Options& options) {
  const auto faults = parse_faults(options.inject_loss, options.inject_faults);
  if (!faults) return tl::unexpected(faults.error());
  options.config.inject_faults = faults->text;
  options.config.inject_loss = faults->loss;
  if (!options.launched()) {  // otherwise inherited
    ab::Settings settings;
    if (options.loss_tolerance > 0) {
      if (auto ok = tolerate_loss(options.loss_tolerance, loss_rules(options.config), settings); !ok) return ok;
    } else if (options.loss_given->count() > 0) {
      for (const char* opts_in : {"CLUSTAR_LOSS_RULES", "CLUSTAR_LOSS_TRAFFIC_CLASSES"}) unsetenv(opts_in);
    }
    if (auto ok = inject(*faults, settings); !ok) return ok;
    for (const auto& [name, value] : settings) setenv(name.c_str(), value.c_str(), 1);
  }
  // Once, before any rank starts, and not by each rank's plugin among the complaints of its neighbours.
  const auto config = config_of({});
  if (!config) return tl::unexpected(config.error());
  const auto bound = loss_bound_ppm(*config);
  if (!bound) return tl::unexpected(bound.error());
  options.config.loss_bound_ppm = trainer::opens_plugin(options.config.collective) ? *bound : 0;
  return {};
}

int run(Options& options) {
  const bool quiet = options.quiet || options.launched();
  if (const std::string wrong = take_launcher(options.by_launcher, kMaxRanks, quiet, options.rank); !wrong.empty())
    return usage_error(wrong);
  options.config.bucket_bytes = static_cast<std::size_t>(options.bucket_mib * kMib);
  options.config.first_bucket_bytes = static_cast<std::size_t>(options.first_bucket_mib * kMib);
  options.rank.stall_timeout = std::chrono::seconds(options.stall_timeout_s);
  if (options.target_given->count() > 0) options.config.target_accuracy = options.target_accuracy;
  // Absolute, because dlopen looks for a bare name on its own path and not here.
  options.rank.plugin =
      options.rank.plugin.empty() ? installed_library("libnccl-net-clustar.so") : absolute_path(options.rank.plugin);
  const int all = options.by_hand() ? options.rank.size : options.ranks;
  if (const std::string wrong = take_compute(options.compute, options.config, all); !wrong.empty()) {
    return usage_error(wrong);
  }
  if (const std::string wrong = take_precision(*options.command, options.config); !wrong.empty()) {
    return usage_error(wrong);
  }
  options.json_path = trainer::tagged(options.json_path, options.config.compute);
  if (!options.launched()) {
    const std::string wrong = path_contradiction(options.config, options.json_path);
    if (!wrong.empty()) return usage_error(wrong);
  }
  if (const std::string wrong = contradiction(options); !wrong.empty()) return usage_error(wrong);
  if (by_paraexpress(options)) {
    if (const auto ok = trainer::complete(options.config.paraexpress, all); !ok) return usage_error(ok.error().message);
  }
  if (const auto set = set_environment(options); !set) return usage_error(set.error().message);
  // A comparison waits for the slowest rank.
  if (options.config.tolerance && options.check_given->count() == 0) {
    options.config.check_equal = trainer::CheckEqual::kEpoch;
  }
  if (options.config.no_communication) options.config.check_equal = trainer::CheckEqual::kOff;
  if (options.describe) return describe(options);
  if (options.by_hand() || options.ranks == 1) return run_one_rank(options);
  // Before any rank starts, so that unusable data is reported once.
  const auto model = trainer::make_model(options.config.model, options.config.model_options);
  if (!options.config.compute.replays()) {
    if (const auto data = trainer::load_data(options.config, *model); !data) return failure(data.error().message);
  }
  return launch_ranks(options);
}

void add_training_options(CLI::App& command, Options& options) {
  add_model_options(command, options.config);
  add_sgd_options(command, options.config);
  add_precision_options(command, options.config);
  add_data_options(command, options.config);
  options.target_given = add_target_option(command, options.target_accuracy);
}

void add_transport_options(CLI::App& command, Options& options) {
  options.ranks_given = command.add_option("--ranks", options.ranks, "Processes to train with, all on this machine")
                            ->check(CLI::Range(1, kMaxRanks))
                            ->capture_default_str();
  add_collective_options(command, options.config, options.rank);
  add_overlap_options(command, options.config);
  add_parallel_options(command, options.config);
  options.plugin_given =
      command.add_option("--plugin", options.rank.plugin,
                         "NCCL net plugin that carries the gradients [the one installed with this program]");
  command
      .add_option("--plugin-version", options.rank.plugin_version,
                  "Which ncclNetPlugin_v<N> to use: 6 to 12 [newest that the plugin exports]")
      ->check(CLI::Range(6, 12));
  command.add_option("--channels", options.rank.channels, "Rings that share each all-reduce")
      ->check(CLI::Range(1, 32))
      ->capture_default_str();
  command.add_option("--bucket-mb", options.bucket_mib, "A gradient bucket is sent once it holds this many MiB")
      ->check(number_between(0.0001, 65536.0))
      ->capture_default_str();
  command.add_option("--first-bucket-mb", options.first_bucket_mib, "The same for the first bucket, MiB")
      ->check(number_between(0.0001, 65536.0))
      ->capture_default_str();
  options.check_given =
      command
          .add_option("--check-equal", options.config.check_equal,
                      "Compare the ranks' parameters bit for bit after every step, at the end of each epoch, or never: "
                      "every|epoch|off [every; with --tolerant epoch]")
          ->transform(choice({"every", "epoch", "off"}));
  command.add_flag("--no-communication", options.config.no_communication,
                   "The same steps with the collectives left out, replicas unchecked: the throughput that no transport "
                   "can exceed. Loss and accuracy mean nothing then");
  add_fault_options(command, options.inject_loss, options.inject_faults,
                    "the packets that each rank sends, data and acknowledgements alike; needs "
                    "CLUSTAR_TRANSPORT=mlt");
  options.loss_given = add_loss_option(command, options.loss_tolerance);
  command
      .add_option("--stall-timeout", options.stall_timeout_s,
                  "Fail when a transfer makes no progress for this many seconds (0 = wait forever)")
      ->check(CLI::Range(0, 86400))
      ->capture_default_str();
}

void add_rank_options(CLI::App& command, Options& options) {
  const std::string group = "Ranks on several hosts (start this command once per rank)";
  options.rank_given = command.add_option("--rank", options.rank.rank, "Which rank this process is, from 0")
                           ->check(CLI::Range(0, kMaxRanks - 1))
                           ->group(group);
  options.size_given = command.add_option("--size", options.rank.size, "How many ranks there are")
                           ->check(CLI::Range(1, kMaxRanks))
                           ->group(group);
  options.root_given =
      command.add_option("--root", options.rank.root, "HOST:PORT where rank 0 listens and the others find it")
          ->group(group);
  add_launcher_option(command, options.by_launcher, group);
  command.add_option("--report-fd", options.report_fd, "For ranks that this program starts, itself or by a launcher")
      ->group("");
}

}  // namespace

void add_train(CLI::App& app, int& status) {
  const auto options = std::make_shared<Options>();
  CLI::App& command = *app.add_subcommand(
      "train", "Train a reference model over a net plugin, ParaExpress or a parameter server, and measure it");
  options->command = &command;
  add_training_options(command, *options);
  add_replay_options(command, options->compute);
  add_record_option(command, options->compute);
  add_device_options(command, options->compute);
  add_checkpoint_options(command, options->config);
  add_transport_options(command, *options);
  add_codec_options(command, options->config.codec);
  add_rank_options(command, *options);
  command.add_flag("--describe", options->describe,
                   "Print layers, parameters, gradient bytes and buckets; train nothing");
  command.add_option("--json", options->json_path, "Write the results to this file ('-' = standard output)");
  command.add_flag("--no-progress", options->no_progress, "One line per epoch instead of a progress bar");
  command.add_flag("--quiet", options->quiet, "No progress and no table");
  command.footer(
      "Optimiser: SGD with momentum on softmax cross entropy. One fifth of the examples, drawn by the seed, is held\n"
      "out for the accuracy. Gradients travel in buckets by PyTorch DDP's rule while backward still runs.\n"
      "The environment (CLUSTAR_*, NCCL_*) reaches the plugin unchanged.\n"
      "Exit status: 0 done, 1 failed (a rank was lost, replicas differ, bad data), 2 wrong usage.\n"
      "Example: clustar train --model mlp --ranks 4 --json result.json\n"
      "With loss: CLUSTAR_TRANSPORT=mlt clustar train --ranks 2 --inject-loss 0.01\n"
      "With loss that may stay: clustar train --ranks 4 --loss-tolerance 0.01 --inject-loss 0.02\n"
      "By folders of images: clustar train --model resnet50 --image-size 64 --classes 10 --data photos --epochs 90\n"
      "  --checkpoint run.ckpt, and after an interrupt the same with --resume run.ckpt\n"
      "Gradients of 16 bits: clustar train --model cnn --ranks 4 --precision f16\n"
      "By ParaExpress: clustar train --ranks 4 --collective paraexpress --plan ring\n"
      "Without waiting for a slow rank: clustar train --ranks 4 --collective paraexpress --tolerant q=3,deadline=5ms\n"
      "By a parameter server as of 2018, a baseline: clustar train --ranks 4 --collective ps\n"
      "A GPU's pace, replayed: clustar train --model vgg16 --ranks 4 --compute estimate=v100 --time-scale 32 \\\n"
      "    --byte-scale 32 --batch 128 --examples 1280 --epochs 1 --json vgg.json");
  command.callback([options, &status] { status = run(*options); });
}

}  // namespace clustar::bench::cli
