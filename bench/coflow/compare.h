// One workload under several policies.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/coflow/generator.h"
#include "bench/coflow/render.h"
#include "coflow/registry.h"

namespace clustar::bench::coflow {

// A file of AICB as a job, and how it runs: keys of AicbOptions.
struct JobSource {
  std::string name;
  std::string text;
  std::string keys;
};

// The text of a trace (of coflows, or Muri's of jobs), how to generate one, or jobs.
struct Source {
  std::string name;
  std::string text;
  std::string muri_keys;  // of MuriOptions
  std::optional<GeneratorOptions> generator;
  std::vector<JobSource> jobs;
};

struct CompareOptions {
  std::vector<std::string> policies;  // specs; "all"; empty: ours
  std::string rules = "exact";        // exact, coflowsim, coflowsim-stock
  double port_gbps = 1;               // 1e9 bit/s; CoflowSim's rules have their own
  std::optional<Duration> refill;     // Rules::refill; otherwise what a port takes for 12.5 MB: 100 ms at 1 Gbit/s
  bool per_coflow = false;            // with Summary::each
};

// `line` overwrites the one before; `done` ends it.
using Say = std::function<void(const std::string& line, bool done)>;

// Errors: kInvalidArgument for what the caller asked for, or a bad trace.
Result<Comparison> compare(const Source& source, const CompareOptions& options, const Say& say);

}  // namespace clustar::bench::coflow
