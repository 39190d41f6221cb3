#include "coflow/control/daemon/toml_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <toml.hpp>
#include <utility>

#include "transport/base/toml_scan.h"

namespace clustar::coflow::control {
namespace {

constexpr long long kMostMbps = 1'000'000'000;
constexpr std::uint64_t kBytesPerMbit = 125'000;
constexpr const char* kHosts = "hosts: must be a list of names, as [\"node-1\", \"node-2\"]";

// Carries "LINE: message" out of the reader; never leaves this file.
class WrongFile : public std::runtime_error {
 public:
  WrongFile(const toml::value& where, const std::string& message)
      : std::runtime_error(fmt::format("{}: {}", where.location().line(), message)) {}
};

// What `read` makes of the file's table.
template <class Read>
auto read_toml(const std::string& path, const std::string& what, const Read& read)
    -> Result<decltype(read(toml::value()))> {
  const auto wrong = [&](const std::string& message) {
    return fail(ErrorCode::kInvalidArgument, path + ":" + message);
  };
  const auto content = read_toml_text(path);
  if (!content) return fail(ErrorCode::kInvalidArgument, content.error().message);
  if (const auto refused = refuse_toml(*content, what)) return wrong(*refused);
  try {
    std::istringstream in(*content);
    return read(toml::parse(in, path));
  } catch (const WrongFile& error) {
    return wrong(error.what());
  } catch (const std::exception& error) {
    return wrong(fmt::format(" {}", error.what()));
  }
}

void read_leaf(const std::string& name, const toml::value& leaf, CoordinatorOptions& into) {
  const std::string where = "leaf." + name;
  if (!leaf.is_table()) throw WrongFile(leaf, where + ": must be a table with hosts and uplink_mbps");
  const auto& keys = leaf.as_table();
  for (const auto& [key, value] : keys) {
    if (key == "hosts" || key == "uplink_mbps") continue;
    throw WrongFile(value, fmt::format("{}: unknown key '{}'; allowed: hosts, uplink_mbps", where, key));
  }
  const auto hosts = keys.find("hosts"), uplink = keys.find("uplink_mbps");
  if (hosts == keys.end() || uplink == keys.end()) {
    throw WrongFile(leaf, fmt::format("{}: {} is missing", where, hosts == keys.end() ? "hosts" : "uplink_mbps"));
  }
  if (!uplink->second.is_integer() || uplink->second.as_integer() < 1 || uplink->second.as_integer() > kMostMbps) {
    throw WrongFile(uplink->second,
                    fmt::format("{}: uplink_mbps: allowed: 1 to {}, of all its uplinks together", where, kMostMbps));
  }
  into.topology.uplinks[name] = static_cast<std::uint64_t>(uplink->second.as_integer()) * kBytesPerMbit;
  if (!hosts->second.is_array()) throw WrongFile(hosts->second, where + ": " + kHosts);
  for (const toml::value& host : hosts->second.as_array()) {
    if (!host.is_string() || host.as_string().str.empty()) throw WrongFile(host, where + ": " + kHosts);
    const auto [found, added] = into.topology.leaves.emplace(host.as_string().str, name);
    if (added) continue;
    throw WrongFile(host,
                    fmt::format("{}: '{}' is at leaf '{}', too; a host has one", where, found->first, found->second));
  }
}

int read_leaves(const toml::value& document, CoordinatorOptions& into) {
  for (const auto& [key, value] : document.as_table()) {
    if (key != "leaf") throw WrongFile(value, fmt::format("unknown key '{}'; allowed: [leaf.NAME]", key));
  }
  const auto leaves = document.as_table().find("leaf");
  if (leaves == document.as_table().end() || !leaves->second.is_table() || leaves->second.as_table().empty()) {
    throw WrongFile(document, "there is no [leaf.NAME]");
  }
  for (const auto& [name, leaf] : leaves->second.as_table()) read_leaf(name, leaf, into);
  return 0;
}

std::optional<std::string> text_of(const toml::value& value) {
  if (value.is_string()) return value.as_string().str;
  if (value.is_integer()) return std::to_string(value.as_integer());
  if (value.is_floating()) return fmt::format("{}", value.as_floating());
  if (value.is_boolean()) return value.as_boolean() ? "true" : "false";
  return std::nullopt;
}

FileOption read_option(const std::string& name, const toml::value& value) {
  FileOption option{name, static_cast<int>(value.location().line()), value.is_array(), {}};
  const auto add = [&](const toml::value& one) {
    const auto text = text_of(one);
    if (!text) throw WrongFile(one, name + ": must be a text, a number, true, false, or a list of them");
    option.values.push_back(*text);
  };
  if (!option.list) add(value);
  if (option.list) std::for_each(value.as_array().begin(), value.as_array().end(), add);
  return option;
}

}  // namespace

Result<void> read_topology(const std::string& path, CoordinatorOptions& into) {
  const auto done = read_toml(path, "a topology", [&](const toml::value& file) { return read_leaves(file, into); });
  if (!done) return tl::unexpected(done.error());
  return {};
}

Result<std::vector<FileOption>> read_option_file(const std::string& path) {
  return read_toml(path, "options", [](const toml::value& file) {
    std::vector<FileOption> options;
    for (const auto& [name, value] : file.as_table()) options.push_back(read_option(name, value));
    // The table has no order of its own.
    std::sort(options.begin(), options.end(), [](const auto& a, const auto& b) { return a.line < b.line; });
    return options;
  });
}

}  // namespace clustar::coflow::control
