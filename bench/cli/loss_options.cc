#include "bench/cli/loss_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "bench/cli/arms.h"
#include "bench/cli/options.h"
#include "nccl_plugin/loss/policy.h"
#include "transport/api/settings.h"
#include "transport/transport_tables.h"

namespace clustar::bench::cli {
namespace {

constexpr double kCeiling = 0.1;

}  // namespace

CLI::Option* add_loss_option(CLI::App& command, double& tolerance) {
  return command
      .add_option("--loss-tolerance", tolerance,
                  "Let the transport lose up to this fraction of the gradients' bytes in the reduce-scatter steps of "
                  "all-reduces, or in the exchange of --all-reduce all-to-all (0 = none). Sets CLUSTAR_LOSS_TOLERANCE "
                  "and, unless you did, CLUSTAR_TRANSPORT=mlt and CLUSTAR_LOSS_RULES=func=allreduce, with "
                  "func=sendrecv for all-to-all, and func=reducescatter instead for --optimizer-sharding; more missing "
                  "than that fails the run")
      ->check(number_between(0, kCeiling))
      ->type_name("P");
}

Result<void> tolerate_loss(double tolerance, const std::string& rules, ab::Settings& settings) {
  const auto before = config_of({});
  if (!before) return fail(ErrorCode::kInvalidArgument, "--loss-tolerance: " + before.error().message);
  if (before->find("transport") == nullptr) {
    settings["CLUSTAR_TRANSPORT"] = "mlt";
  } else if (!transport::is_only_mlt(*before)) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("--loss-tolerance works with mlt only, and the transport is {}; set CLUSTAR_TRANSPORT=mlt or "
                    "leave it unset",
                    before->get<TransportSettings>().transport));
  }
  settings["CLUSTAR_LOSS_TOLERANCE"] = fmt::format("{}", tolerance);
  const auto loss = before->get<LossSettings>();
  if (loss.rules.empty() && loss.traffic_classes.empty()) {
    settings["CLUSTAR_LOSS_RULES"] = rules;
  }
  const auto after = config_of(settings);
  if (after) return {};
  return fail(ErrorCode::kInvalidArgument, "--loss-tolerance: " + after.error().message);
}

Result<std::uint32_t> loss_bound_ppm(const Config& config) {
  const auto policy = nccl_plugin::LossPolicy::create(config.get<LossSettings>());
  if (!policy) return tl::unexpected(policy.error());
  std::uint32_t bound = 0;
  for (const nccl_plugin::LossRule& rule : policy->rules()) bound = std::max(bound, rule.tolerance_ppm);
  return bound;
}

}  // namespace clustar::bench::cli
