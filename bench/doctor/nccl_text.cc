// The report of `clustar doctor nccl`, for people and for tools.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "bench/doctor/nccl_checks.h"
#include "bench/doctor/nccl_report.h"

namespace clustar::bench::doctor {
namespace {

using nlohmann::json;

constexpr const char* kConfig = "config: ";

// Without the "NET/clustar: " that all of a plugin's lines begin with in NCCL's log.
std::string bare(const std::string& line) {
  const std::size_t at = line.starts_with("NET/") ? line.find(": ") : std::string::npos;
  return at == std::string::npos ? line : line.substr(at + 2);
}

std::string banner_text(const Banner& banner, bool all) {
  std::string text = fmt::format("What the plugin says at its start ({}), as NCCL_DEBUG=INFO shows it:\n", banner.path);
  int defaults = 0;
  for (const BannerLine& line : banner.lines) {
    const bool is_default = bare(line.text).starts_with(kConfig) && line.text.ends_with(" (default)");
    if (is_default && !all) {
      ++defaults;
      continue;
    }
    text += fmt::format("  {}{}\n", line.warning ? "WARN " : "", line.text);
  }
  if (!banner.failure.empty()) text += fmt::format("  {}\n", banner.failure);
  if (defaults > 0) text += fmt::format("  and {} settings at their default (--all)\n", defaults);
  return text;
}

std::string verdict(const NcclFacts& facts, const std::vector<Check>& checks) {
  const Search* const chosen = facts.chosen();
  if (chosen == nullptr || !chosen->clustar) return "NCCL would not use clustar here";
  return any_failed(checks) ? "NCCL would load clustar, but something above fails" : "NCCL would use clustar";
}

json search_json(const Search& search) {
  json tried = json::array();
  for (const Tried& one : search.tried) tried.push_back({{"name", one.name}, {"error", one.error}});
  return {{"entry", search.entry},      {"tried", tried},      {"path", search.path},
          {"tables", search.versions},  {"name", search.name}, {"clustar", search.clustar},
          {"build_id", search.build_id}};
}

}  // namespace

std::vector<BannerSetting> settings_of(const Banner& banner) {
  std::vector<BannerSetting> settings;
  for (const BannerLine& line : banner.lines) {
    const std::string text = bare(line.text);
    const std::size_t equals = text.find(" = ");
    const std::size_t source = text.rfind(" (");
    if (!text.starts_with(kConfig) || equals == std::string::npos || !text.ends_with(")")) continue;
    if (source == std::string::npos || source < equals + 3) continue;
    const std::size_t from = std::string(kConfig).size();
    settings.push_back({text.substr(from, equals - from), text.substr(equals + 3, source - equals - 3),
                        text.substr(source + 2, text.size() - source - 3)});
  }
  return settings;
}

std::string to_text(const NcclFacts& facts, const std::vector<Check>& checks, bool all) {
  std::string text = "Would NCCL use clustar here? By the rules of NCCL 2.28.9, in this environment:\n";
  text += to_text(checks);
  if (!facts.banner.path.empty()) text += "\n" + banner_text(facts.banner, all);
  return text + fmt::format("\n{}: {}.\n", verdict(facts, checks), counts(checks));
}

json to_json(const NcclFacts& facts, const std::vector<Check>& checks) {
  const Search* const chosen = facts.chosen();
  json variables = json::object();
  for (const auto& [name, value] : facts.variables.all()) {
    const bool shown = name.starts_with("NCCL_") || name.starts_with("CLUSTAR_") || name == "LD_LIBRARY_PATH";
    if (shown) variables[name] = {{"value", value.text}, {"source", value.source}};
  }
  json lines = json::array();
  for (const BannerLine& line : facts.banner.lines) {
    lines.push_back({{"level", line.warning ? "warn" : "info"}, {"text", line.text}});
  }
  json settings = json::object();
  for (const BannerSetting& one : settings_of(facts.banner)) {
    settings[one.name] = {{"value", one.value}, {"source", one.source}};
  }
  json net = json::array();
  for (const Search& one : facts.net) net.push_back(search_json(one));
  json results = to_json(checks);
  results.update({{"host", facts.host},
                  {"verdict", verdict(facts, checks)},
                  {"uses_clustar", chosen != nullptr && chosen->clustar},
                  {"plugin", chosen == nullptr ? json(nullptr) : search_json(*chosen)},
                  {"searched", net},
                  {"version", version_of(facts.banner)},
                  {"transport", transport_of(facts.banner)},
                  {"devices", facts.banner.devices},
                  {"settings", settings},
                  {"banner", lines},
                  {"variables", variables},
                  {"glibc", to_string(facts.glibc)},
                  {"glibc_needed", facts.needed ? json(to_string(*facts.needed)) : json(nullptr)},
                  {"rdma_devices", facts.rdma_devices},
                  {"memlock_bytes", facts.memlock_bytes ? json(*facts.memlock_bytes) : json(nullptr)}});
  return results;
}

}  // namespace clustar::bench::doctor
