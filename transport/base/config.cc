#include "transport/base/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>
#include <toml.hpp>
#include <utility>

#include "transport/base/config_ib.h"
#include "transport/base/config_keys.h"
#include "transport/base/config_nccl.h"
#include "transport/base/packet_ios.h"

extern char** environ;

namespace clustar {
namespace {

using namespace config_keys;

const std::vector<std::string>& transports() {
  static const std::vector<std::string> names{"tcp", "mlt", "verbs", "ofi"};
  return names;
}

bool set_require(Config& config, const std::string& text) {
  config.require.clear();
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t bar = std::min(rest.find('|'), rest.size());
    config.require.emplace_back(rest.substr(0, bar));
    if (!one_of(config.require.back(), transports())) return false;
    rest.remove_prefix(std::min(bar + 1, rest.size()));
  }
  return true;
}

bool set_stall_timeout(Config& config, const std::string& text) {
  const auto seconds = number<double>(text, 0, 86400);
  if (!seconds || !std::isfinite(*seconds)) return false;
  config.stall_timeout = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(*seconds));
  return true;
}

bool set_static_deadline(Config& config, const std::string& text) {
  const auto seconds = number<double>(text, 0, 3600);
  if (!seconds || !std::isfinite(*seconds)) return false;
  config.static_deadline = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(*seconds));
  return true;
}

// A share of 1, kept in parts per million.
std::optional<std::uint32_t> share_ppm(const std::string& text, double high) {
  const auto share = number<double>(text, 0, high);
  if (!share || !std::isfinite(*share)) return std::nullopt;
  const auto ppm = static_cast<std::uint32_t>(std::lround(*share * 1e6));
  if (ppm == 0 && *share > 0) return std::nullopt;  // else too little would mean nothing
  return ppm;
}

std::string share_text(std::uint32_t ppm) { return fmt::format("{:g}", ppm / 1e6); }

constexpr double kMaxTolerance = 0.1;
constexpr const char* kTolerances = "0, or a fraction from 0.000001 to 0.1";

std::vector<Key> loss_keys() {
  return {
      {"loss_tolerance", kTolerances,
       [](Config& config, const std::string& text) {
         const auto ppm = share_ppm(text, kMaxTolerance);
         if (ppm) config.loss_tolerance_ppm = *ppm;
         return ppm.has_value();
       },
       [](const Config& config) { return share_text(config.loss_tolerance_ppm); }},
      // The plugin's policy reads these two: here nothing knows what a communicator is.
      text_key("loss_traffic_classes", &Config::loss_traffic_classes, "traffic classes such as 160-167,200"),
      text_key("loss_rules", &Config::loss_rules, "rules such as comm=dp*,bytes=1M-,p=0.01; comm=tp*,p=0"),
      {"loss_warmup", "a number from 0 to 4294967295",
       [](Config& config, const std::string& text) {
         const auto value = number<std::uint32_t>(text, 0, std::numeric_limits<std::uint32_t>::max());
         if (value) config.loss_warmup = *value;
         return value.has_value();
       },
       [](const Config& config) { return std::to_string(config.loss_warmup); }},
      // Shown, and so compared between ranks, as what counts.
      {"loss_critical_tolerance", kTolerances,
       [](Config& config, const std::string& text) {
         config.loss_critical_tolerance_ppm = share_ppm(text, kMaxTolerance);
         return config.loss_critical_tolerance_ppm.has_value();
       },
       [](const Config& config) {
         return share_text(config.loss_critical_tolerance_ppm.value_or(config.loss_tolerance_ppm));
       }},
      {"loss_critical_drop", "a fraction above 0 and up to 1",
       [](Config& config, const std::string& text) {
         const auto value = number<double>(text, std::numeric_limits<double>::min(), 1);
         if (value) config.loss_critical_drop = *value;
         return value.has_value() && std::isfinite(*value);
       },
       [](const Config& config) { return fmt::format("{}", config.loss_critical_drop); }},
      {"loss_trust_profiler", "0 | 1",
       [](Config& config, const std::string& text) {
         config.loss_trust_profiler = text == "1";
         return text == "0" || text == "1";
       },
       [](const Config& config) { return config.loss_trust_profiler ? "1" : "0"; }},
      choice_key("tuner", &Config::tuner, {"on", "off"}),
      text_key("chain_profiler", &Config::chain_profiler, "a path or name of a profiler library, as NCCL takes it"),
  };
}

