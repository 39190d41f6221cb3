// The files of `clustar train`: none that it writes may be another one that it writes or reads.
#pragma once

#include <string>

#include "bench/trainer/config.h"

namespace clustar::bench::cli {

// What of --json (`json_path`), --record-compute, --checkpoint, and the files that are read, is the same file, by
// whatever names, as a message for people; before any of them is touched. A checkpoint may replace the one that it
// resumes. Empty: all is well.
std::string path_contradiction(const trainer::TrainConfig& config, const std::string& json_path);

}  // namespace clustar::bench::cli
