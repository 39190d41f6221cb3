#include "bench/perf/table.h"

#include <fmt/format.h>

#include <cstring>
#include <nlohmann/json.hpp>

namespace clustar::bench::perf {
namespace {

using nlohmann::json;

constexpr char kMark = '*';  // of a row with a note

// Three significant digits at least, no exponent.
std::string number(double value) {
  if (value >= 1000) return fmt::format("{:.0f}", value);
  return fmt::format(fmt::runtime(value >= 100 ? "{:.1f}" : value >= 10 ? "{:.2f}" : "{:.3f}"), value);
}

std::string values_text(const ArmValues& values) {
  const Spread s = spread(values.values);
  return fmt::format("{} [{}-{}]", number(s.median), number(s.min), number(s.max));
}

std::string ratio_text(const std::optional<RatioEstimate>& ratio) {
  return ratio ? fmt::format("{:.3f} [{:.3f}, {:.3f}]", ratio->ratio, ratio->low, ratio->high) : "";
}

std::string quantiles_text(const char* name, const ArmValues& values) {
  const Histogram& h = values.histogram;
  if (h.count() == 0) return "";
  std::string text =
      fmt::format("    {}: p50 {} us, p99 {} us", name, number(h.quantile(0.5) / 1e3), number(h.quantile(0.99) / 1e3));
  if (h.count() >= 1000) text += fmt::format(", p99.9 {} us", number(h.quantile(0.999) / 1e3));
  return text + fmt::format(" of {} messages, {} Gbit/s\n", h.count(), number(median(values.gbps)));
}

std::string cpu_text(const char* name, const ArmValues& values) {
  if (values.cpu_sleeping.empty()) return "";
  return fmt::format("    {}: CPU-s/Gbit, both sides: {:.4f} sleeping, {:.4f} spinning\n", name,
                     median(values.cpu_sleeping), median(values.cpu_spinning));
}

std::string loss_text(const char* name, const ArmValues& values) {
  if (values.lost.packets == 0) return "";
  const double all = values.delivered_bytes + static_cast<double>(values.lost.bytes);
  return fmt::format("    {}: {} packets lost, {:.4f} % of the bytes; they do not count as delivered\n", name,
                     values.lost.packets, 100 * static_cast<double>(values.lost.bytes) / all);
}

std::string describe(const char* name, const json& arm) {
  std::string what = std::strcmp(name, "U") == 0 ? "bare UDP" : "plain TCP";
  if (arm.contains("plugin")) {
    const json& plugin = arm["plugin"];
    const std::string over = plugin.value("transport", "");
    what = fmt::format("{}{} v{} ({}), device {}", plugin.value("name", ""), over.empty() ? "" : " over " + over,
                       plugin.value("version", 0), plugin.value("path", ""), plugin.value("device", ""));
    for (const auto& [variable, value] : arm["environment"].items()) {
      what += fmt::format(" {}={}", variable, value.get<std::string>());
    }
  }
  const auto core = [&](const char* side) {
    const int number = arm[side].value("core", -1);
    return number < 0 ? std::string("any") : std::to_string(number);
  };
  return fmt::format("{}  {}; congestion control {}; cores: receiver {}, sender {}\n", name, what,
                     arm.value("congestion_control", ""), core("receiver"), core("sender"));
}

// Once for all rows that have the mark: the largest part that others took.
std::string disturbed_text(const Report& report) {
  std::string text;
  const auto add = [&](const char* where, auto other_of) {
    std::optional<OtherCpu> most;
    int rows = 0;
    for (const RowResult& row : report.rows) {
      const std::optional<OtherCpu>& other = other_of(row);
      if (!other || !other->disturbs()) continue;
      ++rows;
      if (!most || other->used > most->used) most = other;
    }
    if (rows == 0) return;
    text += fmt::format(
        "{} {}other processes used up to {:.1f} of the {} core{} in user time alone, in {} of {} rows: "
        "repeat on an idle machine\n",
        kMark, where, most->used, most->cores, most->cores == 1 ? "" : "s", rows, report.rows.size());
  };
  add("", [](const RowResult& row) -> const std::optional<OtherCpu>& { return row.other_cpu; });
  add("on the server's machine ",
      [](const RowResult& row) -> const std::optional<OtherCpu>& { return row.other_cpu_server; });
  return text;
}

std::string notes_text(const char* name, const json& arm) {
  std::string text;
  for (const json& note : arm["notes"]) text += fmt::format("arm {}: {}\n", name, note.get<std::string>());
  return text;
}

}  // namespace

std::string size_text(std::size_t bytes) {
  if (bytes >= 1u << 20 && bytes % (1u << 20) == 0) return fmt::format("{} MiB", bytes >> 20);
  if (bytes >= 1u << 10 && bytes % (1u << 10) == 0) return fmt::format("{} KiB", bytes >> 10);
  return fmt::format("{} B", bytes);
}

std::string header(const json& arms, const Options& options) {
  std::string text = describe("A", arms["a"]);
  if (options.b) text += describe("B", arms["b"]);
  if (arms.contains("limit")) text += describe("L", arms["limit"]);
  if (arms.contains("limit_udp")) text += describe("U", arms["limit_udp"]);
  if (!options.inject_faults.empty()) {
    text += fmt::format("faults injected into A, in both directions: {}\n", options.inject_faults);
  }
  const json& interface = arms["a"]["sender"]["interface"];
  text += fmt::format("path: {} {}, MTU {}, {}; {} rounds of {} s\n", options.server ? "to" : "on this machine,",
                      options.server ? fmt::format("{} by {}", *options.server, interface.value("name", ""))
                                     : interface.value("name", ""),
                      interface.value("mtu", 0), interface.value("mode", ""), options.rounds, options.seconds);
  text += fmt::format("\n{:<10}{:>8}  {:<7} {:<24}", "test", "bytes", "unit", "A");
  if (options.b) text += fmt::format(" {:<24} {:<24}", "B", "A/B [95 %]");
  if (arms.contains("limit")) text += fmt::format(" {:<24} {:<24}", "L (plain TCP)", "A/L [95 %]");
  if (arms.contains("limit_udp")) text += fmt::format(" {:<24} {}", "U (bare UDP)", "A/U [95 %]");
  return text + "\n";
}

std::string line(const RowResult& result) {
  const Test test = result.row.test;
  std::string text = fmt::format("{:<10}{:>8}  {:<7} {:<24}", to_string(test), size_text(result.row.bytes),
                                 unit_of(test), values_text(result.a));
  if (result.b) text += fmt::format(" {:<24} {:<24}", values_text(*result.b), ratio_text(result.ratio));
  if (result.limit) text += fmt::format(" {:<24} {:<24}", values_text(*result.limit), ratio_text(result.limit_ratio));
  if (result.limit_udp) {
    text += fmt::format(" {:<24} {}", values_text(*result.limit_udp), ratio_text(result.limit_udp_ratio));
  }
  while (text.back() == ' ') text.pop_back();
  if (!notes(result).empty()) text += fmt::format("  {}", kMark);
  text += "\n" + quantiles_text("A", result.a);
  if (result.b) text += quantiles_text("B", *result.b);
  text += cpu_text("A", result.a);
  if (result.b) text += cpu_text("B", *result.b);
  if (result.limit) text += cpu_text("L", *result.limit);
  if (result.limit_udp) text += cpu_text("U", *result.limit_udp) + loss_text("U", *result.limit_udp);
  return text;
}

std::string footer(const Report& report, const Options& options) {
  std::string text =
      "\nmedian [min-max] of the rounds; us: lower is better (round trip p50; p99 of a message of an incast, or beside "
      "elephants)\n";
  text += disturbed_text(report) + notes_text("A", report.arms["a"]);
  if (!options.b) return text;
  text += notes_text("B", report.arms["b"]);
  int above = 0, below = 0;
  for (const RowResult& row : report.rows) {
    const bool lower = lower_is_better(row.row.test);
    above += (lower ? row.ratio->high < 1 : row.ratio->low > 1) ? 1 : 0;
    below += (lower ? row.ratio->low > 1 : row.ratio->high < 1) ? 1 : 0;
  }
  return text + fmt::format("A is better in {} rows and worse in {} of {}, by intervals that do not contain 1\n", above,
                            below, report.rows.size());
}

}  // namespace clustar::bench::perf
