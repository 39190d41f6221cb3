// The table of results.h.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "bench/ab/labels.h"
#include "bench/ab/results.h"

namespace clustar::bench::ab {
namespace {

using nlohmann::json;

std::string line(const std::string& what, const std::string& a, const std::string& b, const std::string& more = {}) {
  return fmt::format("  {:<26}{:>14}{:>14}   {}\n", what, a, b, more);
}

std::string numbers(const json& arms, const std::string& what, const char* key, const char* format, double unit = 1) {
  const auto text = [&](const json& arm) { return fmt::format(fmt::runtime(format), arm[key].get<double>() / unit); };
  return line(what, text(arms[0]), text(arms[1]));
}

std::string ratio_text(const json& from, const std::string& key) {
  return fmt::format("{:.3f}  ({:.3f} to {:.3f})", from[key].get<double>(), from[key + "_low"].get<double>(),
                     from[key + "_high"].get<double>());
}

std::string arm_text(char letter, const json& arm) {
  std::string settings;
  json all = arm["settings"];
  all.update(arm.value("options", json::object()));
  for (const auto& [name, value] : all.items()) settings += " " + name + "=" + value.get<std::string>();
  if (settings == " " + arm["name"].get<std::string>()) settings.clear();
  const json transport = arm.value("transport", json(nullptr));
  const json over = transport.is_object() ? transport.value("transport", json(nullptr)) : json(nullptr);
  return fmt::format("  {}  {}{}; congestion control: {}{}\n    {}{}\n", letter, arm["name"].get<std::string>(),
                     over.is_string() ? ", over " + over.get<std::string>() : "",
                     arm["congestion_control"].get<std::string>(),
                     arm["congestion_control_explicit"].get<bool>() ? "" : " (kernel's default)",
                     arm["plugin"].get<std::string>(), settings);
}

std::string time_line(const json& result) {
  const json& time = result["time_to_accuracy"];
  if (time.is_null()) return {};
  const std::string what = fmt::format("time to {:.1f} %, s", 100 * time["target_accuracy"].get<double>());
  if (time["ratio"].is_null()) return line(what, "-", "-", "not reached");
  return line(what, fmt::format("{:.2f}", time["seconds_a"].get<double>()),
              fmt::format("{:.2f}", time["seconds_b"].get<double>()), ratio_text(time, "ratio") + " sooner");
}

}  // namespace

std::string table(const json& result) {
  const json& arms = result["arms"];
  std::string text =
      fmt::format("\n{} ({}) on {}; {} round{} in {:.0f} s\n", result["model"].get<std::string>(),
                  result["shape"].get<std::string>(), result["place"]["text"].get<std::string>(),
                  result["rounds"].get<int>(), result["rounds"] == 1 ? "" : "s", result["seconds"].get<double>());
  const json replay = result.value("replay", json(nullptr));
  if (!replay.is_null()) text += "  " + replay["label"].get<std::string>() + "\n";
  text += arm_text('A', arms[0]) + arm_text('B', arms[1]) + "\n";
  text += line("median of the rounds", "A", "B", "B/A  (95 % interval)");
  text += line("images/s", rate_text(arms[0]["images_per_second"]), rate_text(arms[1]["images_per_second"]),
               ratio_text(result, "ratio"));
  text += line("  without communication", rate_text(result["images_per_second_ceiling"]), "",
               ratio_text(result, "ceiling_ratio") + " ceiling");
  text += time_line(result);
  text += numbers(arms, "exposed comm, ms/step", "exposed_comm_ms_per_step", "{:.2f}");
  text += numbers(arms, "hidden comm, ms/step", "hidden_comm_ms_per_step", "{:.2f}");
  text += numbers(arms, "compute, ms/step", "compute_ms_per_step", "{:.2f}");
  text += numbers(arms, "sent per run, MB", "bytes_sent", "{:.2f}", 1e6);
  text += numbers(arms, "messages per run", "messages_sent", "{:.0f}");
  if (result["place"]["kind"] == "fabric") {
    text += numbers(arms, "dropped at the switch", "switch_drops_total", "{:.0f}");
  }
  text += replay.is_null() ? "\n  " + equality_text(result) + "\n" : "\n";
  for (const json& warning : result["warnings"]) text += "  warning: " + warning.get<std::string>() + "\n";
  return text + "\n" + result["verdict_text"].get<std::string>() + "\n";
}

}  // namespace clustar::bench::ab
