#include "nccl_plugin/net/plugin_state.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <string_view>
#include <utility>

#include "coflow/enforce/host_policies.h"
#include "nccl_plugin/collnet/offer.h"
#include "nccl_plugin/net/connection_class.h"
#include "nccl_plugin/process.h"
#include "nccl_plugin/settings/plugin_settings.h"
#include "transport/api/settings.h"
#include "transport/base/version.h"
#include "transport/transport_tables.h"

namespace clustar::nccl_plugin {
namespace {

Log make_log(nccl_abi::DebugLogger logger) {
  if (logger == nullptr) return Log();
  return Log([logger](LogLevel level, const std::string& message) {
    const int nccl_level = level == LogLevel::kWarn ? nccl_abi::kLogWarn : nccl_abi::kLogInfo;
    logger(nccl_level, nccl_abi::kLogInit | nccl_abi::kLogNet, "clustar", 0, "NET/clustar: %s", message.c_str());
  });
}

std::mutex& process_mutex() {
  static std::mutex mutex;
  return mutex;
}

std::uint64_t next_serial() {
  static std::atomic<std::uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

std::weak_ptr<PluginState>& process_state() {
  static std::weak_ptr<PluginState> state;
  return state;
}

}  // namespace

PluginState::PluginState(nccl_abi::DebugLogger logger) : log_(make_log(logger)) {}

PluginState::~PluginState() {
  if (!selection_.transport) return;
  log_.info(selection_.transport->summary());
  if (process_sends().sent() > 0) log_.info(process_sends().summary());
}

// Error: no transport, or a setting that makes no sense.
Result<void> PluginState::choose() {
  auto policy = LossPolicy::create(config_.get<LossSettings>());
  if (!policy) return tl::unexpected(policy.error());
  policy_ = std::move(*policy);
  auto urgency = UrgencyRules::create(config_.get<PluginSettings>().send_urgency);
  if (!urgency) return tl::unexpected(urgency.error());
  urgency_rules_ = std::move(*urgency);
  const auto order = config_.get<SendOrderSettings>();
  auto policies = coflow::enforce::host_policies(order, log_);
  if (!policies) return tl::unexpected(policies.error());
  auto selected = transport::select_transport({config_, clock_, log_, std::move(*policies), importance_});
  if (!selected) return tl::unexpected(selected.error());
  selection_ = std::move(*selected);
  if (collnet_meets_gpu_memory(*this)) gpu_copies_ = transport::gpu_copies(config_);
  if (order.order == "coflow" && std::string_view(selection_.transport->name()) == "verbs") {
    connection_classes_ = transport::LevelClasses::parse(order.dscp).value_or(transport::LevelClasses());
  }
  return {};
}

Result<std::shared_ptr<PluginState>> PluginState::create(nccl_abi::DebugLogger logger) {
  std::shared_ptr<PluginState> state(new PluginState(logger));
  auto config = load_settings();
  if (!config) {
    state->refusal_ = config.error();
  } else {
    state->config_ = std::move(*config);
    for (const std::string& line : state->config_.not_taken()) state->log_.warn(line);
    if (const auto chosen = state->choose(); chosen) {
      state->print_banner();
    } else {
      const bool asked =
          transport::asks_for_something(state->config_) || chosen.error().code == ErrorCode::kInvalidArgument;
      if (!asked) {
        state->log_.warn(fmt::format("version {} cannot be used here: {}", version_text(), chosen.error().message));
        return tl::unexpected(chosen.error());
      }
      state->refusal_ = chosen.error();
    }
  }
  if (state->refusal_) {
    state->log_.warn(
        fmt::format("version {}: {}. Every connection will be refused, so that no other transport is taken "
                    "in silence",
                    version_text(), state->refusal_->message));
  }
  return state;
}

bool PluginState::may_lose() const {
  if (!selection_.transport) return false;
  const auto devices = selection_.transport->devices();
  return std::any_of(devices.begin(), devices.end(), [](const auto& device) { return device.may_lose; });
}

bool PluginState::reads_identity() const {
  const std::string identity = config_.get<PluginSettings>().identity;
  return identity == "on" || (identity == "auto" && may_lose());
}

bool PluginState::ordered_lines() const {
  if (!selection_.transport) return false;
  const auto devices = selection_.transport->devices();
  return std::all_of(devices.begin(), devices.end(), [](const auto& device) { return device.ordered_lines; });
}

std::size_t PluginState::device_count() const {
  return selection_.transport ? selection_.transport->devices().size() : 1;
}

transport::DeviceProperties PluginState::properties(std::size_t device) const {
  if (selection_.transport) return selection_.transport->devices()[device];
  transport::DeviceProperties refused;
  refused.name = "clustar-refused";
  refused.speed_mbps = 10000;
  refused.max_channels = 1;
  refused.memory_kinds = gdr::kHostOnly;
  return refused;
}

void PluginState::print_banner() const {
  std::vector<std::string> devices;
  for (const auto& device : selection_.transport->devices()) {
    devices.push_back(fmt::format("{} ({} Mbit/s{})", device.name, device.speed_mbps,
                                  device.pci_path.empty() ? "" : ", " + device.pci_path));
  }
  log_.info(fmt::format("clustar {}: transport {}, devices: {}", version_text(), selection_.transport->name(),
                        fmt::join(devices, ", ")));
  for (const auto& device : selection_.transport->devices()) {
    if (!device.gdr.empty()) log_.info(fmt::format("GPUDirect RDMA: {}: {}", device.name, device.gdr));
  }
  for (const std::string& reason : selection_.refused) log_.info("not chosen: " + reason);
  if (!ordered_lines()) {
    log_.info(fmt::format(
        "{} gives no order of 128-byte lines: LL128 is masked by this library's tuner, which NCCL takes "
        "by itself; only where NCCL_TUNER_PLUGIN names another one or a libnccl-tuner.so is found first, set "
        "NCCL_PROTO=^LL128",
        selection_.transport->name()));
  }
  if (!policy_.off() && !may_lose()) {
    log_.warn(fmt::format("loss_rules or loss_traffic_classes are set, but {} never loses: set CLUSTAR_TRANSPORT=mlt",
                          selection_.transport->name()));
  }
  if (const std::string collnet = collnet_summary(*this); !collnet.empty()) log_.info(collnet);
  for (const std::string& line : config_.describe()) log_.info("config: " + line);
}

CommContext::CommContext(std::shared_ptr<PluginState> plugin, const CommInit& init)
    : plugin_(std::move(plugin)), init_(init), serial_(next_serial()) {
  if (init_.knows_comm) process_registry().add_net(init_.comm_id, init_.traffic_class);
}

CommContext::~CommContext() {
  if (init_.knows_comm) process_registry().remove_net(init_.comm_id);
}

transport::ChannelOptions CommContext::options() const {
  transport::ChannelOptions options;
  options.comm_id = init_.comm_id;
  options.traffic_class = init_.traffic_class;
  if (options.traffic_class == nccl_abi::kTrafficClassUndefined) {
    options.traffic_class = connection_class(plugin_->connection_classes(), urgencies());
  }
  options.job = static_cast<std::uint32_t>(plugin_->config().get<SendOrderSettings>().job);
  options.config = plugin_->config().shared_digest();
  options.config_names = plugin_->shared_names();
  options.reads_identity = plugin_->reads_identity();
  const LossPolicy& policy = plugin_->policy();
  if (init_.knows_comm) {
    const auto facts = process_registry().find(init_.comm_id);
    if (facts) {
      options.rank = facts->rank;
      options.max_tolerance_ppm = policy.channel_tolerance_ppm(*facts);
    }
  } else if (policy.trusts_profiler_alone()) {
    // Whose connection this will be is not known: the ceiling of all rules; each message is judged by its own.
    for (const LossRule& rule : policy.rules()) {
      options.max_tolerance_ppm = std::max(options.max_tolerance_ppm, rule.tolerance_ppm);
    }
  }
  return options;
}

Urgencies CommContext::urgencies() const {
  const auto facts = init_.knows_comm ? process_registry().find(init_.comm_id) : std::nullopt;
  return plugin_->urgency_rules().of(facts ? facts->name : std::string());
}

std::uint64_t CommContext::add_pending(std::unique_ptr<transport::PendingConnect> pending) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t id = next_id_++;
  pending_.emplace(id, std::move(pending));
  return id;
}

transport::PendingConnect* CommContext::find_pending(std::uint64_t id) {
  const std::lock_guard lock(mutex_);
  const auto found = pending_.find(id);
  return found == pending_.end() ? nullptr : found->second.get();
}

void CommContext::erase_pending(std::uint64_t id) {
  const std::lock_guard lock(mutex_);
  pending_.erase(id);
}

Result<std::shared_ptr<PluginState>> acquire_plugin(nccl_abi::DebugLogger logger) {
  const std::lock_guard lock(process_mutex());
  if (auto state = process_state().lock()) return state;
  auto state = PluginState::create(logger);
  if (state) process_state() = *state;
  return state;
}

std::shared_ptr<PluginState> current_plugin() {
  const std::lock_guard lock(process_mutex());
  return process_state().lock();
}

}  // namespace clustar::nccl_plugin
