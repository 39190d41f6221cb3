#include "nccl_plugin/plugin_state.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

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

std::weak_ptr<PluginState>& process_state() {
  static std::weak_ptr<PluginState> state;
  return state;
}

}  // namespace

PluginState::PluginState(nccl_abi::DebugLogger logger) : log_(make_log(logger)) {}

PluginState::~PluginState() {
  if (selection_.transport) log_.info(selection_.transport->summary());
}

Result<std::shared_ptr<PluginState>> PluginState::create(nccl_abi::DebugLogger logger) {
  std::shared_ptr<PluginState> state(new PluginState(logger));
  auto config = Config::load();
  if (!config) {
    state->refusal_ = config.error();
  } else if (auto selected = transport::select_transport(*config, state->clock_, state->log_); selected) {
    state->selection_ = std::move(*selected);
    state->print_banner(*config);
  } else {
    const bool asked = config->transport != "auto" || !config->require.empty() || !config->psk_file.empty() ||
                       !config->inject_faults.empty();
    if (!asked) {
      state->log_.warn(fmt::format("version {} cannot be used here: {}", CLUSTAR_VERSION, selected.error().message));
      return tl::unexpected(selected.error());
    }
    state->refusal_ = selected.error();
  }
  if (state->refusal_) {
    state->log_.warn(
        fmt::format("version {}: {}. Every connection will be refused, so that no other transport is taken "
                    "in silence",
                    CLUSTAR_VERSION, state->refusal_->message));
  }
  return state;
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
  refused.memory_kinds = 1u << static_cast<unsigned>(gdr::MemoryKind::kHost);
  return refused;
}

void PluginState::print_banner(const Config& config) const {
  std::vector<std::string> devices;
  for (const auto& device : selection_.transport->devices()) {
    devices.push_back(fmt::format("{} ({} Mbit/s{})", device.name, device.speed_mbps,
                                  device.pci_path.empty() ? "" : ", " + device.pci_path));
  }
  log_.info(fmt::format("clustar {}: transport {}, devices: {}", CLUSTAR_VERSION, selection_.transport->name(),
                        fmt::join(devices, ", ")));
  for (const std::string& reason : selection_.refused) log_.info("not chosen: " + reason);
  if (!selection_.transport->devices().front().ordered_lines) {
    log_.info(fmt::format("{} gives no order of 128-byte lines: set NCCL_PROTO=^LL128", selection_.transport->name()));
  }
  for (const std::string& line : config.describe()) log_.info("config: " + line);
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
