#include "transport/base/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <sstream>
#include <string_view>
#include <toml.hpp>
#include <utility>

#include "transport/base/environment.h"
#include "transport/base/nearest.h"
#include "transport/base/toml_scan.h"

extern char** environ;

namespace clustar {
namespace {

std::optional<std::string> scalar_text(const toml::value& value) {
  if (value.is_string()) return value.as_string().str;
  if (value.is_integer()) return std::to_string(value.as_integer());
  if (value.is_floating()) return fmt::format("{}", value.as_floating());
  return std::nullopt;
}

template <class Each>
void for_all(Config::Tables tables, Each each) {
  for (const SettingTable* table : tables) {
    for (std::size_t i = 0; i < table->size(); ++i) each(*table, i);
  }
}

}  // namespace

// The setting of which is(info) holds; a null table: there is none.
template <class Is>
std::pair<const SettingTable*, std::size_t> Config::table_of(Is is) const {
  std::pair<const SettingTable*, std::size_t> found{nullptr, 0};
  for_all(tables_, [&](const SettingTable& table, std::size_t i) {
    if (found.first == nullptr && is(table.info(i))) found = {&table, i};
  });
  return found;
}

std::string Config::allowed_instead(const std::string& name, bool is_variable) const {
  std::vector<std::string> all;
  for_all(tables_, [&](const SettingTable& table, std::size_t i) {
    all.push_back(is_variable ? table.info(i).variable() : table.info(i).name);
  });
  if (is_variable) all.emplace_back("CLUSTAR_CONFIG");
  const std::string meant = did_you_mean(name, all);
  if (!meant.empty()) return meant + " 'clustar settings' lists all";
  return fmt::format("; allowed: {}", fmt::join(all, ", "));
}

void Config::set(const std::string& name, const std::string& text, const std::string& source) {
  values_[name] = {text, source};
}

Result<void> Config::set_checked(const SettingTable& table, std::size_t i, const std::string& shown_name,
                                 const std::string& text, const std::string& source) {
  if (!table.allows(i, text)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} = '{}' is not allowed: {}", shown_name, text, table.info(i).allowed));
  }
  set(table.info(i).name, text, source);
  return {};
}

Result<void> Config::apply_file(const std::string& path) {
  const auto wrong = [&](const std::string& why) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("CLUSTAR_CONFIG = '{}': {}", path, why));
  };
  const auto content = read_toml_text(path);
  if (!content) return wrong(content.error().message);
  if (content->size() > kMaxTomlBytes) return wrong(fmt::format("too large; allowed: {} bytes", kMaxTomlBytes));
  if (const auto refused = refuse_toml(*content, "a file of settings")) return wrong("line " + *refused);
  try {
    std::istringstream in(*content);
    const toml::value document = toml::parse(in, path);
    for (const auto& [name, value] : document.as_table()) {
      const auto [table, i] = table_of([&n = name](const SettingInfo& info) { return info.name == n; });
      if (table == nullptr) {
        return fail(ErrorCode::kInvalidArgument,
                    fmt::format("{}: unknown key '{}'{}", path, name, allowed_instead(name, false)));
      }
      const auto text = scalar_text(value);
      if (!text)
        return fail(ErrorCode::kInvalidArgument, fmt::format("{}: '{}' must be a string or a number", path, name));
      const auto applied = set_checked(*table, i, fmt::format("{}: {}", path, name), *text, "CLUSTAR_CONFIG " + path);
      if (!applied) return applied;
    }
  } catch (const std::exception& error) {
    return wrong(error.what());
  }
  return {};
}

