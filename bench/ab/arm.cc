#include "bench/ab/arm.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "bench/trainer/paraexpress_options.h"
#include "nccl_plugin/settings/all_settings.h"

extern char** environ;

namespace clustar::bench::ab {
namespace {

constexpr const char* kCongestion = "CLUSTAR_TCP_CONGESTION";

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  if (text.empty()) return parts;
  parts.emplace_back();
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 1 < text.size() && text[i + 1] == ',') {
      parts.back() += text[++i];
    } else if (text[i] == ',') {
      parts.emplace_back();
    } else {
      parts.back() += text[i];
    }
  }
  return parts;
}

bool is_variable(const std::string& name) {
  const auto fits = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; };
  return !name.empty() && std::isdigit(static_cast<unsigned char>(name[0])) == 0 &&
         std::all_of(name.begin(), name.end(), fits);
}

std::string default_name(const Arm& arm, bool own_plugin) {
  if (arm.by_ps()) return arm.settings.empty() ? "ps-2018" : "ps-2018 " + to_string(arm.settings);
  Settings all = arm.settings;
  all.insert(arm.options.begin(), arm.options.end());
  const std::string settings = to_string(all);
  const std::string file = own_plugin ? "" : std::filesystem::path(arm.plugin).filename().string();
  if (settings.empty() && file.empty()) return "defaults";
  return file + (file.empty() || settings.empty() ? "" : " ") + settings;
}

// Its baseline has what the kernel gives to TCP: a setting would say what is not so.
Result<void> check_ps(const Arm& arm) {
  if (!arm.by_ps()) return {};
  if (!arm.plugin.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                "plugin= and collective=ps exclude each other: the parameter server opens no plugin");
  }
  for (const auto& [name, value] : arm.settings) {
    if (!name.starts_with("CLUSTAR_") && !name.starts_with("NCCL_")) continue;
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}={} has no effect with collective=ps, which has the kernel's TCP; allowed: settings of "
                            "neither CLUSTAR_ nor NCCL_",
                            name, value));
  }
  return {};
}

Result<void> check_helpers(const Arm& arm) {
  const auto found = arm.options.find("helpers");
  if (found == arm.options.end()) return {};
  const auto count = trainer::helpers_of(found->second);
  return count ? Result<void>() : tl::unexpected(count.error());
}

// Takes what is of `clustar train` out of the settings.
Result<void> take_options(Arm& arm) {
  for (const char* name : {"collective", "plan", "regions", "helpers"}) {
    if (auto node = arm.settings.extract(name); !node.empty()) arm.options.insert(std::move(node));
  }
  // An option of `clustar train` that is none of an arm would be a variable that nobody reads.
  for (const auto& [name, value] : arm.settings) {
    if (std::islower(static_cast<unsigned char>(name[0])) == 0) continue;
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("{}={}: allowed in small letters: plugin, collective, plan, regions, helpers; everything else "
                    "is an environment variable, as CLUSTAR_TRANSPORT=mlt",
                    name, value));
  }
  const bool by_paraexpress = arm.by_paraexpress();
  const auto collective = arm.options.find("collective");
  if (collective != arm.options.end() && arm.opens_plugin() && collective->second != "proxy") {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("collective={}: allowed: proxy (a net plugin, the default), paraexpress, ps (a parameter "
                            "server as of 2018)",
                            collective->second));
  }
  for (const char* name : {"plan", "regions", "helpers"}) {
    if (by_paraexpress || arm.options.count(name) == 0) continue;
    return fail(ErrorCode::kInvalidArgument, fmt::format("{}= is for ParaExpress; add collective=paraexpress", name));
  }
  if (by_paraexpress && !arm.plugin.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                "plugin= and collective=paraexpress exclude each other: ParaExpress opens no plugin");
  }
  if (const auto ok = check_ps(arm); !ok) return ok;
  if (const auto ok = check_helpers(arm); !ok) return ok;
  // Ranks may be started elsewhere.
  std::error_code error;
  if (const auto found = arm.options.find("regions"); found != arm.options.end()) {
    if (const auto whole = std::filesystem::absolute(found->second, error); !error) found->second = whole.string();
  }
  return {};
}

Result<void> find_plugin(Arm& arm) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(arm.plugin, error)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("there is no plugin '{}'; name an NCCL net plugin (.so) with plugin=PATH", arm.plugin));
  }
  if (const auto whole = std::filesystem::absolute(arm.plugin, error); !error) arm.plugin = whole.string();
  return {};
}

}  // namespace

bool Arm::by_paraexpress() const {
  const auto collective = options.find("collective");
  return collective != options.end() && collective->second == "paraexpress";
}

bool Arm::by_ps() const {
  const auto collective = options.find("collective");
  return collective != options.end() && collective->second == "ps";
}