std::vector<Key> all_keys() {
  std::vector<Key> all{
      choice_key("transport", &Config::transport, {"auto", "tcp", "mlt", "verbs", "ofi"}),
      {"require", "one or more of tcp | mlt | verbs | ofi, joined by |", set_require,
       [](const Config& config) { return fmt::format("{}", fmt::join(config.require, "|")); }},
      text_key("socket_ifname", &Config::socket_ifname, "NCCL's syntax: prefix,prefix | =name,name | ^prefix"),
      text_key("control_ifname", &Config::control_ifname, "NCCL's syntax: prefix,prefix | =name,name | ^prefix"),
      choice_key("socket_family", &Config::socket_family, {"any", "ipv4", "ipv6"}),
      {"tcp_sockets", "a number from 1 to 16",
       [](Config& config, const std::string& text) {
         const auto value = number<int>(text, 1, 16);
         if (value) config.tcp_sockets = *value;
         return value.has_value();
       },
       [](const Config& config) { return std::to_string(config.tcp_sockets); }},
      bytes_key("tcp_eager_bytes", &Config::tcp_eager_bytes, 0, 1 << 20),
      // The lower bound keeps small receives, whose clear-to-send may wait for company, from exhausting the window.
      bytes_key("tcp_window_bytes", &Config::tcp_window_bytes, 128 << 10, 64 << 20),
      bytes_key("tcp_chunk_bytes", &Config::tcp_chunk_bytes, 4 << 10, 64 << 20),
      bytes_key("tcp_notsent_bytes", &Config::tcp_notsent_bytes, 0, 1 << 30),
      text_key("tcp_congestion", &Config::tcp_congestion, "a name in tcp_available_congestion_control"),
      choice_key("send_order", &Config::send_order, {"fifo", "class"}),
      number_key("send_ahead_us", &Config::send_ahead_us, 0, 100'000, " (microseconds of the line; 0: no bound)"),
      number_key("job", &Config::job, 0, std::numeric_limits<int>::max()),
      choice_key("engine", &Config::engine, {"auto", "inline", "thread"}),
      {"psk_file", "the path of a file that only its owner may read",
       [](Config& config, const std::string& text) {
         config.psk_file = text;
         return !text.empty();  // which would pass for no protection
       },
       [](const Config& config) { return config.psk_file; }},
      choice_key("psk_mode", &Config::psk_mode, {"authenticate", "encrypt"}),
      {"stall_timeout", "seconds from 0 (never) to 86400", set_stall_timeout,
       [](const Config& config) {
         return fmt::format("{:g}", std::chrono::duration<double>(config.stall_timeout).count());
       }},
      choice_key("gdr", &Config::gdr, {"auto", "off", "staged"}),
      switch_key("gdr_emulate", &Config::gdr_emulate),
      // The registry reads it: here nothing knows what faults there are.
      text_key("inject_faults", &Config::inject_faults, "faults such as loss=0.01"),
      {"static_deadline", "seconds from 0 (never) to 3600", set_static_deadline,
       [](const Config& config) {
         return fmt::format("{:g}", std::chrono::duration<double>(config.static_deadline).count());
       }},
  };
  for (Key& key : ib_keys()) all.push_back(std::move(key));
  for (Key& key : loss_keys()) all.push_back(std::move(key));
  return all;
}

const std::vector<Key>& keys() {
  static const std::vector<Key> all = all_keys();
  return all;
}

std::string variable_of(const Key& key) {
  std::string name = "CLUSTAR_" + key.name;
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::toupper(c); });
  return name;
}

std::string allowed_names(bool as_variables) {
  std::vector<std::string> names;
  for (const Key& key : keys()) names.push_back(as_variables ? variable_of(key) : key.name);
  if (as_variables) names.emplace_back("CLUSTAR_CONFIG");
  return fmt::format("{}", fmt::join(names, ", "));
}

