#include "bench/cli/loss_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>
#include <string_view>

#include "bench/cli/arms.h"
#include "bench/cli/options.h"

namespace clustar::bench::cli {
namespace {

constexpr double kCeiling = 0.1;
constexpr std::uint32_t kCeilingPpm = 100'000;

// The p of a rule's "p=0.01"; the ceiling for what does not read as a number, since the plugin's own reading counts.
std::uint32_t share_ppm(std::string_view text) {
  double share = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), share);
  if (error != std::errc() || end != text.data() + text.size() || !(share >= 0 && share <= kCeiling))
    return kCeilingPpm;
  return static_cast<std::uint32_t>(std::lround(share * 1e6));
}

}  // namespace

CLI::Option* add_loss_option(CLI::App& command, double& tolerance) {
  return command
      .add_option("--loss-tolerance", tolerance,
                  "Let the transport lose up to this fraction of the gradients' bytes in the reduce-scatter steps of "
                  "all-reduces (0 = none). Sets CLUSTAR_LOSS_TOLERANCE and, unless you did, CLUSTAR_TRANSPORT=mlt and "
                  "CLUSTAR_LOSS_RULES=func=allreduce; more missing than that fails the run")
      ->check(number_between(0, kCeiling))
      ->type_name("P");
}

Result<void> tolerate_loss(double tolerance, ab::Settings& settings) {
  const auto before = config_of({});
  if (!before) return fail(ErrorCode::kInvalidArgument, "--loss-tolerance: " + before.error().message);
  if (!before->sources.contains("transport")) {
    settings["CLUSTAR_TRANSPORT"] = "mlt";
  } else if (!before->only_mlt()) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("--loss-tolerance works with mlt only, and the transport is {}; set CLUSTAR_TRANSPORT=mlt or "
                    "leave it unset",
                    before->transport));
  }
  settings["CLUSTAR_LOSS_TOLERANCE"] = fmt::format("{}", tolerance);
  if (before->loss_rules.empty() && before->loss_traffic_classes.empty()) {
    settings["CLUSTAR_LOSS_RULES"] = "func=allreduce";
  }
  const auto after = config_of(settings);
  if (after) return {};
  return fail(ErrorCode::kInvalidArgument, "--loss-tolerance: " + after.error().message);
}

std::uint32_t loss_bound_ppm(const Config& config) {
  if (config.loss_rules.empty() && config.loss_traffic_classes.empty()) return 0;
  std::uint32_t bound = config.loss_tolerance_ppm;
  std::string_view rest = config.loss_rules;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find_first_of(",; "), rest.size());
    const std::string_view item = rest.substr(0, end);
    if (item.starts_with("p=")) bound = std::max(bound, share_ppm(item.substr(2)));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return bound;
}

}  // namespace clustar::bench::cli
