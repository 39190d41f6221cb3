#include "bench/ab/arm.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <string_view>
#include <vector>

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
  const std::string settings = to_string(arm.settings);
  const std::string file = own_plugin ? "" : std::filesystem::path(arm.plugin).filename().string();
  if (settings.empty() && file.empty()) return "defaults";
  return file + (file.empty() || settings.empty() ? "" : " ") + settings;
}

}  // namespace

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
  if (own_plugin) arm.plugin = plugin;
  std::error_code error;
  if (!std::filesystem::is_regular_file(arm.plugin, error)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("there is no plugin '{}'; name an NCCL net plugin (.so) with plugin=PATH", arm.plugin));
  }
  if (const auto whole = std::filesystem::absolute(arm.plugin, error); !error) arm.plugin = whole.string();
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
  for (const Settings* settings : {&arm.settings, &inherited}) {
    const auto transport = settings->find("CLUSTAR_TRANSPORT");
    if (transport == settings->end()) continue;
    if (transport->second == "mlt") return {"mlt's own", true};
    break;
  }
  for (const Settings* settings : {&arm.settings, &inherited}) {
    const auto found = settings->find(kCongestion);
    if (found != settings->end() && !found->second.empty()) return {found->second, true};
  }
  return {kernel_default, false};
}

std::string to_string(const Settings& settings) {
  std::string text;
  for (const auto& [name, value] : settings) text += fmt::format("{}{}={}", text.empty() ? "" : " ", name, value);
  return text;
}

}  // namespace clustar::bench::ab
