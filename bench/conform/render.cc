// How a report is shown: JSON, a table, and the list of checks.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "bench/conform/conform.h"

namespace clustar::bench::conform {
namespace {

constexpr std::size_t kWidth = 120;

std::string group_of(const std::string& name) { return name.substr(0, name.find('.')); }

// Wraps `text` at spaces to lines of kWidth - indent, all but the first indented.
std::string wrap(const std::string& text, std::size_t indent) {
  std::string out;
  std::size_t at = 0;
  while (text.size() - at > kWidth - indent) {
    std::size_t cut = text.rfind(' ', at + kWidth - indent);
    if (cut == std::string::npos || cut <= at) cut = at + kWidth - indent;
    out += text.substr(at, cut - at) + "\n" + std::string(indent, ' ');
    at = text[cut] == ' ' ? cut + 1 : cut;
  }
  return out + text.substr(at);
}

}  // namespace

nlohmann::json to_json(const Report& report) {
  nlohmann::json checks = nlohmann::json::array();
  for (const Line& line : report.lines) {
    checks.push_back({{"name", line.name},
                      {"group", group_of(line.name)},
                      {"rule", line.rule},
                      {"source", line.source},
                      {"version", line.version},
                      {"outcome", to_string(line.finding.outcome)},
                      {"reason", line.finding.reason},
                      {"seconds", line.finding.seconds}});
  }
  nlohmann::json results = {{"plugin", report.plugin},
                            {"exported_versions", report.versions},
                            {"emulated_gpu", report.emulated_gpu},
                            {"passed", report.count(Outcome::kPass)},
                            {"failed", report.count(Outcome::kFail)},
                            {"skipped", report.count(Outcome::kSkip)},
                            {"seconds", report.seconds},
                            {"checks", checks}};
  if (report.nccl) {
    results["nccl"] = {{"version", report.nccl->version},
                       {"library", report.nccl->library},
                       {"device", "emulated"},
                       {"interrupted", report.nccl->interrupted_by != 0}};
  }
  return results;
}

std::string to_table(const Report& report) {
  std::size_t width = 30;
  for (const Line& line : report.lines) width = std::max(width, line.name.size() - group_of(line.name).size() - 1);
  const std::string nccl = report.nccl ? report.nccl->version : "2.28.9";
  std::string out;
  std::string group;
  for (const Line& line : report.lines) {
    if (group_of(line.name) != group) {
      group = group_of(line.name);
      out += fmt::format("\n{}\n", group);
    }
    const std::string table = line.version != 0 ? fmt::format("v{}", line.version) : "-";
    const std::string head = fmt::format("  {:<4}  {:<{}} {:<3} {:>6.2f} s  ", to_string(line.finding.outcome),
                                         line.name.substr(group.size() + 1), width, table, line.finding.seconds);
    out += head + wrap(line.finding.reason, head.size()) + "\n";
    if (line.finding.outcome != Outcome::kFail) continue;
    out += std::string(8, ' ') + wrap(fmt::format("rule: {} (NCCL v{}, {})", line.rule, nccl, line.source), 8);
    out += "\n";
  }
  if (!nccl.empty() && report.nccl) out += fmt::format("\nNCCL {}'s host code, emulated device", nccl);
  return out + fmt::format("\n{}: {} passed, {} failed, {} skipped in {:.1f} s\n", report.plugin,
                           report.count(Outcome::kPass), report.count(Outcome::kFail), report.count(Outcome::kSkip),
                           report.seconds);
}

std::string list_checks(const std::string& only) {
  std::string out;
  for (const Check& check : select(only)) {
    out += fmt::format("{}{}\n    {}\n    NCCL v2.28.9: {}\n", check.name,
                       check.every_version ? "  (every exported version)" : "", check.rule, check.source);
  }
  return out;
}

}  // namespace clustar::bench::conform
