#include "bench/cli/arms.h"

#include <fmt/format.h>

#include "bench/cli/options.h"
#include "nccl_plugin/settings/all_settings.h"
#include "transport/io/decorators/fault_spec.h"

namespace clustar::bench::cli {
namespace {

constexpr const char* kVariable = "CLUSTAR_INJECT_FAULTS";
constexpr double kMaxInjectedLoss = 0.5;

}  // namespace

void add_fault_options(CLI::App& command, double& loss, std::string& faults, const std::string& what) {
  command.add_option("--inject-loss", loss, "Lose this fraction of " + what)
      ->check(number_between(0, kMaxInjectedLoss))
      ->type_name("Q");
  command
      .add_option("--inject-faults", faults,
                  "The same for any fault, e.g. burst=0.001/0.2/0.8,delay=100us (see docs/settings.md)")
      ->type_name("SPEC");
}

Result<Faults> parse_faults(double loss, const std::string& text) {
  if (text.empty()) return Faults{loss > 0 ? fmt::format("loss={}", loss) : "", loss};
  if (loss > 0) {
    return fail(ErrorCode::kInvalidArgument, "--inject-loss and --inject-faults exclude each other; loss=Q is a fault");
  }
  const auto spec = transport::io::FaultSpec::parse(text);
  if (!spec) return fail(ErrorCode::kInvalidArgument, "--inject-faults: " + spec.error().message);
  return Faults{text, spec->loss};
}

Result<ab::Settings> parse_environment(const std::string& text) {
  auto settings = ab::parse_settings(text);
  if (settings && settings->count("plugin") > 0) {
    return fail(ErrorCode::kInvalidArgument, "'plugin' is an option of its own here: --plugin, --vs");
  }
  return settings;
}

Result<Config> config_of(const ab::Settings& settings) {
  ab::Settings all = ab::inherited_settings();
  for (const auto& [name, value] : settings) all[name] = value;
  return load_settings(all);
}

Result<void> inject(const Faults& faults, ab::Settings& settings) {
  if (faults.text.empty()) return {};
  if (!settings.emplace(kVariable, faults.text).second) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} is in the arm's settings already; say it once", kVariable));
  }
  const auto config = config_of(settings);
  if (config) return {};
  return fail(ErrorCode::kInvalidArgument, "--inject-loss, --inject-faults: " + config.error().message);
}

}  // namespace clustar::bench::cli
