// The conformance tester as a library: choose checks, run them, report.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/conform/check.h"
#include "bench/conform/runner.h"
#include "transport/base/result.h"

namespace clustar::bench::conform {

struct Options {
  Env env;           // env.version 0: every exported version, the long checks on the newest
  std::string only;  // comma list of patterns: a glob of the whole name, or a part of it; empty = all
};

struct Line {
  std::string name;  // group.what
  std::string rule;
  std::string source;
  int version = 0;
  Finding finding;
};

// What the cases of nccl.h ran on.
struct NcclRun {
  std::string version;
  std::string library;
  int interrupted_by = 0;  // a signal; the cases after it did not run
};

struct Report {
  std::string plugin;
  std::vector<int> versions;  // exported, newest first
  bool emulated_gpu = false;
  std::vector<Line> lines;
  double seconds = 0;
  std::optional<NcclRun> nccl;

  int count(Outcome outcome) const;
};

// The checks that `only` selects, in running order.
std::vector<Check> select(const std::string& only);

// The tables that the library exports, found out in a process of its own. Errors: no such file, not loadable, no net
// plugin; each names what was looked for.
Result<std::vector<int>> probe(const std::string& plugin);

using OnStart = std::function<void(const std::string& name, int version)>;
using OnEnd = std::function<void(const Line&)>;

// Call from a process without threads. Progress is told before and after each check; either may be empty.
// Errors are those of probe, a version that is not exported, a pattern that selects nothing.
Result<Report> run(const Options& options, const OnStart& on_start, const OnEnd& on_end);

// `results` of the JSON contract.
nlohmann::json to_json(const Report& report);
// The table for people.
std::string to_table(const Report& report);
// Name, rule and source of each check.
std::string list_checks(const std::string& only);

}  // namespace clustar::bench::conform
