#include "bench/ab/experiment.h"

#include <fmt/format.h>
#include <string.h>

#include <chrono>
#include <utility>

#include "bench/ab/interrupt.h"

namespace clustar::bench::ab {
namespace {

using Clock = std::chrono::steady_clock;
constexpr double kMib = 1024 * 1024;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

std::map<std::string, std::string> environment_of(const Arm& arm, const Testbed& testbed) {
  std::map<std::string, std::string> environment = arm.settings;
  const std::string interface = testbed.interface();
  if (interface.empty()) return environment;
  // emplace: an arm may say otherwise.
  environment.emplace("CLUSTAR_SOCKET_IFNAME", interface);
  environment.emplace("NCCL_SOCKET_IFNAME", interface);
  return environment;
}

}  // namespace

const char* to_string(Role role) {
  switch (role) {
    case Role::kBaseline: return "baseline";
    case Role::kCandidate: return "candidate";
    case Role::kCeiling: return "no communication";
  }
  return "?";
}

std::vector<Role> order_of_round(int round) {
  if (round % 2 == 0) return {Role::kBaseline, Role::kCeiling, Role::kCandidate};
  return {Role::kCandidate, Role::kCeiling, Role::kBaseline};
}

std::vector<std::string> train_arguments(const Plan& plan, Role role, int round) {
  const trainer::TrainConfig& config = plan.train;
  std::vector<std::string> arguments;
  const auto add = [&](const char* option, const auto& value) {
    arguments.emplace_back(option);
    arguments.push_back(fmt::format("{}", value));
  };
  add("--model", config.model);
  if (config.model_options.image_size > 0) add("--image-size", config.model_options.image_size);
  if (config.model_options.classes > 0) add("--classes", config.model_options.classes);
  if (config.model_options.width_divisor > 1) add("--width-divisor", config.model_options.width_divisor);
  if (config.weight_decay > 0) add("--weight-decay", config.weight_decay);
  if (config.compute.replays()) {
    add("--compute", trainer::to_text(config.compute));
    add("--time-scale", config.compute.time_scale);
    add("--byte-scale", config.compute.byte_scale);
  }
  add("--epochs", config.epochs);
  add("--batch", config.batch);
  add("--lr", config.rate);
  add("--momentum", config.momentum);
  add("--seed", config.seed + static_cast<std::uint64_t>(round));
  if (config.data.empty()) {
    add("--examples", config.generated);
  } else {
    add("--data", config.data);
    if (config.skip_damaged) arguments.emplace_back("--skip-damaged");
  }
  add("--bucket-mb", static_cast<double>(config.bucket_bytes) / kMib);
  add("--first-bucket-mb", static_cast<double>(config.first_bucket_bytes) / kMib);
  const Arm& arm = role == Role::kCandidate ? plan.candidate : plan.baseline;
  if (role == Role::kCeiling || arm.opens_plugin()) add("--channels", plan.channels);
  add("--stall-timeout", plan.stall_timeout_s);
  if (role == Role::kCeiling) {
    arguments.emplace_back("--no-communication");
  } else {
    if (arm.opens_plugin()) add("--plugin", arm.plugin);
    for (const auto& [name, value] : arm.options) add(("--" + name).c_str(), value);
    if (config.target_accuracy) add("--target-accuracy", *config.target_accuracy);
  }
  return arguments;
}

Result<Run> run_once(const Plan& plan, Testbed& testbed, Role role, int round,
                     const std::function<void(const nlohmann::json& record)>& on_record) {
  const auto before = testbed.counters();
  if (!before) return tl::unexpected(before.error());
  const Clock::time_point start = Clock::now();
  const Arm& arm = role == Role::kCandidate ? plan.candidate : plan.baseline;
  auto results = testbed.run({.arguments = train_arguments(plan, role, round),
                              .environment = environment_of(arm, testbed),
                              .ranks = plan.ranks,
                              .on_record = on_record,
                              .limit = std::chrono::seconds(plan.limit_s),
                              .helpers = role == Role::kCeiling ? 0 : arm.helpers(),
                              .stall_timeout = std::chrono::seconds(plan.stall_timeout_s)});
  if (!results) return tl::unexpected(results.error());
  Run run{.role = role, .round = round, .train = std::move(*results), .network = {}, .wall_s = seconds_since(start)};
  const auto after = testbed.counters();
  if (!after) return tl::unexpected(after.error());
  run.network = {after->packets - before->packets, after->bytes - before->bytes, after->drops - before->drops};
  if (!(run.train["images_per_second"].get<double>() > 0)) {
    return fail(ErrorCode::kInternal, "nothing was measured: 0 images/s");
  }
  return run;
}

std::vector<double> Outcomes::by_round(Role role, const std::string& key) const {
  std::vector<double> values;
  // Rounds run one after the other, and each has every role once.
  for (const Run& run : runs) {
    if (run.role == role) values.push_back(run.train.at(key).get<double>());
  }
  return values;
}

namespace {

// The runs of one round; the first that fails is the error.
Result<std::vector<Run>> run_round(const Plan& plan, Testbed& testbed, int index, const Progress& progress) {
  std::vector<Run> round;
  const std::vector<Role> order = order_of_round(index);
  const int total = plan.rounds * static_cast<int>(order.size());
  for (const Role role : order) {
    if (const int signal = Interrupt::signal_number(); signal != 0) {
      return fail(ErrorCode::kSystem, fmt::format("interrupted by signal {} ({})", signal, strsignal(signal)));
    }
    auto run = run_once(plan, testbed, role, index, progress.on_record);
    if (!run) {
      return fail(run.error().code,
                  fmt::format("round {} of {}, {}: {}", index + 1, plan.rounds, to_string(role), run.error().message));
    }
    round.push_back(std::move(*run));
    const int done = index * static_cast<int>(order.size()) + static_cast<int>(round.size());
    if (progress.on_run) progress.on_run(done, total, round.back());
  }
  return round;
}

}  // namespace

Result<Outcomes> conduct(const Plan& plan, Testbed& testbed, const Progress& progress) {
  const Clock::time_point start = Clock::now();
  Outcomes outcomes;
  outcomes.kernel_congestion_control = testbed.congestion_control();
  for (int index = 0; index < plan.rounds && outcomes.ended_by.empty(); ++index) {
    auto round = run_round(plan, testbed, index, progress);
    if (!round && index == 0) return tl::unexpected(round.error());
    outcomes.seconds = seconds_since(start);
    if (!round) {
      outcomes.ended_by = round.error().message;
      break;
    }
    for (Run& run : *round) outcomes.runs.push_back(std::move(run));
    if (progress.on_round && index + 1 < plan.rounds) progress.on_round(outcomes);
  }
  return outcomes;
}

}  // namespace clustar::bench::ab
