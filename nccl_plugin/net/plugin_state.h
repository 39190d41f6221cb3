// What the plugin keeps per process and per communicator. The C tables are the only users.
// Ownership: every comm and context holds the PluginState; the last one to go takes the transport with it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gdr/device_copy.h"
#include "nccl_plugin/abi/types.h"
#include "nccl_plugin/loss/policy.h"
#include "nccl_plugin/net/urgency_rules.h"
#include "nccl_plugin/settings/all_settings.h"
#include "transport/api/importance_table.h"
#include "transport/api/level_classes.h"
#include "transport/api/transport.h"
#include "transport/base/config.h"
#include "transport/base/system_clock.h"
#include "transport/registry.h"

namespace clustar::nccl_plugin {

class PluginState {
 public:
  // Reads the configuration, chooses the transport, prints the banner. When the user asked for something that cannot be
  // had (a bad setting, CLUSTAR_TRANSPORT, CLUSTAR_REQUIRE), the state is made all the same but refuses every
  // connection: an error from init would make NCCL fall back to another transport in silence. Error: nothing was asked
  // for and nothing works; NCCL may then look elsewhere.
  static Result<std::shared_ptr<PluginState>> create(nccl_abi::DebugLogger logger);
  ~PluginState();

  // Null when every connection must be refused: refusal() says why.
  transport::Transport* transport() const { return selection_.transport.get(); }
  const Error& refusal() const { return *refusal_; }
  std::size_t device_count() const;
  // `device` < device_count().
  transport::DeviceProperties properties(std::size_t device) const;
  const Log& log() const { return log_; }
  const LossPolicy& policy() const { return policy_; }
  const UrgencyRules& urgency_rules() const { return urgency_rules_; }
  // Of the levels of the order, where a connection has one class for all its messages; otherwise none.
  const transport::LevelClasses& connection_classes() const { return connection_classes_; }
  const Config& config() const { return config_; }
  // What the program marks through clustar.h, for the transport.
  transport::ImportanceTable& importance() const { return *importance_; }
  const Clock& clock() const { return clock_; }
  // Of the collective network, whose sums are made in host memory. Null: NCCL gives it no GPU memory.
  const Result<gdr::MakeCopy>* gpu_copies() const { return gpu_copies_ ? &*gpu_copies_ : nullptr; }
  std::span<const std::string> shared_names() const { return shared_names_; }
  // The transport can lose what the policy allows; otherwise every message is reliable.
  bool may_lose() const;
  // What messages say of themselves is wanted here (ChannelOptions::reads_identity).
  bool reads_identity() const;
  // The transport places 128-byte lines in order, on all devices.
  bool ordered_lines() const;

 private:
  explicit PluginState(nccl_abi::DebugLogger logger);

  Result<void> choose();
  void print_banner() const;

  Log log_;
  Config config_;
  const std::vector<std::string> shared_names_ = clustar::shared_names(all_settings());
  LossPolicy policy_;
  UrgencyRules urgency_rules_;
  transport::LevelClasses connection_classes_;
  SystemClock clock_;
  const std::shared_ptr<transport::ImportanceTable> importance_ = std::make_shared<transport::ImportanceTable>();
  transport::Selection selection_;
  std::optional<Result<gdr::MakeCopy>> gpu_copies_;
  std::optional<Error> refusal_;
};

// What init brings.
struct CommInit {
  bool knows_comm = false;  // v11 and later; below there is one context for the process, and comm_id means nothing
  std::uint64_t comm_id = 0;
  int traffic_class = nccl_abi::kTrafficClassUndefined;
  nccl_abi::ProfilerCallback callback = nullptr;  // null below v10
};

// One communicator's view (NCCL v11: init per communicator; below: one for the process).
class CommContext {
 public:
  CommContext(std::shared_ptr<PluginState> plugin, const CommInit& init);
  ~CommContext();
  CommContext(const CommContext&) = delete;
  CommContext& operator=(const CommContext&) = delete;

  const std::shared_ptr<PluginState>& plugin() const { return plugin_; }
  const CommInit& init() const { return init_; }
  // Of this context and no other of the process; from 1.
  std::uint64_t serial() const { return serial_; }
  // Of a connection that is made now: the profiler, which brings the communicator's name and size, was initialised
  // since (NCCL v2.28.9 src/init.cc: net, profiler, then the ring's connections).
  transport::ChannelOptions options() const;
  // Of a connection that is made now, as options().
  Urgencies urgencies() const;

  // Connection attempts between two calls of connect(); NCCL keeps the number in the handle. Abandoned ones end with
  // the context.
  std::uint64_t add_pending(std::unique_ptr<transport::PendingConnect> pending);
  transport::PendingConnect* find_pending(std::uint64_t id);
  void erase_pending(std::uint64_t id);

 private:
  std::shared_ptr<PluginState> plugin_;
  CommInit init_;
  std::uint64_t serial_;
  std::mutex mutex_;
  std::uint64_t next_id_ = 1;
  std::map<std::uint64_t, std::unique_ptr<transport::PendingConnect>> pending_;
};

// The process's state: made by the first user, shared by all, gone with the last.
Result<std::shared_ptr<PluginState>> acquire_plugin(nccl_abi::DebugLogger logger);
// The state if anyone holds it; null before init.
std::shared_ptr<PluginState> current_plugin();

}  // namespace clustar::nccl_plugin
