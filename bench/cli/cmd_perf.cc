// `clustar perf`: the command line of the microbenchmark.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <charconv>
#include <cmath>
#include <csignal>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "bench/cli/arms.h"
#include "bench/cli/commands.h"
#include "bench/cli/lossy_suite.h"
#include "bench/cli/options.h"
#include "bench/lossy/worker.h"
#include "bench/perf/arm.h"
#include "bench/perf/perf.h"
#include "bench/perf/server.h"
#include "bench/perf/socket_hook.h"
#include "bench/perf/table.h"
#include "bench/perf/worker.h"
#include "bench/report/report.h"
#include "transport/base/own_folder.h"
#include "transport/transport_tables.h"

namespace clustar::bench::cli {
namespace {

struct Arguments {
  perf::Options options;
  std::string plugin;
  int plugin_version = 0;
  std::string vs;
  int vs_version = 0;
  std::string environment;
  std::string vs_environment;
  std::string limits;  // "": none
  double inject_loss = 0;
  std::string inject_faults;
  int device = 0;
  std::vector<std::string> tests;
  std::vector<std::string> bytes;
  std::string congestion;
  double timeout_s = 30;
  bool no_pin = false;
  std::string json;
  bool server = false;
  std::string bind = "0.0.0.0";
  int port = perf::kDefaultPort;
  std::string client;
  bool worker = false;
  SuiteArguments suite;
};

int usage_error(const std::string& message) {
  std::cerr << "clustar perf: " << message << "\n";
  return 2;
}

int failure(const std::string& message) {
  std::cerr << "clustar perf: " << message << "\n";
  return 1;
}

// dlopen looks for a bare name on the library path only; a file that is here is meant.
std::string plugin_path(const std::string& given) { return is_file(given) ? absolute_path(given) : given; }

perf::PluginSpec spec_of(const std::string& path, int version, int device) {
  return {plugin_path(path), version, device, {}, {}};
}

// A file that CLUSTAR_CONFIG names may choose the transport, too. What is no setting of ours says nothing about A,
// which may be another's plugin.
bool is_mlt(const perf::PluginSpec& spec) {
  const auto config = config_of(spec.environment);
  return config && transport::is_only_mlt(*config);
}

// The kernel's congestion control is that of its control connections only.
void set_own_congestion(perf::PluginSpec& spec) {
  if (is_mlt(spec)) spec.own_congestion = {"clustar", "mlt's own"};
}

// The arms as the options describe them, at both ends of a measurement.
struct Arms {
  perf::PluginSpec a;
  std::optional<perf::PluginSpec> b;
  Faults faults;
};

Result<Arms> arms_of(const Arguments& arguments) {
  Arms arms;
  auto faults = parse_faults(arguments.inject_loss, arguments.inject_faults);
  if (!faults) return tl::unexpected(faults.error());
  arms.faults = std::move(*faults);
  auto environment = parse_environment(arguments.environment);
  if (!environment) return fail(environment.error().code, "--env: " + environment.error().message);
  if (auto ok = inject(arms.faults, *environment); !ok) return tl::unexpected(ok.error());
  arms.a = spec_of(arguments.plugin, arguments.plugin_version, arguments.device);
  arms.a.environment = std::move(*environment);
  set_own_congestion(arms.a);
  if (arguments.vs.empty() && arguments.vs_environment.empty()) return arms;
  auto vs_environment = parse_environment(arguments.vs_environment);
  if (!vs_environment) return fail(vs_environment.error().code, "--vs-env: " + vs_environment.error().message);
  arms.b = spec_of(arguments.vs.empty() ? arguments.plugin : arguments.vs, arguments.vs_version, arguments.device);
  arms.b->environment = std::move(*vs_environment);
  set_own_congestion(*arms.b);
  return arms;
}

void set_limits(const std::string& limits, perf::Options& options) {
  if (limits.empty()) return;
  const std::string chosen = limits != "fitting" ? limits : is_mlt(options.a) ? "udp" : "tcp";
  options.limit_tcp = chosen != "udp";
  options.limit_udp = chosen != "tcp";
}

// "8", "64K", "4M".
Result<std::size_t> parse_bytes(const std::string& text) {
  std::size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string suffix(end, text.data() + text.size());
  const std::size_t factor = suffix.empty()                   ? 1
                             : suffix == "K" || suffix == "k" ? 1024
                             : suffix == "M" || suffix == "m" ? 1024 * 1024
                                                              : 0;
  if (error != std::errc() || factor == 0 || value < 1 || value > perf::kMaxMessageBytes / factor) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--bytes '{}': 1 to 256M are possible, with K or M for 1024 and 1048576", text));
  }
  return value * factor;
}

// The client's HOST[:PORT], [IPv6][:PORT].
std::string with_port(const std::string& host) {
  const bool has_port = host.find(':') != std::string::npos && host.back() != ']';
  return has_port ? host : fmt::format("{}:{}", host, perf::kDefaultPort);
}

Result<perf::Options> to_options(const Arguments& arguments) {
  perf::Options options = arguments.options;
  if (options.rounds < 5 || options.rounds > 1000) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("--rounds {}: 5 to 1000 are possible, since an interval takes five pairs; for a quick look: "
                    "--seconds 0.05",
                    options.rounds));
  }
  auto arms = arms_of(arguments);
  if (!arms) return tl::unexpected(arms.error());
  options.a = std::move(arms->a);
  options.b = std::move(arms->b);
  options.inject_faults = arms->faults.text;
  options.inject_loss = arms->faults.loss;
  set_limits(arguments.limits, options);
  for (const std::string& name : arguments.tests) {
    const auto test = perf::parse_test(name);
    if (!test) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("--test '{}': possible are latency, bandwidth, rate, incast, mixed, busbw", name));
    }
    options.tests.push_back(*test);
  }
  for (const std::string& text : arguments.bytes) {
    const auto bytes = parse_bytes(text);
    if (!bytes) return tl::unexpected(bytes.error());
    options.bytes.push_back(*bytes);
  }
  options.pin = !arguments.no_pin;
  options.timeout = std::chrono::milliseconds(std::llround(arguments.timeout_s * 1e3));
  if (!arguments.client.empty()) options.server = with_port(arguments.client);
  if (arguments.congestion == "default") {
    options.congestion.clear();
  } else if (!arguments.congestion.empty()) {
    options.congestion = arguments.congestion;
    // Found out now, and not from a worker.
    if (auto ok = perf::set_congestion_control(options.congestion); !ok) return tl::unexpected(ok.error());
    (void)perf::set_congestion_control("");
  } else if (auto ok = perf::set_congestion_control("cubic"); !ok) {
    options.congestion.clear();
  } else {
    (void)perf::set_congestion_control("");
  }
  return options;
}

