#include "bench/doctor/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace clustar::bench::doctor {
namespace {

auto count(const std::vector<Check>& checks, Outcome outcome) {
  return std::count_if(checks.begin(), checks.end(), [=](const Check& check) { return check.outcome == outcome; });
}

}  // namespace

Check ok(std::string name, std::string evidence) { return {std::move(name), Outcome::kOk, std::move(evidence), {}}; }
Check warning(std::string name, std::string evidence, std::string fix) {
  return {std::move(name), Outcome::kWarning, std::move(evidence), std::move(fix)};
}
Check failed(std::string name, std::string evidence, std::string fix) {
  return {std::move(name), Outcome::kFailed, std::move(evidence), std::move(fix)};
}

const char* to_string(Outcome outcome) {
  switch (outcome) {
    case Outcome::kOk: return "ok";
    case Outcome::kWarning: return "warning";
    case Outcome::kFailed: break;
  }
  return "failed";
}

bool any_failed(const std::vector<Check>& checks) { return count(checks, Outcome::kFailed) > 0; }

nlohmann::json to_json(const std::vector<Check>& checks) {
  nlohmann::json list = nlohmann::json::array();
  for (const Check& check : checks) {
    list.push_back({{"name", check.name},
                    {"outcome", to_string(check.outcome)},
                    {"evidence", check.evidence},
                    {"fix", check.fix.empty() ? nlohmann::json(nullptr) : nlohmann::json(check.fix)}});
  }
  return {{"pass", count(checks, Outcome::kOk)},
          {"warn", count(checks, Outcome::kWarning)},
          {"fail", count(checks, Outcome::kFailed)},
          {"checks", list}};
}

std::string to_text(const std::vector<Check>& checks) {
  std::size_t width = 0;
  for (const Check& check : checks) width = std::max(width, check.name.size());
  std::string text;
  for (const Check& check : checks) {
    text += fmt::format("  {:<7}  {:<{}}  {}\n", to_string(check.outcome), check.name, width, check.evidence);
    if (!check.fix.empty()) text += fmt::format("  {:<7}  {:<{}}  fix: {}\n", "", "", width, check.fix);
  }
  return text;
}

std::string counts(const std::vector<Check>& checks) {
  const auto warnings = count(checks, Outcome::kWarning);
  return fmt::format("{} failed, {} warning{}, {} ok", count(checks, Outcome::kFailed), warnings,
                     warnings == 1 ? "" : "s", count(checks, Outcome::kOk));
}

}  // namespace clustar::bench::doctor
