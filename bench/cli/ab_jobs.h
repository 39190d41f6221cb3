// clustar ab --jobs: several jobs at once on one fabric.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "bench/ab/experiment.h"
#include "bench/cli/ab_output.h"
#include "bench/fabric/spec.h"

namespace clustar::bench::cli {

struct AbJobsArguments {
  std::string file;
  // Of a process that the command starts itself, to play a job's trace.
  std::string play;
  std::string fabric;
  int report_fd = -1;
  std::uint64_t digest = 0;  // of the text that the jobs were read from
};

// What it shares with the comparison of two arms.
struct AbJobsInput {
  ab::Plan training;  // its arms, train, channels, rounds and stall_timeout_s
  fabric::FabricSpec fabric;
  bool hosts_given = false;  // otherwise as many as the jobs need
  int limit_s = 1800;
  AbOutput output;
  bool ticks = false;  // how far jobs are, on a terminal
};

// Returns --jobs, by which it is asked for.
CLI::Option* add_ab_jobs_options(CLI::App& command, AbJobsArguments& arguments);
// Returns the exit status.
int run_ab_jobs(const AbJobsArguments& arguments, const AbJobsInput& input);
int play_ab_job(const AbJobsArguments& arguments, int limit_s);

}  // namespace clustar::bench::cli