std::atomic<bool> g_stop{false};

int run_server(const Arguments& arguments) {
  perf::ServerOptions options;
  auto arms = arms_of(arguments);
  if (!arms) return usage_error(arms.error().message);
  options.a = std::move(arms->a);
  options.b = std::move(arms->b);
  options.bind = arguments.bind;
  options.port = arguments.port;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) std::signal(signal, [](int) { g_stop = true; });
  const auto served = perf::serve(options, g_stop, [](const std::string& line) { std::cerr << line << "\n"; });
  return served ? 0 : failure(served.error().message);
}

// On a terminal one line that changes; in a log one for each row, so that nobody waits for minutes without a sign.
class Steps {
 public:
  explicit Steps(std::size_t rows) : rows_(rows) {}

  void show(const perf::Row& row, const std::string& what) {
    const std::string name = fmt::format("{} {}", perf::to_string(row.test), perf::size_text(row.bytes));
    const bool is_new = std::exchange(last_, name) != name;
    if (is_new) ++begun_;
    if (live_) {
      std::cerr << "\r\x1b[K" << fmt::format("[{}/{}] {}: {}", begun_, rows_, name, what) << std::flush;
    } else if (is_new) {
      std::cerr << fmt::format("[{}/{}] {}\n", begun_, rows_, name) << std::flush;
    }
  }
  void clear() const {
    if (live_) std::cerr << "\r\x1b[K" << std::flush;
  }

 private:
  bool live_ = isatty(STDERR_FILENO) != 0;
  std::size_t rows_ = 0;
  std::size_t begun_ = 0;
  std::string last_;
};

