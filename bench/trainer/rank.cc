#include "bench/trainer/rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bench/proxy/bootstrap.h"
#include "bench/proxy/communicator.h"
#include "bench/proxy/net_plugin.h"
#include "bench/proxy/plugin_library.h"
#include "bench/report/report.h"
#include "bench/trainer/checkpoint/checkpoints.h"
#include "bench/trainer/checkpoint/run_identity.h"
#include "bench/trainer/compute/rank_compute.h"
#include "bench/trainer/compute_thread.h"
#include "bench/trainer/data/image_folder.h"
#include "bench/trainer/data/load.h"
#include "bench/trainer/digest.h"
#include "bench/trainer/loss_meter.h"
#include "bench/trainer/nccl/collective.h"
#include "bench/trainer/nccl/library.h"
#include "bench/trainer/paraexpress_collective.h"
#include "bench/trainer/parallel/layer_terms.h"
#include "bench/trainer/parallel/layer_traffic.h"
#include "bench/trainer/proxy_collective.h"
#include "bench/trainer/ps_collective.h"
#include "bench/trainer/run_options.h"
#include "bench/trainer/tolerant_collective.h"
#include "mlt/driver/settings.h"
#include "nccl_plugin/settings/all_settings.h"

namespace clustar::bench::trainer {
namespace {

// ncclConfig_t.commName: what loss rules can name.
constexpr const char* kCommName = "train";
constexpr const char* kFrontCommName = "train-front";

std::uint64_t digest_of(const std::string& text) { return digest(std::as_bytes(std::span(text))); }

struct Setting {
  std::string name;
  std::uint64_t value;
};

// What has to be equal on all ranks, or they would wait for each other or train different things.
// The plugin compares its own settings, too, but only with its neighbours in the ring: the others would wait for those.
std::vector<Setting> settings(const TrainConfig& config, const RankOptions& options, const Dataset& dataset,
                              const std::optional<LayerTimes>& times) {
  std::vector<Setting> all;
  for (const RunOption& option : run_options(config, options.size, options.channels, dataset, times)) {
    if (option.shared != Shared::kBits) all.push_back({option.name, digest_of(option.value)});
  }
  if (const auto plugin = load_settings()) {
    for (const SettingTable* table : plugin->tables()) {
      for (std::size_t i = 0; i < table->size(); ++i) {
        if (table->info(i).shared) all.push_back({table->info(i).variable(), digest_of(table->counts(i, *plugin))});
      }
    }
  }
  return all;
}

// Compares every rank's settings with rank 0's. Returns a number that rank 0 drew: the communicator's id.
Result<std::uint64_t> agree(const std::vector<Setting>& mine, proxy::Bootstrap& bootstrap) {
  std::random_device random;
  std::vector<std::uint64_t> words{std::uint64_t{random()} << 32 | random()};
  for (const Setting& setting : mine) words.push_back(setting.value);
  const auto gathered = bootstrap.all_gather(std::as_bytes(std::span(words)));
  if (!gathered) return tl::unexpected(gathered.error());
  std::vector<std::uint64_t> all(gathered->size() / sizeof(std::uint64_t));
  std::memcpy(all.data(), gathered->data(), gathered->size());
  for (std::size_t at = words.size(); at < all.size(); ++at) {
    const std::size_t column = at % words.size();
    if (column == 0 || all[at] == all[column]) continue;
    return fail(ErrorCode::kInvalidUsage, fmt::format("ranks 0 and {} differ in {}; start all ranks with the same",
                                                      at / words.size(), mine[column - 1].name));
  }
  return all[0];
}

// What a run with more than one rank holds. Closed in the reverse order: collective, plugin, bootstrap.
struct Transport {
  std::unique_ptr<proxy::Bootstrap> bootstrap;
  std::unique_ptr<proxy::NetPlugin> plugin;  // null: the collective opens none
  proxy::Library library;                    // the plugin's, for its C API
  std::optional<LossMeter> loss;
  std::unique_ptr<Collective> collective;
  std::unique_ptr<Collective> front;  // null: there are no front buckets
  // One for each of TrainConfig::layers; none with ParaExpress, whose collective has them all.
  std::vector<std::unique_ptr<Collective>> of_layers;
  std::optional<parallel::LayerTraffic> layers;
  ParaexpressCollective* paraexpress = nullptr;  // `collective` as what it is; null: it is another
  TolerantCollective* tolerant = nullptr;

