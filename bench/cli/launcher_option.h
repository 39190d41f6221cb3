// `clustar train --launcher env`: one rank of several that mpirun, torchrun or srun started.
#pragma once

#include <string>

#include "bench/trainer/config.h"

namespace CLI {
class App;
}

namespace clustar::bench::cli {

// After --rank and --size, which contradict it.
void add_launcher_option(CLI::App& command, bool& by_launcher, const std::string& group);
// Rank, size and root, where that is not given, of a process with `by_launcher`; of others nothing. Rank 0 tells which
// launcher it was, unless `quiet`. Returns what is wrong, for people; empty: all is well.
std::string take_launcher(bool by_launcher, int most_ranks, bool quiet, trainer::RankOptions& rank);

}  // namespace clustar::bench::cli
