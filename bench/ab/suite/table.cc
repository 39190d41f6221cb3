#include "bench/ab/suite/table.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "bench/ab/suite/captured.h"
#include "bench/ab/suite/figures.h"
#include "bench/report/page.h"

namespace clustar::bench::ab::suite {
namespace {

using nlohmann::json;
using report::show;

std::string points(const json& difference) {
  if (!difference.is_object()) return "-";
  const std::string mean = fmt::format("{:+.2f}", 100 * difference["mean"].get<double>());
  if (!difference["low"].is_number()) return mean;
  return fmt::format("{} ({:+.2f})", mean, 100 * difference["low"].get<double>());
}

std::string percent(const json& share) {
  return share.is_number() ? fmt::format("{:.2f} %", 100 * share.get<double>()) : "-";
}

std::string header(bool has_target) {
  return fmt::format("  {:<26}{:>5}{:>10}{:>10}{:>15}  {:<32}{:<24}{:>9}{:>17}{:>10}\n", "arm", "runs", "step ms",
                     "p99 ms", has_target ? "to acc. s" : "accuracy",
                     has_target ? "sooner than reference" : "faster steps", "step / clean", "missing", "accuracy - p0",
                     "lost");
}

// Of how many pairs, which is fewer than rounds where runs are missing or neither arm came through.
std::string with_pairs(const json& ratio, int rounds) {
  if (!ratio.is_object()) return "-";
  return fmt::format("{} {}/{}", interval_text(ratio), ratio.at("pairs").get<int>(), rounds);
}

std::string line(const json& figure, bool has_target, int rounds) {
  std::string middle = percent(figure.at("accuracy"));
  if (has_target) {
    middle = show(figure.at("time_to_accuracy_s"), 1);
    middle += fmt::format(" ({}/{})", figure.at("reached").get<int>(), rounds);
  }
  return fmt::format("  {:<26}{:>5}{:>10}{:>10}{:>15}  {:<32}{:<24}{:>9}{:>17}{:>10}\n",
                     figure.at("name").get<std::string>(), figure.at("runs").get<int>(), show(figure.at("step_ms"), 1),
                     show(figure.at("step_p99_ms"), 1), middle,
                     figure.at("reference") == figure.at("name")
                         ? "the reference"
                         : with_pairs(figure.at(has_target ? "time_ratio" : "step_ratio"), rounds),
                     interval_text(figure.at("growth")), percent(figure.value("missing_share", json(nullptr))),
                     points(figure.at("accuracy_difference")), show(figure.at("switch_lost_on_purpose"), 0));
}

}  // namespace

std::string table(const json& training) {
  const json& options = training.at("options");
  const bool has_target = !options.at("target_accuracy").is_null();
  std::string text;
  for (const json& scenario : training.at("scenarios")) {
    text += fmt::format("\n{}: {} ({} ranks, {})\n", scenario.at("name").get<std::string>(),
                        scenario.at("title").get<std::string>(), scenario.at("ranks").get<int>(),
                        scenario.at("place").is_object() ? scenario["place"]["text"].get<std::string>()
                                                         : scenario.at("fabric").get<std::string>());
    if (scenario.at("figures").empty()) continue;
    text += header(has_target);
    for (const json& figure : scenario.at("figures")) text += line(figure, has_target, options.at("rounds"));
    for (const json& figure : scenario.at("figures")) {
      if (figure.at("background_bps").is_null()) continue;
      text += fmt::format("  beside {}: others got {:.1f} Mbit/s\n", figure.at("name").get<std::string>(),
                          figure.at("background_bps").get<double>() / 1e6);
    }
  }
  if (has_target) {
    text += fmt::format(
        "\n  to acc.: training seconds to {:.1f} % held-out accuracy, median of the runs that reached it "
        "(in brackets: how many of the rounds)\n",
        100 * options.at("target_accuracy").get<double>());
  }
  text +=
      "  behind a ratio: in how many pairs of the rounds; a run that failed or missed the target counts as slower\n";
  text += "  accuracy - p0: points, mean over paired seeds (lower 95 % bound)\n";
  text += captured_text(captured_gains(training));
  if (!training.at("bars").empty()) text += "\nbars\n";
  for (const json& bar : training.at("bars")) {
    const char* verdict = bar.at("met").is_null() ? "-" : bar.at("met").get<bool>() ? "met" : "NOT MET";
    text += fmt::format("  {:<8}{} {}: {}: {}\n", verdict, bar.at("scenario").get<std::string>(),
                        bar.at("arm").get<std::string>(), bar.at("what").get<std::string>(),
                        bar.at("text").get<std::string>());
  }
  for (const json& warning : training.at("warnings")) text += "warning: " + warning.get<std::string>() + "\n";
  return text;
}

std::string run_line(const json& run, int done, int total, double rest_s) {
  std::string what;
  if (run.contains("failed")) {
    what = "FAILED: " + run.at("failed").get<std::string>();
  } else {
    const double steps = run.at("steps").get<double>();
    what = fmt::format("{:.1f} ms/step", steps > 0 ? 1000 * run.at("train_s").get<double>() / steps : 0.0);
    if (run.at("accuracy").is_number())
      what += fmt::format(", accuracy {:.2f} %", 100 * run.at("accuracy").get<double>());
    if (run.at("time_to_target_s").is_number()) {
      what += fmt::format(", target after {:.1f} s", run.at("time_to_target_s").get<double>());
    }
    if (run.at("missing_bytes").is_number() && run.at("missing_bytes") != 0) {
      what += fmt::format(", {} bytes missing", run.at("missing_bytes").get<std::uint64_t>());
    }
  }
  const std::string rest = rest_s < 120 ? fmt::format("{:.0f} s", rest_s) : fmt::format("{:.0f} min", rest_s / 60);
  return fmt::format("[{}/{}] round {} {:<26} {}; about {} left", done, total, run.at("round").get<int>(),
                     run.at("arm").get<std::string>(), what, rest);
}

}  // namespace clustar::bench::ab::suite