  // With the first error.
  Result<void> close() {
    Result<void> first;
    const auto close_one = [&](Collective* one) {
      if (one == nullptr) return;
      if (auto closed = one->close(); !closed && first) first = closed;
    };
    close_one(collective.get());
    close_one(front.get());
    for (const auto& one : of_layers) close_one(one.get());
    return first;
  }
};

class ClosedAtTheEnd {
 public:
  explicit ClosedAtTheEnd(Transport& transport) : transport_(transport) {}
  ~ClosedAtTheEnd() { (void)transport_.close(); }
  ClosedAtTheEnd(const ClosedAtTheEnd&) = delete;
  ClosedAtTheEnd& operator=(const ClosedAtTheEnd&) = delete;

 private:
  Transport& transport_;
};

// Any plugin will do: one without our C API just does not tell what it lost.
Result<void> meter_losses(Transport& transport) {
  auto opened = proxy::open_library(transport.plugin->path());
  if (!opened) return tl::unexpected(opened.error());
  transport.library = std::move(opened->library);
  transport.loss.emplace(
      static_cast<const clustarApi_v1_t*>(proxy::find_symbol(transport.library.get(), "clustarApi_v1")),
      static_cast<const clustarApi_v2_t*>(proxy::find_symbol(transport.library.get(), "clustarApi_v2")));
  return {};
}

std::string with_log(std::string message, Transport& transport) {
  if (transport.paraexpress != nullptr) {
    for (const std::string& text : transport.paraexpress->take_warnings()) {
      message += fmt::format("\n  {} warned: {}", transport.paraexpress->transport(), text);
    }
  }
  if (transport.tolerant != nullptr) {
    for (const std::string& text : transport.tolerant->take_warnings()) {
      message += fmt::format("\n  {} warned: {}", transport.tolerant->transport(), text);
    }
  }
  if (!transport.plugin) return message;
  for (const proxy::LogLine& line : transport.plugin->take_log()) {
    if (line.level != nccl_abi::kLogWarn) continue;
    message += fmt::format("\n  {} warned: {}", transport.plugin->name(), line.text);
  }
  return message;
}

Result<std::unique_ptr<proxy::Communicator>> communicate(const RankOptions& options, std::uint64_t id,
                                                         const std::string& name, bool direct, Transport& transport) {
  proxy::CommunicatorOptions communicator_options;
  communicator_options.channels = options.channels;
  communicator_options.comm_id = id;
  communicator_options.comm_name = name;
  communicator_options.direct = direct;
  communicator_options.stall_timeout = options.stall_timeout;
  auto made = proxy::Communicator::create(*transport.plugin, *transport.bootstrap, communicator_options);
  if (!made) return fail(made.error().code, with_log(made.error().message, transport));
  return made;
}

Result<void> connect_proxy(const TrainConfig& config, const RankOptions& options, std::uint64_t comm_id,
                           Transport& transport, RunInfo& info) {
  const bool direct = config.exchange.all_reduce == AllReduce::kAllToAll;
  auto communicator = communicate(options, comm_id, kCommName, direct, transport);
  if (!communicator) return tl::unexpected(communicator.error());
  info.plugin_version = transport.plugin->version();
  info.transport = transport.plugin->transport();
  info.profiler_version = (*communicator)->profiler_version();
  info.tuner_version = (*communicator)->tuner_version();
  transport.collective = std::make_unique<ProxyCollective>(std::move(*communicator), config.exchange);
  if (config.front_buckets > 0) {
    auto front = communicate(options, comm_id + 1, kFrontCommName, direct, transport);
    if (!front) return tl::unexpected(front.error());
    transport.front = std::make_unique<ProxyCollective>(std::move(*front), config.exchange);
  }
  for (const auto& layer : parallel::layer_exchanges(config.layers, options.rank, options.size)) {
    auto own = communicate(options, comm_id + 2 + transport.of_layers.size(), layer.comm_name, true, transport);
    if (!own) return tl::unexpected(own.error());
    transport.of_layers.push_back(std::make_unique<ProxyCollective>(std::move(*own), config.exchange));
  }
  int devices = 0;
  proxy::NetProperties properties;
  if (transport.plugin->devices(&devices) == nccl_abi::kSuccess && devices > 0 &&
      transport.plugin->get_properties(options.rank % devices, &properties) == nccl_abi::kSuccess) {
    info.device = properties.name;
  }
  return {};
}

// Of all-reduces that are exchanges. What may not be lost is the plugin's setting: what it cannot read is marked.
std::optional<DirectOptions> direct_options(const TrainConfig& config, const RankOptions& options) {
  if (config.exchange.all_reduce != AllReduce::kAllToAll) return std::nullopt;
  const auto settings = load_settings();
  const double important = settings ? settings->get<MltSettings>().loss_important_ppm / 1e6 : 0;
  return DirectOptions{.missing = config.exchange.missing,
                       .important = important,
                       .driver = config.compute.cuda_driver,
                       .plugin = options.plugin};
}

// The plugin is opened here, too, but only for its name and what it tells of losses: NCCL opens and drives it.
Result<void> connect_nccl(const TrainConfig& config, const RankOptions& options, Transport& transport, RunInfo& info) {
  const auto library = NcclLibrary::open(options.nccl_library);
  if (!library) return tl::unexpected(library.error());
  if (const auto devices = library->devices(); !devices) return tl::unexpected(devices.error());
  const auto device = library->device_name(0);
  if (!device) return tl::unexpected(device.error());
  info.nccl = {library->path, library->version(), *device, *device == kEmulatedDevice};
  set_nccl_environment(options.rank, options.root, options.plugin, info.plugin_name, info.nccl.emulated,
                       config.exchange.all_reduce == AllReduce::kAllToAll);
  const auto create = [&](std::string name, std::optional<DirectOptions> direct) {
    return create_nccl_collective(*library, *transport.bootstrap,
                                  {.channels = options.channels,
                                   .comm_name = std::move(name),
                                   .join_timeout = options.join_timeout,
                                   .stall_timeout = options.stall_timeout,
                                   .direct = std::move(direct)});
  };
  auto collective = create(kCommName, direct_options(config, options));
  if (!collective) return tl::unexpected(collective.error());
  transport.collective = std::move(*collective);
  for (const auto& layer : parallel::layer_exchanges(config.layers, options.rank, options.size)) {
    auto own = create(layer.comm_name, std::nullopt);
    if (!own) return tl::unexpected(own.error());
    transport.of_layers.push_back(std::move(*own));
  }
  return {};
}

// Without a plugin: what sends is the transport itself, and everything is reliable.
Result<void> connect_paraexpress(const TrainConfig& config, const RankOptions& options, std::uint64_t comm_id,
                                 Transport& transport, RunInfo& info) {
  auto collective =
      ParaexpressCollective::create(*transport.bootstrap, {.plan = config.paraexpress,
                                                           .comm_id = comm_id,
                                                           .stall_timeout = options.stall_timeout,
                                                           .exchanges = config.layers.moe || config.layers.dlrm});
  if (!collective) return tl::unexpected(collective.error());
  info.transport = (*collective)->transport();
  info.device = (*collective)->device();
  transport.paraexpress = collective->get();
  transport.collective = std::move(*collective);
  return {};
}

// As paraexpress, but what is late or lost of gradients comes into later sums.
Result<void> connect_tolerant(const TrainConfig& config, const RankOptions& options, std::uint64_t comm_id,
                              std::uint32_t buckets, Transport& transport, RunInfo& info) {
  auto collective = TolerantCollective::create(
      *transport.bootstrap,
      {.tolerance = *config.tolerance, .buckets = buckets, .comm_id = comm_id, .stall_timeout = options.stall_timeout});
  if (!collective) return tl::unexpected(collective.error());
  info.transport = (*collective)->transport();
  info.device = (*collective)->device();
  transport.tolerant = collective->get();
  transport.collective = std::move(*collective);
  return {};
}

// Nor does the baseline, whose connections are the kernel's alone.
Result<void> connect_ps(const RankOptions& options, std::uint64_t comm_id, Transport& transport, RunInfo& info) {
  auto collective = PsCollective::create(*transport.bootstrap, {.root = options.root,
                                                                .token = comm_id,
                                                                .join_timeout = options.join_timeout,
                                                                .stall_timeout = options.stall_timeout});
  if (!collective) return tl::unexpected(collective.error());
  info.transport = "kernel TCP";
  info.device = (*collective)->server();
  info.ps = {(*collective)->server(), (*collective)->congestion_control()};
  transport.collective = std::move(*collective);
  return {};
}

// Each size of a bucket once, in the order of the buckets. Blobs of a codec are gathered, which has no plan; nor have
// the reduce-scatters of shards.
std::vector<PlannedSize> planned_sizes(const TrainConfig& config, const BucketPlan& buckets,
                                       const ParaexpressCollective& collective) {
  if (config.codec.codec != Codec::kNone && config.codec.path == CodecPath::kGather) return {};
  if (config.sharding != parallel::Sharding::kNone) return {};
  std::vector<PlannedSize> planned;
  for (const Bucket& bucket : buckets.buckets) {
    const std::uint64_t bytes = buckets.bytes(bucket);
    const auto same = [&](const PlannedSize& one) { return one.bytes == bytes; };
    if (std::any_of(planned.begin(), planned.end(), same)) continue;
    planned.push_back({bytes, paraexpress::to_string(collective.plan_for(bytes))});
  }
  return planned;
}

Result<void> connect(const TrainConfig& config, const RankOptions& options, const std::vector<Setting>& mine,
                     const BucketPlan& plan, Transport& transport, RunInfo& info) {
  auto bootstrap = proxy::Bootstrap::join({.rank = options.rank,
                                           .size = options.size,
                                           .root = options.root,
                                           .join_timeout = options.join_timeout,
                                           .call_timeout = options.stall_timeout});
  if (!bootstrap) return tl::unexpected(bootstrap.error());
  transport.bootstrap = std::move(*bootstrap);
  const auto id = agree(mine, *transport.bootstrap);
  if (!id) return tl::unexpected(id.error());
  if (config.no_communication) return {};
  if (config.tolerance) {
    return connect_tolerant(config, options, *id, static_cast<std::uint32_t>(plan.buckets.size()), transport, info);
  }
  if (config.collective == CollectiveKind::kParaexpress) {
    return connect_paraexpress(config, options, *id, transport, info);
  }
  if (config.collective == CollectiveKind::kPs) return connect_ps(options, *id, transport, info);
  auto plugin = proxy::NetPlugin::open(options.plugin, options.plugin_version);
  if (!plugin) return tl::unexpected(plugin.error());
  transport.plugin = std::move(*plugin);
  if (auto ok = meter_losses(transport); !ok) return ok;
  info.plugin_path = options.plugin;
  info.plugin_name = transport.plugin->name();
  info.channels = options.channels;
  return config.collective == CollectiveKind::kNccl ? connect_nccl(config, options, transport, info)
                                                    : connect_proxy(config, options, *id, transport, info);
}

void make_layers(const TrainConfig& config, const RankOptions& options, std::size_t tensors, Transport& transport) {
  const auto layers = parallel::layer_exchanges(config.layers, options.rank, options.size);
  if (layers.empty() || transport.collective == nullptr) return;
  std::vector<Collective*> collectives(layers.size(), transport.collective.get());
  for (std::size_t i = 0; i < transport.of_layers.size(); ++i) collectives[i] = transport.of_layers[i].get();
  transport.layers.emplace(layers, collectives, options.rank, tensors);
}

}  // namespace

Result<Dataset> load_data(const TrainConfig& config, const Model& model) {
  const graph::Shape& shape = model.graph.input();
  const DataFor wanted{model.name, model.data, shape.rows, shape.columns, model.classes};
  return config.data.empty() ? generate(wanted, config.generated, config.seed)
                             : load(config.data, wanted, config.skip_damaged);
}

Result<void> check_front(const TrainConfig& config, const BucketPlan& plan) {
  if (config.front_buckets == 0 || config.front_buckets < plan.buckets.size()) return {};
  if (plan.buckets.size() == 1) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} has one bucket only; --bucket-mb and --first-bucket-mb make more", config.model));
  }
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{} front buckets of the {} that {} has: at most {} are allowed, so that one is left for the "
                          "other layers; --bucket-mb and --first-bucket-mb make more",
                          config.front_buckets, plan.buckets.size(), config.model, plan.buckets.size() - 1));
}

