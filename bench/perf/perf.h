// `clustar perf`: measures one net plugin, or two next to each other, and what plain TCP or bare UDP gives on the path.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/perf/other_cpu.h"
#include "bench/perf/statistics.h"
#include "bench/perf/wire.h"
#include "transport/base/result.h"

namespace clustar::bench::perf {

enum class Test : std::uint8_t { kLatency, kBandwidth, kRate, kIncast, kMixed, kBusbw };
const char* to_string(Test test);
std::optional<Test> parse_test(const std::string& name);

struct Options {
  PluginSpec a;
  std::optional<PluginSpec> b;
  bool limit_tcp = false;
  bool limit_udp = false;
  int limit_streams = 1;           // of the TCP limit
  std::vector<Test> tests;         // empty = all
  std::vector<std::size_t> bytes;  // empty = each test's own sizes
  int rounds = 6;
  double seconds = 0.3;              // of one sample
  int senders = 4;                   // of an incast
  int elephants = 4;                 // of a mixed load
  double gap_ms = 10;                // between two messages of it
  std::string congestion = "cubic";  // "" = the kernel's default; an arm's CLUSTAR_TCP_CONGESTION comes before it
  // Faults injected into arm A by its environment, for the report: as FaultSpec's text, and its fraction of loss.
  std::string inject_faults;
  double inject_loss = 0;
  bool pin = true;
  std::uint64_t seed = 1;
  std::chrono::milliseconds timeout{30000};
  std::optional<std::string> server;  // host:port
  std::string executable = "/proc/self/exe";
};

struct Row {
  Test test;
  std::size_t bytes;
};
std::vector<Row> plan(const Options& options);
const char* unit_of(Test test);
bool lower_is_better(Test test);

// One arm in one row; per round in the order of rounds.
struct ArmValues {
  std::vector<double> values;  // in the row's unit
  std::vector<double> gbps;
  std::vector<double> cpu_sleeping;  // seconds per Gbit, both sides; empty where not measured
  std::vector<double> cpu_spinning;
  Loss lost;  // in all samples
  double delivered_bytes = 0;
  Histogram histogram;        // of round trips or incast messages
  std::uint64_t count = 0;    // repetitions in one sample
  double sample_seconds = 0;  // median
};

struct RowResult {
  Row row;
  ArmValues a;
  std::optional<ArmValues> b;
  std::optional<ArmValues> limit;
  std::optional<ArmValues> limit_udp;
  std::optional<RatioEstimate> ratio;        // a / b
  std::optional<RatioEstimate> limit_ratio;  // a / limit
  std::optional<RatioEstimate> limit_udp_ratio;
  std::optional<OtherCpu> other_cpu;         // here, over the rounds
  std::optional<OtherCpu> other_cpu_server;  // the same on the server's machine, when that is another
};
// What to bear in mind with a row. Unlike a warning a note changes no exit status.
std::vector<std::string> notes(const RowResult& result);

struct Report {
  nlohmann::json arms;  // {a, b, limit, limit_udp}: Arm::description() and "notes" on the arm
  std::vector<RowResult> rows;
  std::vector<std::string> warnings;  // a plugin that failed to unload, arms on unequal terms
};

struct Events {
  std::function<void(const nlohmann::json& arms)> on_start;
  std::function<void(const Row&, const std::string& what)> on_step;  // before each sample
  std::function<void(const RowResult&)> on_row;
};

// Error: what could not be started, or which worker failed in which row. All workers are gone on return.
Result<Report> run(const Options& options, const Events& events);

// The `results` and `settings` of the JSON file.
nlohmann::json results_to_json(const Report& report, const Options& options);
nlohmann::json settings_to_json(const Options& options);

}  // namespace clustar::bench::perf