Result<void> apply(Config& config, const Key& key, const std::string& shown_name, const std::string& value,
                   const std::string& source) {
  if (!key.set(config, value)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} = '{}' is not allowed: {}", shown_name, value, key.allowed));
  }
  config.sources[key.name] = source;
  return {};
}

std::optional<std::string> scalar_text(const toml::value& value) {
  if (value.is_string()) return value.as_string().str;
  if (value.is_integer()) return std::to_string(value.as_integer());
  if (value.is_floating()) return fmt::format("{}", value.as_floating());
  return std::nullopt;
}

Result<void> apply_file(Config& config, const std::string& path) {
  try {
    const toml::value document = toml::parse(path);
    for (const auto& [name, value] : document.as_table()) {
      const auto key = std::find_if(keys().begin(), keys().end(), [&n = name](const Key& k) { return k.name == n; });
      if (key == keys().end()) {
        return fail(ErrorCode::kInvalidArgument,
                    fmt::format("{}: unknown key '{}'; allowed: {}", path, name, allowed_names(false)));
      }
      const auto text = scalar_text(value);
      if (!text)
        return fail(ErrorCode::kInvalidArgument, fmt::format("{}: '{}' must be a string or a number", path, name));
      const auto applied = apply(config, *key, fmt::format("{}: {}", path, name), *text, "CLUSTAR_CONFIG " + path);
      if (!applied) return applied;
    }
  } catch (const std::exception& error) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("CLUSTAR_CONFIG = '{}': {}", path, error.what()));
  }
  return {};
}

Result<void> apply_environment(Config& config, const std::map<std::string, std::string>& environment) {
  for (const auto& [name, value] : environment) {
    if (!name.starts_with("CLUSTAR_") || name.starts_with("CLUSTAR_TEST_") || name == "CLUSTAR_CONFIG") continue;
    const auto key =
        std::find_if(keys().begin(), keys().end(), [&n = name](const Key& k) { return variable_of(k) == n; });
    if (key == keys().end()) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("unknown setting {}; allowed: {}", name, allowed_names(true)));
    }
    if (const auto applied = apply(config, *key, name, value, "environment"); !applied) return applied;
  }
  return {};
}

// What users already set for NCCL counts where its meaning is the same. What we cannot take of it is no error, since
// the same environment works without us: it is named.
void apply_nccl(Config& config, const std::map<std::string, std::string>& environment) {
  for (const NcclVariable& variable : nccl_variables()) {
    const auto set = environment.find(variable.name);
    if (set == environment.end() || set->second.empty()) continue;  // for NCCL, too, empty is not set
    if (variable.key != nullptr && config.sources.contains(variable.key)) continue;
    const auto ours = variable.translate(set->second);
    if (!ours) {
      config.not_taken.push_back(
          fmt::format("{} = '{}' is ignored: clustar takes {}", variable.name, set->second, variable.allowed));
      continue;
    }
    if (ours->empty()) continue;
    const auto key = std::find_if(keys().begin(), keys().end(), [&](const Key& k) { return k.name == variable.key; });
    if (key != keys().end() && key->set(config, *ours)) config.sources[key->name] = variable.name;
  }
  for (const auto& [name, value] : environment) {
    const auto known = [&n = name](const NcclVariable& variable) { return variable.name == n; };
    if (!name.starts_with("NCCL_IB_") || std::any_of(nccl_variables().begin(), nccl_variables().end(), known)) continue;
    config.unread.push_back(name);
  }
}

}  // namespace

Result<Config> Config::load_from(const std::map<std::string, std::string>& environment) {
  Config config;
  if (const auto path = environment.find("CLUSTAR_CONFIG"); path != environment.end()) {
    if (const auto applied = apply_file(config, path->second); !applied) return tl::unexpected(applied.error());
  }
  if (const auto applied = apply_environment(config, environment); !applied) return tl::unexpected(applied.error());
  apply_nccl(config, environment);
  if (const auto sound = config.check(); !sound) return tl::unexpected(sound.error());
  return config;
}

