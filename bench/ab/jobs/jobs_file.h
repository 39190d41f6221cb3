// The TOML file of `clustar ab --jobs`. The format is in docs/ab.md.
#pragma once

#include <string>
#include <vector>

#include "bench/ab/jobs/job.h"
#include "transport/base/result.h"

namespace clustar::bench::ab::jobs {

inline constexpr std::size_t kMostJobs = 32;
inline constexpr double kMostStartS = 3600;

// The file's content.
Result<std::string> read_jobs_text(const std::string& path);

// Of such a content; `path` is for messages and for the folder. At least two jobs, names that differ, the first start
// at 0. Paths of traces are taken from the file's folder. kInvalidArgument: "FILE:LINE: job 'NAME': key: what is wrong;
// allowed: ...", with the line where one is to blame.
Result<std::vector<JobSpec>> parse_jobs(const std::string& content, const std::string& path);

// How many hosts the jobs need.
int hosts_of(const std::vector<JobSpec>& jobs);

}  // namespace clustar::bench::ab::jobs
