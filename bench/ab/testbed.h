// Where the ranks of a comparison run: the hosts of a fabric made for it, this machine's loopback, or a cluster.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/ab/cluster/starter.h"
#include "bench/fabric/fabric.h"
#include "bench/fabric/probe.h"
#include "transport/base/result.h"

namespace clustar::bench::ab {

// At the switch's ports, all together.
struct SwitchCounters {
  std::uint64_t packets = 0, bytes = 0, drops = 0;
};

// What is started once per rank, and once per helper in their way.
struct Job {
  std::vector<std::string> arguments;  // after "clustar train", without --rank, --size and --root
  std::map<std::string, std::string> environment;
  int ranks = 0;                                                     // on the first hosts; 0: all that the testbed has
  std::vector<int> hosts = {};                                       // of each rank; empty: in order
  std::function<void(const nlohmann::json& record)> on_record = {};  // of rank 0; may be empty
  std::chrono::seconds limit{0};            // a run that takes longer is ended, and fails; 0: none
  int helpers = 0;                          // of ParaExpress, on the hosts behind the ranks
  std::chrono::seconds stall_timeout{120};  // theirs
  bool keep_failed = false;                 // results that say what failed count as results
};

class Testbed {
 public:
  // Makes a fabric named ab-<process id>, and removes those that comparisons left which were killed. Errors: see
  // Fabric::up(). Ranks are on the hosts from 0 on; 0: one on each.
  static Result<Testbed> on_fabric(fabric::FabricSpec spec, int ranks = 0);
  static Testbed on_loopback(int ranks);
  // Ranks are started by mpirun, torchrun or srun, and the network is what they find.
  static Testbed on_cluster(cluster::Spec spec, int ranks);
  // On such a cluster or fabric, or without one on loopback.
  static Result<Testbed> make(const std::optional<cluster::Spec>& cluster,
                              const std::optional<fabric::FabricSpec>& fabric, int ranks);
  // Ends what runs on the fabric and removes it.
  ~Testbed();
  Testbed(Testbed&& other) noexcept;
  Testbed& operator=(Testbed&&) = delete;

  int ranks() const { return ranks_; }
  const std::optional<fabric::Fabric>& fabric() const { return fabric_; }
  // Of the ranks' network; "" on a cluster, where the plugin chooses.
  const char* interface() const {
    if (cluster_) return "";
    return fabric_ ? fabric::kHostInterface : "lo";
  }
  // The kernel's default where the ranks run; on a cluster that of this host.
  std::string congestion_control() const;
  Result<SwitchCounters> counters() const;  // zeros without a fabric
  // That the fabric's queues hold packets; nothing without one.
  Result<std::optional<fabric::PacketProof>> prove() const;

  static std::string program();  // this one's path
  // What begins the words of a command of clustar that runs on a host; its first word is the program.
  std::vector<std::string> words_on(int host) const;
  // "ADDRESS:PORT" of a host of the fabric where no run was yet: none waits for an old socket.
  std::string next_root(int host);

  // Runs `clustar train` as one rank per host, on a cluster as the launcher places them, and returns rank 0's results.
  // Errors name the rank that failed; by then all have ended. A run that failed after it had begun to measure is an
  // error too, unless keep_failed.
  Result<nlohmann::json> run(const Job& job);

 private:
  // On host 0, or on loopback.
  Result<std::string> free_root();
  Result<nlohmann::json> run_here(const Job& job);
  Result<nlohmann::json> run_on_cluster(const Job& job);
  explicit Testbed(int ranks) : ranks_(ranks) {}

  int ranks_;
  std::optional<fabric::Fabric> fabric_;
  std::optional<cluster::Spec> cluster_;
  int runs_ = 0;
};

}  // namespace clustar::bench::ab
