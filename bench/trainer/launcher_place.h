// Which rank a process is, where mpirun, torchrun or srun started it.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "transport/base/result.h"

namespace clustar::bench::trainer {

struct LauncherPlace {
  std::string launcher;  // for people
  int rank = 0;
  int size = 1;
  std::string root;  // HOST:PORT, unchecked; empty: one rank, which needs none
};

// As std::getenv: null where a variable is not set.
using ReadVariable = std::function<const char*(const char* name)>;

// Of the launchers whose variables are there, the innermost: torchrun, OpenMPI, what talks PMI (MPICH, Intel MPI),
// srun, within which any other may have been started (torchrun only by LOCAL_RANK and TORCHELASTIC_RUN_ID, too). Where
// rank 0 listens is `root`, or if that is empty MASTER_ADDR and MASTER_PORT, with the next port where torchrun listens
// at that one itself. kInvalidArgument: no launcher, half of one, two that contradict each other, what is no number or
// no port, a rank that size does not have, no root.
Result<LauncherPlace> place_by_launcher(const ReadVariable& read, const std::string& root);

// {"place": {rank, host, network}}: where this process is, by the host's name and the number of its network namespace.
// Ranks with both alike reach each other without a network.
nlohmann::json place_record(int rank);

}  // namespace clustar::bench::trainer
