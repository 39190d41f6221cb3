#include "bench/cli/lossy_suite.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>

#include "bench/cli/options.h"
#include "bench/lossy/report/page.h"
#include "bench/lossy/suite.h"
#include "bench/lossy/worker.h"
#include "bench/report/report.h"

namespace clustar::bench::cli {

void add_suite_options(CLI::App& command, SuiteArguments& arguments) {
  auto* suite = command.add_option("--suite", arguments.name,
                                   "lossy: TCP, MPTCP and MLT through a lossy fabric of its own (needs root)");
  suite->check(CLI::IsMember({"lossy"}))->excludes("--plugin")->excludes("--server")->excludes("--client");
  command
      .add_option(
          "--scenario", arguments.scenarios,
          "Comma list of loss, incast, micro-bursts, bad-path, shared, cpu (default: all of these); and loss-0, "
          "loss-0.1, loss-5, shared-8ms, shared-40ms, long-haul, which --full adds")
      ->delimiter(',')
      ->type_name("NAME")
      ->needs(suite);
  command
      .add_option("--arms", arguments.arms,
                  "Comma list of tcp-cubic, tcp-bbr, tcp-cubic-rto5, tcp-bbr-rto5, tcp-cubic-ecn, mptcp, clustar-tcp, "
                  "mlt-p0, mlt-p1, "
                  "mlt-gbn, mlt-deadline, mlt-1path (default: those of each scenario), mlt-p0-dpdk, mlt-p1-dpdk, "
                  "mlt-p0-xdp, mlt-p1-xdp")
      ->delimiter(',')
      ->type_name("NAME")
      ->needs(suite);
  auto* quick = command.add_flag("--quick", arguments.quick, "Few rounds and arms: a minute or two")->needs(suite);
  command
      .add_flag("--full", arguments.full,
                "More situations: loss-0, loss-0.1, loss-5, shared-8ms, shared-40ms, long-haul")
      ->needs(suite)
      ->excludes(quick);
  command.add_option("--report", arguments.report, "The results as a page with plots (package gnuplot-nox)")
      ->type_name("FILE.html")
      ->needs(suite);
  command.add_option(lossy::kWorkerOption, arguments.worker)->group("");
}

namespace {

void say(const std::string& message) { std::cerr << "clustar perf: " << message << "\n"; }

Result<void> write_page(const nlohmann::json& document, const std::string& path) {
  const auto page = lossy_report::make_page(document);
  for (const std::string& problem : page.problems) say("warning: plots are missing: " + problem);
  const auto written = report::write_text(page.html, path);
  if (written) std::cerr << fmt::format("Report with {} plots: {}\n", page.plots, path);
  return written;
}

std::string load_text(const nlohmann::json& results, const char* key) {
  std::string text;
  for (const nlohmann::json& one : results.value(key, nlohmann::json::array())) {
    if (one.is_number()) text += fmt::format("{}{:.1f}", text.empty() ? "" : ", ", one.get<double>());
  }
  return text.empty() ? "not known" : text;
}

}  // namespace

int run_suite(const SuiteArguments& arguments, const std::string& json, const std::string& command_line) {
  if (!json.empty() && json == arguments.report) {
    return say(fmt::format("--json and --report both name '{}'; allowed: a file each", json)), kUsage;
  }
  for (const std::string& path : {json, arguments.report}) {
    if (const auto ok = report::check_writable(path); !ok) return say(ok.error().message), kUsage;
  }
  std::ostream& out = json == "-" || arguments.report == "-" ? std::cerr : std::cout;
  const bool live = isatty(STDERR_FILENO) != 0;
  lossy::SuiteEvents events;
  auto said = std::chrono::steady_clock::time_point();
  events.progress = [&](const std::string& line) {
    // In a log, every line stays.
    const auto now = std::chrono::steady_clock::now();
    if (!live && now - said < std::chrono::seconds(5)) return;
    said = now;
    std::cerr << (live ? "\r\x1b[K" : "") << line << (live ? "" : "\n") << std::flush;
  };
  events.scenario = [&](const std::string& table) {
    if (live) std::cerr << "\r\x1b[K" << std::flush;
    out << table << std::flush;
  };
  const auto results = lossy::run_suite({.scenarios = arguments.scenarios,
                                         .arms = arguments.arms,
                                         .rounds = arguments.rounds,
                                         .quick = arguments.quick,
                                         .full = arguments.full,
                                         .seed = arguments.seed},
                                        events);
  if (!results) {
    say(results.error().message);
    return results.error().code == ErrorCode::kInvalidArgument ? kUsage : kFailed;
  }
  out << "\nload average before " << load_text(*results, "load_average_before") << "; after "
      << load_text(*results, "load_average_after") << "\n";
  auto document = report::envelope("perf", *results);
  document["suite"] = "lossy";
  document["command_line"] = command_line;
  if (!json.empty()) {
    if (const auto ok = report::write_json(document, json); !ok) return say(ok.error().message), kFailed;
  }
  if (!arguments.report.empty()) {
    if (const auto ok = write_page(document, arguments.report); !ok) return say(ok.error().message), kFailed;
  }
  const auto failed = lossy::failures(*results, {arguments.scenarios, arguments.arms});
  for (const std::string& one : failed) say(one);
  return failed.empty() ? kOk : kFailed;
}

}  // namespace clustar::bench::cli
