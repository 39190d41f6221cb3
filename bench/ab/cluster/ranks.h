// One training, by ranks that mpirun, torchrun or srun started.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "bench/ab/cluster/starter.h"
#include "transport/base/result.h"

namespace clustar::bench::ab::cluster {

struct Training {
  std::string program;                             // clustar, at the same path on every host
  std::vector<std::string> arguments;              // after "clustar train", without those that say which rank it is
  std::map<std::string, std::string> environment;  // of all ranks
  int ranks = 1;
  std::string root;  // HOST:PORT
  std::string port;  // a free one of this machine; of torchrun
  std::chrono::seconds limit{0};
  std::function<void(const nlohmann::json& record)> on_record = {};  // of any rank; may be empty
  std::function<int()> interrupted = {};                             // a signal's number, or 0
};

// The whole command. `train --launcher env` finds its rank in the starter's variables, and reports on standard output,
// which all three bring to their own: no file system has to be shared.
std::vector<std::string> command_of(const Spec& spec, const Training& training);

// Rank 0's results, with "hosts": [{rank, host, network}], the ranks' own words of where they are. Errors say which
// rank failed, or how the starter ended, with its last words and what to do about it; by then the starter has ended,
// and with it its ranks.
Result<nlohmann::json> train(const Spec& spec, const Training& training);

// In how many places, as hosts and network namespaces: ranks in one reach each other without a network.
std::size_t count_places(const nlohmann::json& hosts);

}  // namespace clustar::bench::ab::cluster
