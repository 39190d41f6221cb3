#include "bench/settings/settings_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

namespace clustar::bench::settings {
namespace {

// A bar would end the table's cell.
std::string cell(const std::string& text) {
  std::string escaped;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '|' && (i == 0 || text[i - 1] != '\\')) escaped += '\\';
    escaped += text[i];
  }
  return escaped;
}

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text;
}

// 65536 is easier read as 64K, where that is allowed.
std::string shown_default(const SettingTable& table, std::size_t i) {
  const std::string text = table.counts(i, Config{});
  const auto bytes = setting::number<std::uint32_t>(text, 1024, 1u << 31);
  const bool counts_bytes = table.info(i).allowed.starts_with("bytes");
  return counts_bytes && bytes ? setting::bytes_text(*bytes) : text;
}

}  // namespace

std::vector<Row> rows(const Config& config, const std::string& prefix) {
  std::vector<Row> found;
  const std::string wanted = upper(prefix);
  for (const SettingTable* table : config.tables()) {
    for (std::size_t i = 0; i < table->size(); ++i) {
      const SettingInfo& info = table->info(i);
      if (!upper(info.name).starts_with(wanted) && !info.variable().starts_with(wanted)) continue;
      const std::string plain = shown_default(*table, i);
      found.push_back({info, table->counts(i, config), config.source(info.name),
                       !info.otherwise.empty() ? info.otherwise
                       : plain.empty()         ? "none"
                                               : "`" + plain + "`"});
    }
  }
  return found;
}

std::string to_text(const std::vector<Row>& rows, bool explain) {
  std::string text;
  for (const Row& row : rows) {
    text += fmt::format("{} = {} ({})\n", row.info.name, row.value, row.source);
    if (explain) text += fmt::format("    {}\n    allowed: {}\n", row.info.help, row.info.allowed);
  }
  return text;
}

std::string to_markdown(const std::vector<Row>& rows) {
  std::string text = "| variable | default | allowed | meaning |\n|---|---|---|---|\n";
  for (const Row& row : rows) {
    text += fmt::format("| `{}` | {} | {} | {}{} |\n", row.info.variable(), cell(row.fallback), cell(row.info.allowed),
                        cell(row.info.help), row.info.shared ? ". All ranks need it alike" : "");
  }
  return text;
}

nlohmann::json to_json(const std::vector<Row>& rows) {
  nlohmann::json all = nlohmann::json::array();
  for (const Row& row : rows) {
    all.push_back({{"name", row.info.name},
                   {"variable", row.info.variable()},
                   {"value", row.value},
                   {"source", row.source},
                   {"default", row.fallback},
                   {"allowed", row.info.allowed},
                   {"help", row.info.help},
                   {"shared", row.info.shared}});
  }
  return all;
}

}  // namespace clustar::bench::settings