Result<void> Config::apply_environment(const std::map<std::string, std::string>& environment) {
  for (const auto& [name, value] : environment) {
    // CLUSTAR_TEST_ and CLUSTAR_NCCL_ tell programs around the plugin where things lie.
    const bool others = name.starts_with("CLUSTAR_TEST_") || name.starts_with("CLUSTAR_NCCL_");
    if (!name.starts_with("CLUSTAR_") || others || name == "CLUSTAR_CONFIG") continue;
    const auto [table, i] = table_of([&n = name](const SettingInfo& info) { return info.variable() == n; });
    if (table == nullptr) {
      return fail(ErrorCode::kInvalidArgument, fmt::format("unknown setting {}{}", name, allowed_instead(name, true)));
    }
    if (const auto applied = set_checked(*table, i, name, value, "environment"); !applied) return applied;
  }
  return {};
}

// What users already set for NCCL counts where its meaning is the same. What we cannot take of it is no error, since
// the same environment works without us: it is named.
void Config::apply_nccl(const std::map<std::string, std::string>& environment) {
  for (const SettingTable* table : tables_) {
    for (const NcclVariable& variable : table->nccl()) {
      const auto given = environment.find(variable.name);
      if (given == environment.end() || given->second.empty()) continue;  // for NCCL, too, empty is not set
      if (variable.setting != nullptr && values_.contains(variable.setting)) continue;
      const auto ours = variable.translate(given->second);
      if (!ours) {
        not_taken_.push_back(
            fmt::format("{} = '{}' is ignored: clustar takes {}", variable.name, given->second, variable.allowed));
      } else if (!ours->empty() && variable.setting != nullptr) {
        set(variable.setting, *ours, variable.name);
      }
    }
    const std::string prefix = table->nccl_prefix();
    if (prefix.empty()) continue;
    for (const auto& [name, value] : environment) {
      const auto is = [&n = name](const NcclVariable& variable) { return variable.name == n; };
      if (!name.starts_with(prefix) || std::any_of(table->nccl().begin(), table->nccl().end(), is)) continue;
      unread_.push_back(name);
    }
  }
}

Result<Config> Config::load_from(Tables tables, const std::map<std::string, std::string>& environment) {
  Config config;
  config.tables_ = tables;
  if (const auto path = environment.find("CLUSTAR_CONFIG"); path != environment.end()) {
    if (const auto applied = config.apply_file(path->second); !applied) return tl::unexpected(applied.error());
  }
  if (const auto applied = config.apply_environment(environment); !applied) return tl::unexpected(applied.error());
  config.apply_nccl(environment);
  return config;
}

std::map<std::string, std::string> environment_that_may_mean_us() {
  std::map<std::string, std::string> environment;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::size_t equals = text.find('=');
    const bool may_mean_us =
        text.starts_with("CLUSTAR_") || text.starts_with("NCCL_") || text.starts_with("FI_CLUSTAR_");
    if (may_mean_us && equals != std::string_view::npos)
      environment.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return environment;
}

Result<Config> Config::load(Tables tables) { return load_from(tables, environment_that_may_mean_us()); }

const std::string* Config::find(const std::string& name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? nullptr : &found->second.text;
}

std::string Config::source(const std::string& name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? "default" : found->second.source;
}

std::vector<std::string> Config::describe() const {
  std::vector<std::string> lines;
  for_all(tables_, [&](const SettingTable& table, std::size_t i) {
    const std::string& name = table.info(i).name;
    lines.push_back(fmt::format("{} = {} ({})", name, table.counts(i, *this), source(name)));
  });
  for (const std::string& name : unread_) lines.push_back(name + " is set, but means nothing to clustar");
  return lines;
}

SharedDigest Config::shared_digest() const {
  SharedDigest digest;
  for_all(tables_, [&](const SettingTable& table, std::size_t i) {
    if (table.info(i).shared) digest.add(table.info(i).variable(), table.counts(i, *this));
  });
  return digest;
}

std::vector<std::string> shared_names(Config::Tables tables) {
  std::vector<std::string> all;
  for_all(tables, [&](const SettingTable& table, std::size_t i) {
    if (table.info(i).shared) all.push_back(table.info(i).variable());
  });
  return all;
}

}  // namespace clustar