int run_perf(Arguments& arguments) {
  if (!arguments.suite.worker.empty()) return lossy::run_worker(arguments.suite.worker);
  if (!arguments.suite.name.empty()) return run_suite(arguments.suite, arguments.json, report::command_line());
  if (arguments.worker) {
    std::optional<perf::PluginSpec> plugin;
    if (!arguments.plugin.empty()) plugin = spec_of(arguments.plugin, arguments.plugin_version, arguments.device);
    return perf::run_worker(plugin);
  }
  if (arguments.plugin.empty()) arguments.plugin = installed_library("libnccl-net-clustar.so");
  if (arguments.server) return run_server(arguments);
  const auto options = to_options(arguments);
  if (!options) return usage_error(options.error().message);
  if (const auto ok = report::check_writable(arguments.json); !ok) return usage_error("--json: " + ok.error().message);
  // JSON on standard output stays parseable: people's lines go to standard error then.
  std::ostream& out = arguments.json == "-" ? std::cerr : std::cout;
  Steps steps(perf::plan(*options).size());
  perf::Events events;
  events.on_start = [&](const nlohmann::json& arms) { out << perf::header(arms, *options) << std::flush; };
  events.on_step = [&](const perf::Row& row, const std::string& what) { steps.show(row, what); };
  events.on_row = [&](const perf::RowResult& row) {
    steps.clear();
    out << perf::line(row) << std::flush;
  };
  auto report = perf::run(*options, events);
  steps.clear();
  if (!report) {
    // No such plugin or device is the command line's fault, not the plugin's.
    const bool usage = report.error().code == ErrorCode::kUnavailable;
    return usage ? usage_error(report.error().message) : failure(report.error().message);
  }
  const std::string plugin = report->arms["a"]["plugin"].value("name", "");
  if (!options->inject_faults.empty() && plugin != "clustar") {
    report->warnings.push_back(fmt::format("arm A is {}: only clustar injects faults, so it met none", plugin));
  }
  out << perf::footer(*report, *options) << std::flush;
  if (!arguments.json.empty()) {
    auto document = report::envelope("perf", perf::results_to_json(*report, *options));
    document["command_line"] = report::command_line();
    document["settings"] = perf::settings_to_json(*options);
    document["arms"] = report->arms;
    document["warnings"] = report->warnings;
    if (auto ok = report::write_json(document, arguments.json); !ok) return failure(ok.error().message);
  }
  for (const std::string& warning : report->warnings) std::cerr << "clustar perf: " << warning << "\n";
  return report->warnings.empty() ? 0 : 1;
}

void add_measuring(CLI::App& command, Arguments& arguments) {
  command
      .add_option("--test", arguments.tests,
                  "Comma list of latency, bandwidth, rate, incast, mixed, busbw (default: all but mixed)")
      ->delimiter(',')
      ->type_name("TEST");
  command.add_option("--bytes", arguments.bytes, "Comma list of message sizes, with K or M (default: each test's own)")
      ->delimiter(',')
      ->type_name("N");
  command
      .add_option_function<int>(
          "--rounds", [&arguments](int rounds) { arguments.options.rounds = arguments.suite.rounds = rounds; },
          "Samples of each arm, taken in turn: 5 to 1000 (default: 6); of a suite, rounds of each scenario: 1 or more "
          "(default: its own)")
      ->check(CLI::Validator(CLI::Range(1, 1'000'000)).description(""))
      ->type_name("N");
  command.add_option("--seconds", arguments.options.seconds, "Length of one sample")
      ->check(number_between(0.001, 60.0))
      ->capture_default_str();
  command
      .add_option(
          "--elephants", arguments.options.elephants,
          "Elephants of the mixed load: connections that keep the line busy beside the messages; 0: the idle line")
      ->check(CLI::Range(0, 32))
      ->capture_default_str();
  command
      .add_option("--gap", arguments.options.gap_ms,
                  "Milliseconds from one message of the mixed load to the next, at least")
      ->check(number_between(0.0, 1000.0))
      ->capture_default_str();
  command.add_option("--senders", arguments.options.senders, "Senders of the incast")
      ->check(CLI::Range(1, perf::kMaxPeers))
      ->capture_default_str();
  command
      .add_flag(
          "--limits{fitting}", arguments.limits,
          "Measure what the path gives without a plugin in the same run: --limits=tcp plain TCP as arm L, "
          "--limits=udp bare UDP as arm U, --limits=both; --limits alone takes udp where A runs mlt, otherwise tcp")
      ->check(CLI::IsMember({"fitting", "tcp", "udp", "both"}));
  command
      .add_option("--limit-streams", arguments.options.limit_streams, "Sockets of arm L: as many as the plugin uses")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  command
      .add_option("--congestion", arguments.congestion,
                  "TCP congestion control of every arm; 'default' leaves the kernel's (default: cubic where offered)")
      ->type_name("NAME");
  command.add_flag("--no-pin", arguments.no_pin, "Do not pin receiver and senders to a core each");
  command
      .add_option_function<std::uint64_t>(
          "--seed", [&arguments](std::uint64_t seed) { arguments.options.seed = arguments.suite.seed = seed; },
          "Seed of message contents and of the bootstrap; of a suite: of losses and bursts (default: 1)")
      ->type_name("N");
  command.add_option("--timeout", arguments.timeout_s, "Seconds without progress after which a run fails")
      ->check(number_between(0.5, 3600.0))
      ->capture_default_str();
}

