// What a command is given as workload, read: a trace of coflows, or a mix of jobs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/coflow/generator.h"
#include "bench/coflow/jobs.h"

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

// FILE[:key=value,...], as a user writes it; the text is not read. A path may have colons: keys are what follows the
// last one that has an '=' behind it, and no '/'.
JobSource split_job(const std::string& argument);

bool has_jobs(const Source& source);

// Of a source without jobs, and of one with jobs, at ports of so many bytes per second. Errors: kInvalidArgument, with
// what is allowed.
Result<Trace> trace_of(const Source& source, double bytes_per_s, bool whole_mb = false);
Result<JobMix> mix_of(const Source& source, double bytes_per_s);

}  // namespace clustar::bench::coflow
