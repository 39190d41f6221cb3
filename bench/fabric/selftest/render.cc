#include "bench/fabric/selftest/render.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

namespace clustar::bench::fabric::selftest {
namespace {

std::string number(double value, const std::string& unit) {
  if (unit == "bit/s") return fmt::format("{:.2f}M", value / 1e6);
  if (value == std::floor(value) && std::abs(value) < 1e15) return fmt::format("{:.0f}", value);
  return fmt::format("{:.4g}", value);
}

std::string line(const Check& check) {
  if (!check.measured) {
    return fmt::format("{:<16}{:<46}{:>10}{:>11}{:>20} {:<12}{}\n", check.name, check.what, "-", "-", "-", "",
                       to_string(check.outcome));
  }
  const std::string low = number(check.low, check.unit), high = number(check.high, check.unit);
  return fmt::format("{:<16}{:<46}{:>10}{:>11}{:>20} {:<12}{}\n", check.name, check.what,
                     number(check.asked, check.unit), number(*check.measured, check.unit),
                     low == high ? low : fmt::format("{} - {}", low, high), check.unit, to_string(check.outcome));
}

// What did not pass, once for each reason, since one may hold for half of the checks. In the order of the rows.
std::vector<std::pair<std::string, std::string>> by_reason(const Report& report) {
  std::vector<std::pair<std::string, std::string>> all;
  for (const Check& check : report.checks) {
    if (check.reason.empty()) continue;
    const std::string name = fmt::format("{}{}{}", check.name, check.what.empty() ? "" : ", ", check.what);
    const std::string begin = fmt::format("{} ", to_string(check.outcome));
    const auto known = std::find_if(all.begin(), all.end(), [&](const auto& one) {
      return one.first == check.reason && one.second.starts_with(begin);
    });
    if (known == all.end()) {
      all.emplace_back(check.reason, begin + name);
    } else {
      known->second += "; " + name;
    }
  }
  return all;
}

}  // namespace

std::string text(const Report& report) {
  const Options& options = report.options;
  std::string all = fmt::format(
      "selftest of the fabric: {} per port, buffer {} B, MTU {}{}\n\n{:<16}{:<46}{:>10}{:>11}{:>20} {:<12}{}\n",
      rate_text(options.rate_bps), options.buffer_bytes, options.mtu, options.quick ? ", quick" : "", "check", "what",
      "asked", "measured", "allowed", "unit", "outcome");
  for (const Check& check : report.checks) all += line(check);
  all += "\n";
  for (const auto& [reason, rows] : by_reason(report)) all += fmt::format("{}: {}\n", rows, reason);
  all +=
      fmt::format("{} passed, {} failed, {} skipped in {:.1f} s; load average {:.1f}, others used {:.2f} of {} cores\n",
                  report.count(Outcome::kPassed), report.count(Outcome::kFailed), report.count(Outcome::kSkipped),
                  report.seconds, report.load_average, report.other_cores, report.cores);
  if (options.strict && report.count(Outcome::kSkipped) > 0) {
    all += fmt::format("strict: the {} skipped rows count as failed\n", report.count(Outcome::kSkipped));
  }
  if (const auto names = report.without_row(); !names.empty()) {
    all += fmt::format("{}no row of {}\n", options.strict ? "strict: " : "", fmt::join(names, ", "));
  }
  return all;
}

nlohmann::json to_json(const Report& report) {
  nlohmann::json checks = nlohmann::json::array();
  for (const Check& one : report.checks) {
    nlohmann::json json = {{"name", one.name},
                           {"what", one.what},
                           {"asked", nullptr},
                           {"measured", nullptr},
                           {"allowed", nullptr},
                           {"unit", one.unit},
                           {"outcome", to_string(one.outcome)},
                           {"reason", one.reason}};
    if (one.measured) {
      json["asked"] = one.asked;
      json["measured"] = *one.measured;
      json["allowed"] = {one.low, one.high};
    }
    checks.push_back(json);
  }
  const Options& options = report.options;
  return {{"passed", report.count(Outcome::kPassed)},
          {"failed", report.count(Outcome::kFailed)},
          {"skipped", report.count(Outcome::kSkipped)},
          {"checks", checks},
          {"without_row", report.without_row()},
          {"rate_bps", options.rate_bps},
          {"mtu", options.mtu},
          {"buffer_bytes", options.buffer_bytes},
          {"quick", options.quick},
          {"strict", options.strict},
          {"without_switch_program", report.without_program},
          {"seconds", report.seconds},
          {"load_average", report.load_average},
          {"others_used_cores", report.other_cores},
          {"cores", report.cores}};
}

}  // namespace clustar::bench::fabric::selftest