void add_arms(CLI::App& command, Arguments& arguments) {
  command
      .add_option("--plugin", arguments.plugin,
                  "Arm A: a path, or a name as in NCCL_NET_PLUGIN [the one installed with this program]")
      ->type_name("FILE");
  command.add_option("--vs", arguments.vs, "Arm B, measured in turn with A; with --vs-env alone it is A's plugin")
      ->type_name("FILE");
  command
      .add_option("--env", arguments.environment,
                  "Environment of arm A alone: NAME=VALUE,... (\\, is a comma in a value)")
      ->type_name("LIST");
  command.add_option("--vs-env", arguments.vs_environment, "The same for arm B")->type_name("LIST");
  add_fault_options(command, arguments.inject_loss, arguments.inject_faults,
                    "what each end of arm A sends, data and acknowledgements alike; A has to run mlt. On two hosts "
                    "give it to the server too");
  const auto versions = CLI::Range(6, 12) | CLI::IsMember({0});
  command.add_option("--plugin-version", arguments.plugin_version, "Table of A to use (default: its newest)")
      ->check(versions);
  command.add_option("--vs-version", arguments.vs_version, "Table of B to use")->check(versions);
  command.add_option("--device", arguments.device, "Net device of both plugins")
      ->check(CLI::Range(0, 1023))
      ->capture_default_str();
}

void add_hosts(CLI::App& command, Arguments& arguments) {
  auto* server = command.add_flag("--server", arguments.server, "Hold the receivers for a client, until interrupted");
  command.add_option("--port", arguments.port, "Where the server listens")
      ->check(CLI::Range(1, 65535))
      ->capture_default_str()
      ->needs(server);
  command.add_option("--bind", arguments.bind, "Address that the server listens on")
      ->capture_default_str()
      ->needs(server);
  command.add_option("--client", arguments.client, "Measure against the server on this host, [IPv6] in brackets")
      ->type_name("HOST[:PORT]")
      ->excludes(server);
}

}  // namespace

void add_perf(CLI::App& app, int& status) {
  auto* command =
      app.add_subcommand("perf", "Measure any NCCL net plugin, or two side by side; no GPU and no NCCL needed");
  auto arguments = std::make_shared<Arguments>();
  add_arms(*command, *arguments);
  add_measuring(*command, *arguments);
  add_hosts(*command, *arguments);
  add_suite_options(*command, arguments->suite);
  command->add_option("--json", arguments->json, "Write the results to this file; - is standard output")
      ->type_name("FILE");
  command->add_flag("--worker", arguments->worker)->group("");
  command->footer(
      "Exit status: 0 ok, 1 a run failed or the arms were not on equal terms, 2 wrong usage.\n"
      "Example: clustar perf --test latency,bandwidth --limits\n"
      "Two plugins: clustar perf --plugin ./libnccl-net-clustar.so --vs ./libnccl-net-other.so --json perf.json\n"
      "MLT against TCP: clustar perf --env CLUSTAR_TRANSPORT=mlt \\\n"
      "           --vs-env CLUSTAR_TRANSPORT=tcp,CLUSTAR_TCP_CONGESTION=bbr --limits\n"
      "A lossy fabric, TCP beside MLT: clustar perf --suite lossy --quick --json lossy.json");
  command->callback([arguments, &status] { status = run_perf(*arguments); });
}

}  // namespace clustar::bench::cli
