// What is known of each communicator in this process. NCCL tells the net plugin the id and the trafficClass (v11 and
// later), the profiler the id, name and size: callers need both.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>

namespace clustar::nccl_plugin {

struct CommFacts {
  std::uint64_t comm_id = 0;
  std::string name;         // ncclConfig_t.commName; empty = none
  std::uint32_t ranks = 0;  // 0: the profiler has not told (it is not loaded, or NCCL is too old)
  std::uint32_t nodes = 0;
  int rank = -1;           // of the first user in this process
  int traffic_class = -1;  // -1 = undefined
  // Of a collective network that this process is in: bit k, where ParaExpress' planner takes an all-reduce of 2^k bytes
  // to be faster there than by a ring. The same on all ranks.
  std::optional<std::uint64_t> collnet_wins{};

  // E of the loss contract, for one process: its number of ranks. A ring enters a node once, but each of its channels
  // may enter by another rank, whose process counts for itself: G processes of a node with p * S * n / (G * nodes) each
  // keep what the node may lose, p * S * n / nodes.
  std::uint32_t edges() const { return ranks; }
};

// Any thread. Several users of one id (ranks that are threads of one process; net and profiler) count as references.
class CommRegistry {
 public:
  // From the net plugin's and the profiler's init, in any order.
  void add_net(std::uint64_t comm_id, int traffic_class);
  void add_profiler(const CommFacts& facts);
  // Between a net plugin's init and its end.
  void set_collnet(std::uint64_t comm_id, std::uint64_t wins);
  void remove_net(std::uint64_t comm_id);
  void remove_profiler(std::uint64_t comm_id);
  std::optional<CommFacts> find(std::uint64_t comm_id) const;

 private:
  struct Entry {
    CommFacts facts;
    int net_users = 0;
    int profiler_users = 0;
  };
  void erase_if_unused(std::uint64_t comm_id);

  mutable std::mutex mutex_;
  std::map<std::uint64_t, Entry> entries_;  // guarded by mutex_
};

}  // namespace clustar::nccl_plugin
