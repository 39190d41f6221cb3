// `clustar plan`: which plan of an all-reduce takes how long on a cluster.
#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/ab/interrupt.h"
#include "bench/cli/arms.h"
#include "bench/cli/commands.h"
#include "bench/cli/options.h"
#include "bench/fabric/spec.h"
#include "bench/paraexpress/grid.h"
#include "bench/paraexpress/live/live.h"
#include "bench/paraexpress/plan_report.h"
#include "bench/paraexpress/plan_request.h"
#include "bench/report/report.h"
#include "nccl_plugin/settings/all_settings.h"
#include "paraexpress/core/placement.h"
#include "paraexpress/engine/engine.h"

namespace clustar::bench::cli {
namespace {

namespace px = clustar::paraexpress;

struct PlanArguments {
  paraexpress::PlanRequest request;
  std::string bandwidth = "40G", delay = "0", latency = "20us", message = "1us", sizes = "4KiB,64KiB,1MiB,16MiB,256MiB";
  std::vector<std::string> late;
  int order = 0;
  std::uint64_t seed = 1;
  bool probe = false, unsimulated = false, grid = false, bandwidth_given = false;
  int live_rounds = 0;
  std::string environment;  // of --live
  std::vector<std::string> only;
  std::string json_path;
};

int complain_about_plan(int status, const std::string& message) {
  std::cerr << "clustar plan: " << message << "\n";
  return status;
}

Result<px::Network> network_of(const PlanArguments& arguments) {
  px::Network network;
  const auto rate = paraexpress::parse_nic_rate(arguments.bandwidth);
  if (!rate) return fail(rate.error().code, "--bandwidth: " + rate.error().message);
  const auto latency = fabric::parse_delay(arguments.latency);
  if (!latency) return fail(latency.error().code, "--latency: " + latency.error().message);
  const auto message = fabric::parse_delay(arguments.message);
  if (!message) return fail(message.error().code, "--message-cost: " + message.error().message);
  network.nic_bytes_per_s = *rate;
  network.latency_s = static_cast<double>(*latency) * 1e-9;
  network.message_s = static_cast<double>(*message) * 1e-9;
  for (const std::string& late : arguments.late) {
    if (const auto ok = paraexpress::add_lag(late, arguments.request.ranks, network.lag_s); !ok) {
      return fail(ok.error().code, "--late: " + ok.error().message);
    }
  }
  return network;
}

int finish(const PlanArguments& arguments, const std::string& text, nlohmann::json results) {
  if (arguments.json_path != "-") std::cout << text;
  if (arguments.json_path.empty()) return kOk;
  auto document = report::envelope("plan", std::move(results));
  document["command_line"] = report::command_line();
  const auto written = report::write_json(document, arguments.json_path);
  return written ? kOk : complain_about_plan(kFailed, written.error().message);
}

int add_live(const PlanArguments& arguments, const px::Group& group, const px::Network& network,
             const std::vector<std::uint64_t>& sizes, std::string& said, nlohmann::json& results) {
  const auto delay = fabric::parse_delay(arguments.delay);
  if (!delay) return complain_about_plan(kUsage, "--delay: " + delay.error().message);
  const ab::Interrupt interrupt;
  paraexpress::live::LiveOptions options;
  options.group = group;
  options.sizes = sizes;
  options.rounds = arguments.live_rounds;
  options.only = arguments.only;
  options.probe = arguments.probe;
  options.rate_bps = static_cast<std::uint64_t>(network.nic_bytes_per_s * 8);
  options.delay_ns = *delay;
  const auto environment = parse_environment(arguments.environment);
  if (!environment) return complain_about_plan(kUsage, "--env: " + environment.error().message);
  for (const auto& [name, value] : *environment) options.environment[name] = value;
  const auto known = load_settings(options.environment);
  if (!known) return complain_about_plan(kUsage, "--env: " + known.error().message);
  options.stop = [] { return ab::Interrupt::signal_number() != 0; };
  const auto measured = paraexpress::live::measure(options, [](const std::string& line) { std::cerr << line << "\n"; });
  if (!measured) {
    return complain_about_plan(measured.error().code == ErrorCode::kInvalidArgument ? kUsage : kFailed,
                               measured.error().message);
  }
  said += paraexpress::live::text(options, *measured);
  results["live"] = paraexpress::live::to_json(options, *measured);
  return kOk;
}

int run_plan(PlanArguments& arguments) {
  if (arguments.live_rounds > 0 && !arguments.bandwidth_given) arguments.bandwidth = "200M";
  if (const auto ok = report::check_writable(arguments.json_path); !ok)
    return complain_about_plan(kUsage, ok.error().message);
  const auto network = network_of(arguments);
  if (!network) return complain_about_plan(kUsage, network.error().message);
  if (arguments.grid) {
    paraexpress::GridOptions options;
    options.network = *network;
    options.seed = arguments.seed;
    const auto cells = paraexpress::grid(options, [](const std::string& line) { std::cerr << line << "\n"; });
    return finish(arguments, paraexpress::text(cells), paraexpress::to_json(cells));
  }
  if (arguments.request.regions_path == px::kProbeRegions) {
    if (arguments.live_rounds == 0) {
      return complain_about_plan(kUsage, "--regions probe measures a network; allowed: with --live");
    }
    arguments.probe = true;
    arguments.request.regions_path.clear();
  }
  if (arguments.order == 1) arguments.request.random_seed = arguments.seed;
  const auto sizes = paraexpress::parse_sizes(arguments.sizes);
  if (!sizes) return complain_about_plan(kUsage, sizes.error().message);
  auto group = paraexpress::group_of(arguments.request);
  if (!group) return complain_about_plan(kUsage, group.error().message);
  if (arguments.order == 2) *group = px::spread(*group);
  const auto report = paraexpress::plan_report(*group, *network, *sizes, !arguments.unsimulated);
  auto results = paraexpress::to_json(report);
  std::string said = paraexpress::text(report);
  if (arguments.live_rounds > 0) {
    if (const int status = add_live(arguments, *group, *network, *sizes, said, results); status != kOk) return status;
  }
  return finish(arguments, said, std::move(results));
}

}  // namespace

void add_plan(CLI::App& app, int& status) {
  auto& command =
      *app.add_subcommand("plan", "How long each plan of an all-reduce takes on a cluster, and which is best");
  auto arguments = std::make_shared<PlanArguments>();
  paraexpress::PlanRequest& request = arguments->request;
  auto* ranks = command.add_option("--ranks", request.ranks, "Number of ranks, a host with one NIC each")
                    ->check(number_between(1, paraexpress::kMostRanks))
                    ->type_name("N")
                    ->capture_default_str();
  auto* helpers = command.add_option("--helpers", request.helpers, "Number of hosts that only add, behind the ranks")
                      ->check(number_between(0, paraexpress::kMostRanks))
                      ->type_name("N")
                      ->capture_default_str();
  auto* regions =
      command
          .add_option("--regions", request.regions_path,
                      "Which host is in which region: a line each, as 'region0 ranks=0-7 oversubscription=4'; also "
                      "helpers=, and hosts= where there is room for more. With --live also probe: the ranks find them; "
                      "the true "
                      "ones are those of --region-size")
          ->type_name("FILE|probe");
  auto* size =
      command.add_option("--region-size", request.region_size, "Hosts per region, instead of a file [all in one]")
          ->check(number_between(1, paraexpress::kMostRanks))
          ->type_name("N");
  auto* ratio =
      command.add_option("--oversubscription", request.oversubscription, "Of the uplinks of such regions: 4 is 4:1")
          ->check(number_between(1, px::kMostOversubscription))
          ->capture_default_str();
  auto* order =
      command
          .add_option("--order", arguments->order,
                      "Ranks stand as given, are dealt to the hosts at random, or to the regions in turn [given]")
          ->transform(choice({"given", "random", "in-turn"}))
          ->type_name("given|random|in-turn");
  command.add_option("--seed", arguments->seed, "Seed of the random order")->type_name("N")->capture_default_str();
  auto* bandwidth =
      command.add_option("--bandwidth", arguments->bandwidth, "Of a NIC, each direction, 1M to 1.6T [--live: 200M]")
          ->type_name("RATE")
          ->capture_default_str();
  command.add_option("--latency", arguments->latency, "Of a message")->type_name("TIME")->capture_default_str();
  command.add_option("--message-cost", arguments->message, "A host's work for a message that it sends or receives")
      ->type_name("TIME")
      ->capture_default_str();
  auto* late = command
                   .add_option("--late", arguments->late,
                               "A rank that comes later by up to 60s, as 3=5ms; may be given several times")
                   ->type_name("RANK=TIME")
                   ->allow_extra_args(false);
  auto* sizes = command.add_option("--size", arguments->sizes, "Sizes of the buffer")
                    ->type_name("SIZE,...")
                    ->capture_default_str();
  auto* unsimulated = command.add_flag("--no-simulation", arguments->unsimulated, "The model's times only");
  auto* grid =
      command.add_flag("--grid", arguments->grid,
                       "Instead: how often the chosen plan is the best in simulation, 2 to 256 ranks dealt at random "
                       "to regions of 8, 1:1 to 8:1, 4 KiB to 256 MiB; takes minutes");
  auto* live =
      command
          .add_option("--live", arguments->live_rounds,
                      "Also run each plan this many times: real bytes between hosts of an emulated fabric, a leaf per "
                      "region, lines of --bandwidth; needs root")
          ->check(number_between(1, 1000))
          ->type_name("ROUNDS");
  command.add_option("--delay", arguments->delay, "Of each cable of that fabric, one way")
      ->needs(live)
      ->type_name("TIME")
      ->capture_default_str();
  command.add_option("--plans", arguments->only, "Of --live: these alone, as ring,'ring by number',auto [all]")
      ->needs(live)
      ->delimiter(',')
      ->type_name("LIST")
      ->allow_extra_args(false);
  command.add_option("--env", arguments->environment, "Environment of its ranks: NAME=VALUE,...")
      ->needs(live)
      ->type_name("LIST");
  for (CLI::Option* other : {live, ranks, helpers, regions, size, ratio, order, late, sizes, unsimulated})
    grid->excludes(other);
  command.add_option("--json", arguments->json_path, "Write the results to this file; - is standard output")
      ->type_name("FILE");
  command.footer(
      "Without --live all times are computed. The simulation cuts at most 64 chunks per shard.\n"
      "Exit status: 0 ok, 1 failed, 2 wrong usage.\n"
      "Example: clustar plan --ranks 32 --region-size 8 --oversubscription 4 --size 64KiB,1MiB,553MB\n"
      "Measured: clustar plan --ranks 8 --region-size 4 --oversubscription 4 --size 4KiB,1MiB --live 5");
  command.callback([arguments, bandwidth, &status] {
    arguments->bandwidth_given = bandwidth->count() > 0;
    status = run_plan(*arguments);
  });
}

}  // namespace clustar::bench::cli