namespace {

// A replay stands for examples that nobody loads.
Result<void> load(const TrainConfig& config, const Model& model, Dataset& dataset, Split& split, RunInfo& info) {
  if (config.compute.replays()) {
    split.train.resize(replayed_examples(config));
    std::iota(split.train.begin(), split.train.end(), 0u);
    dataset.source = "nothing: a replay";
    return {};
  }
  auto loaded = load_data(config, model);
  if (!loaded) return tl::unexpected(loaded.error());
  dataset = std::move(*loaded);
  if (config.skip_damaged && !dataset.files.empty()) {
    const LeftOut left_out = leave_out_damaged(dataset);
    info.damaged_files = left_out.files;
    info.first_damaged = left_out.first;
  }
  auto halves = split_dataset(dataset, config.seed);
  if (!halves) return tl::unexpected(halves.error());
  split = std::move(*halves);
  return {};
}

}  // namespace

namespace {

Result<nlohmann::json> train(const TrainConfig& config, const RankOptions& options, const ProgressSink& progress) {
  const ComputeThread settings_of_thread;  // before the communicator's threads, whose sums shall flush denormals too
  const auto model = make_model(config.model, config.model_options);
  if (!model) return tl::unexpected(model.error());
  const BucketPlan plan = plan_of(config, *model, options.size);
  if (auto ok = check_front(config, plan); !ok) return tl::unexpected(ok.error());
  const auto times = replayed_times(config, *model, options.size);
  if (!times) return tl::unexpected(times.error());
  Dataset dataset;
  Split split;
  RunInfo info;
  if (auto ok = load(config, *model, dataset, split, info); !ok) return tl::unexpected(ok.error());
  info.data_source = dataset.source;
  info.train_examples = split.train.size();
  info.held_out_examples = split.held_out.size();
  // Names of files may be in any encoding.
  info.replay =
      replay_json(config, *times, options.size).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  Transport transport;
  if (options.size > 1) {
    const std::vector<Setting> mine = settings(config, options, dataset, *times);
    if (auto ok = connect(config, options, mine, plan, transport, info); !ok) return tl::unexpected(ok.error());
  }
  make_layers(config, options, plan.tensor_elements.size(), transport);
  const auto made = make_compute(config, *model, plan, *times, options.rank, options.size);
  if (!made) return tl::unexpected(made.error());
  const RankCompute& computes = *made;
  if (computes.math) info.mathematics = computes.math->name();
  info.emulated = computes.emulated;
  info.libraries = computes.libraries;
  const ProgressSink labelled = [&](Progress shown) {
    shown.emulated = computes.emulated;
    progress(shown);
  };
  Trainer trainer(config, *model, plan, *computes.compute, dataset, split,
                  {transport.collective.get(), transport.bootstrap.get(), transport.loss ? &*transport.loss : nullptr,
                   transport.front.get(), transport.layers ? &*transport.layers : nullptr},
                  progress ? labelled : ProgressSink());
  // Before the trainer's buffers go, however this ends: a transfer that a failure left behind may still write to them.
  const ClosedAtTheEnd closed_at_the_end(transport);
  const bool keeps = !config.checkpoint.file.empty() || !config.checkpoint.resume.empty();
  Checkpoints checkpoints(config.checkpoint,
                          keeps ? run_identity(config, options.size, options.channels, dataset) : Facts{},
                          transport.bootstrap.get());
  auto report = trainer.run(&checkpoints);
  info.checkpoints = checkpoints.saved();
  info.checkpoint_s = checkpoints.seconds();
  if (transport.paraexpress != nullptr) {
    info.plans = planned_sizes(config, trainer.plan(), *transport.paraexpress);
    info.helpers_left = transport.paraexpress->helpers();
    if (!config.paraexpress.regions.empty()) info.regions = transport.paraexpress->regions();
    info.regions_found = transport.paraexpress->regions_found();
  }
  const Result<void> closed = transport.close();
  if (!report || !closed) {
    Error error = report ? closed.error() : report.error();
    error.message = with_log(std::move(error.message), transport);
    return tl::unexpected(std::move(error));
  }
  if (computes.clock && options.rank == 0) {
    const auto recorded = computes.clock->times();
    if (!recorded) return fail(recorded.error().code, "--record-compute: " + recorded.error().message);
    if (auto ok = report::write_text(to_text(*recorded), config.record_compute); !ok) return tl::unexpected(ok.error());
  }
  return to_results(config, *model, trainer.plan(), info, *report);
}

}  // namespace

Result<nlohmann::json> run_rank(const TrainConfig& config, const RankOptions& options, const ProgressSink& progress) {
  try {
    return train(config, options, progress);
  } catch (const std::runtime_error& failed) {  // a kernel's: oneDNN or a GPU refused
    return fail(ErrorCode::kSystem, failed.what());
  }
}

}  // namespace clustar::bench::trainer