int Arm::helpers() const {
  const auto found = options.find("helpers");
  return found == options.end() ? 0 : trainer::helpers_of(found->second).value_or(0);
}

Result<Settings> parse_settings(const std::string& text) {
  Settings settings;
  for (const std::string& part : split(text)) {
    const std::size_t equals = part.find('=');
    const std::string key = part.substr(0, equals);
    if (equals == std::string::npos || !is_variable(key)) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("'{}' is no setting; allowed: NAME=VALUE of an environment variable, or plugin=PATH, "
                              "separated by commas (\\, is a comma in a value)",
                              part));
    }
    if (!settings.emplace(key, part.substr(equals + 1)).second) {
      return fail(ErrorCode::kInvalidArgument, fmt::format("'{}' is set twice", key));
    }
  }
  return settings;
}

Result<Arm> parse_arm(const std::string& text, const std::string& name, const std::string& plugin) {
  auto settings = parse_settings(text);
  if (!settings) return tl::unexpected(settings.error());
  Arm arm{.name = name, .settings = std::move(*settings), .plugin = {}};
  if (auto node = arm.settings.extract("plugin"); !node.empty()) arm.plugin = std::move(node.mapped());
  const bool own_plugin = arm.plugin.empty();
  if (const auto ok = take_options(arm); !ok) return tl::unexpected(ok.error());
  if (arm.opens_plugin()) {
    if (own_plugin) arm.plugin = plugin;
    if (const auto ok = find_plugin(arm); !ok) return tl::unexpected(ok.error());
  }
  if (arm.name.empty()) arm.name = default_name(arm, own_plugin);
  return arm;
}

Result<void> check_settings(const Arm& arm, const Settings& inherited) {
  Settings all = inherited;
  for (const auto& [name, value] : arm.settings) all[name] = value;
  const auto config = load_settings(all);
  if (config) return {};
  return fail(ErrorCode::kInvalidArgument, config.error().message);
}

Result<void> check_options(const Arm& arm, int ranks) {
  if (!arm.by_paraexpress()) return {};
  const auto value = [&](const char* name, const char* otherwise) {
    const auto found = arm.options.find(name);
    return found == arm.options.end() ? std::string(otherwise) : found->second;
  };
  const auto plan = trainer::plan_choice_of(value("plan", "auto"));
  if (!plan) return tl::unexpected(plan.error());
  trainer::ParaexpressOptions options{.plan = *plan, .regions_path = value("regions", ""), .helpers = arm.helpers()};
  return trainer::complete(options, ranks);
}

Settings inherited_settings() {
  Settings found;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    for (const std::string_view prefix : {"CLUSTAR_", "NCCL_", "OMP_", "ONEDNN_", "DNNL_"}) {
      if (text.starts_with(prefix)) found[std::string(text.substr(0, equals))] = text.substr(equals + 1);
    }
  }
  return found;
}

Congestion congestion_of(const Arm& arm, const Settings& inherited, const std::string& kernel_default) {
  if (arm.by_ps()) return {kernel_default, false};
  for (const Settings* settings : {&arm.settings, &inherited}) {
    const auto transport = settings->find("CLUSTAR_TRANSPORT");
    if (transport == settings->end()) continue;
    if (transport->second == "mlt") return {"mlt's own", true};
    if (transport->second == "ofi") return {kernel_default, false};  // libfabric's sockets, of which we set nothing
    break;
  }
  for (const Settings* settings : {&arm.settings, &inherited}) {
    const auto found = settings->find(kCongestion);
    if (found != settings->end() && !found->second.empty()) return {found->second, true};
  }
  return {kernel_default, false};
}

std::string congestion_warning(const std::string& arm, const std::string& kernels, const nlohmann::json& transport) {
  const auto over = transport.is_object() ? transport.value("transport", nlohmann::json()) : nlohmann::json();
  const bool by_ofi = over == "ofi";
  if (!by_ofi && over != "kernel TCP") {
    return fmt::format(
        "'{}' leaves TCP's congestion control to the kernel ({}) or its plugin; set "
        "CLUSTAR_TCP_CONGESTION in both arms",
        arm, kernels);
  }
  return fmt::format(
      "'{}' leaves TCP's congestion control to the kernel ({}), as {} does; give the other arm "
      "CLUSTAR_TCP_CONGESTION={} if it runs over TCP",
      arm, kernels, by_ofi ? "libfabric" : "a parameter server of 2018", kernels);
}

std::string to_string(const Settings& settings) {
  std::string text;
  for (const auto& [name, value] : settings) text += fmt::format("{}{}={}", text.empty() ? "" : " ", name, value);
  return text;
}

}  // namespace clustar::bench::ab