std::span<const char* const> Config::shared_keys() {
  static constexpr std::array keys{"CLUSTAR_LOSS_TOLERANCE",
                                   "CLUSTAR_LOSS_TRAFFIC_CLASSES",
                                   "CLUSTAR_LOSS_RULES",
                                   "CLUSTAR_LOSS_WARMUP",
                                   "CLUSTAR_LOSS_CRITICAL_TOLERANCE",
                                   "CLUSTAR_LOSS_CRITICAL_DROP",
                                   "CLUSTAR_LOSS_TRUST_PROFILER",
                                   "CLUSTAR_TUNER"};
  static_assert(keys.size() <= std::tuple_size_v<SharedDigests>);
  return keys;
}

SharedDigests Config::shared_digests() const {
  SharedDigests digests{};
  std::size_t next = 0;
  for (const char* name : shared_keys()) {
    const auto key = std::find_if(keys().begin(), keys().end(), [&](const Key& k) { return variable_of(k) == name; });
    std::uint32_t digest = 2166136261u;  // FNV-1a
    if (key != keys().end()) {
      for (const char c : key->get(*this)) digest = (digest ^ static_cast<unsigned char>(c)) * 16777619u;
    }
    digests[next++] = digest;
  }
  return digests;
}

bool Config::only_mlt() const {
  if (transport != "auto") return transport == "mlt";
  return !psk_file.empty() || require == std::vector<std::string>{"mlt"};
}

std::string Config::disabled_by() const {
  const auto source = sources.find("ib_disable");
  return source != sources.end() && source->second == "NCCL_IB_DISABLE" ? "NCCL_IB_DISABLE" : "CLUSTAR_IB_DISABLE";
}

Result<void> Config::check() const {
  if (tcp_eager_bytes > tcp_window_bytes) {
    return fail(ErrorCode::kInvalidArgument, "tcp_eager_bytes must not exceed tcp_window_bytes");
  }
  if (!inject_faults.empty() && !only_mlt()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("inject_faults works with mlt only, and the transport is {}; set CLUSTAR_TRANSPORT=mlt or "
                            "unset CLUSTAR_INJECT_FAULTS",
                            transport));
  }
  if (static_deadline > Duration::zero() && !only_mlt()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("static_deadline works with mlt only, and the transport is {}; set CLUSTAR_TRANSPORT=mlt "
                            "or unset CLUSTAR_STATIC_DEADLINE",
                            transport));
  }
  if (io != "udp" && !only_mlt()) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("io={} is what carries mlt's packets, and the transport is {}; set CLUSTAR_TRANSPORT=mlt or "
                    "unset CLUSTAR_IO",
                    io, transport));
  }
  if (!control_ifname.empty() && !only_mlt()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("control_ifname is of mlt's connections, and the transport is {}; set "
                            "CLUSTAR_TRANSPORT=mlt or unset CLUSTAR_CONTROL_IFNAME",
                            transport));
  }
  const PacketIoKind* kind = packet_io_kind(io);
  if (kind != nullptr && kind->rdma && ib_disable) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("io={} needs RDMA NICs, and {} forbids them; set CLUSTAR_IB_DISABLE=0 or unset CLUSTAR_IO",
                            io, disabled_by()));
  }
  if (sources.contains("psk_mode") && psk_file.empty()) {
    return fail(ErrorCode::kInvalidArgument, "psk_mode protects nothing without psk_file: set CLUSTAR_PSK_FILE, too");
  }
  return {};
}

Result<Config> Config::load() {
  std::map<std::string, std::string> environment;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::size_t equals = text.find('=');
    const bool ours = text.starts_with("CLUSTAR_") || text.starts_with("NCCL_SOCKET_") || text.starts_with("NCCL_IB_");
    if (ours && equals != std::string_view::npos) environment.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return load_from(environment);
}

std::vector<std::string> Config::describe() const {
  std::vector<std::string> lines;
  for (const Key& key : keys()) {
    const auto source = sources.find(key.name);
    lines.push_back(
        fmt::format("{} = {} ({})", key.name, key.get(*this), source == sources.end() ? "default" : source->second));
  }
  for (const std::string& name : unread) lines.push_back(name + " is set, but means nothing to clustar");
  return lines;
}

}  // namespace clustar
