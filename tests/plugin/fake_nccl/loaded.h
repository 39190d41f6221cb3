// Ranks as threads of one process over the loaded .so and real connections on loopback: each with an application thread
// (the caller), a service thread and a progress thread, as NCCL has them. A ring: rank r sends to r + 1.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "bench/proxy/service_thread.h"
#include "tests/plugin/fake_nccl/core.h"
#include "tests/plugin/fake_nccl/library.h"
#include "tests/plugin/fake_nccl/oracle.h"

namespace clustar::tests::fake_nccl {

using Handle = std::array<std::byte, nccl_abi::kHandleBytes>;

// Sums over all ranks of a job, from the oracle and from what arrived.
struct JobTally {
  std::atomic<std::uint64_t> sent{0};
  std::atomic<std::uint64_t> identified{0};                                 // as the oracle demands
  std::array<std::atomic<std::uint64_t>, nccl_plugin::kReasons> reasons{};  // the oracle's first for each message
  std::atomic<std::uint64_t> received{0};
  std::atomic<std::uint64_t> received_bytes{0};
  std::atomic<std::uint64_t> zero_bytes{0};  // arrived as zero where the sender had none
  std::atomic<std::uint64_t> errors{0};
  // What of each send's transfers arrived as zero: (offset, bytes). Only of those that lost any.
  struct Zeros {
    int receiver = 0;
    std::uint64_t number = 0;
    std::uint32_t channel = 0;
    std::uint32_t transfer = 0;
    bool operator<(const Zeros& other) const;
  };
  using Ranges = std::vector<std::pair<std::uint64_t, std::uint64_t>>;
  std::mutex mutex;
  std::map<Zeros, Ranges> zeros;  // guarded by mutex
  std::string first_error;        // guarded by mutex

  void fail(const std::string& what);
};

struct JobOptions {
  int net_version = 11;
  int profiler_version = 5;  // 0: none, and NCCL 2.26's callback
  bool set_net_attr = true;  // false: NCCL never calls it
  Communicator comm;         // of rank 0
  const PolicyTruth* policy = nullptr;
  // Whether the connections are of a transport that may lose, as the environment was set.
  bool transport_may_lose = true;
};

class LoadedRank;

// All ranks. Calls are the application's; run() waits for the progress threads, at most `limit`.
class Job {
 public:
  Job(const Library& library, const JobOptions& options);
  ~Job();
  // A communicator split with shared resources: the parents' connections and threads, profiler contexts of its own.
  // `comm` is rank 0's, of as many ranks.
  void split(const Communicator& comm);
  // Every rank launches the task on the communicator (0 = the parent, 1 = the child); `faults` are rank 0's. A send
  // goes to the next rank of the ring.
  void launch(std::size_t comm, const Task& task, const Faults& faults = {});
  // A graph of one task, launched `times`.
  void replay(std::size_t comm, const Task& task, int times);
  // False: not done within `limit`.
  bool run(std::chrono::seconds limit);
  JobTally& tally() { return tally_; }

 private:
  JobTally tally_;
  std::vector<std::unique_ptr<LoadedRank>> ranks_;
};

// One rank's side of the connections, and the wire of all its communicators.
class LoadedWire final : public Wire {
 public:
  LoadedWire(NetTable& net, const JobOptions& options, JobTally& tally);
  ~LoadedWire() override;
  // Service thread. Every call returns at once; false: not yet.
  void listen(std::vector<Handle>& handles);
  bool connect(std::vector<Handle>& handles);
  void register_memory();
  void close();

  bool has_net_attr() const override { return net_.has_net_attr() && options_.set_net_attr; }
  void set_net_attr(const nccl_abi::NetAttr& attr) override;
  bool isend(const ProxyOp& op, std::uint32_t transfer, void* phandle) override;
  bool test(const ProxyOp& op) override;
  // Progress thread: posts and completes receives; `expected` transfers are still to come on the channel.
  bool post_receive(std::uint32_t channel, void* phandle);
  bool complete_receive(std::uint32_t channel, JobTally::Ranges& zeros);
  JobTally& tally() { return tally_; }

  void* context = nullptr;
  // Of the communicator that sends next; set before each core's round.
  const Communicator* speaking = nullptr;

 private:
  struct Connection {
    void* listen = nullptr;
    void* send = nullptr;
    void* recv = nullptr;
    void* send_mr = nullptr;
    void* recv_mr = nullptr;
    std::deque<void*> sends;
    std::deque<std::pair<void*, std::size_t>> receives;  // request, slot
    std::uint64_t posted = 0;
    std::vector<std::byte> slots;
  };
  bool check(int result, const char* call);
  void count(const ProxyOp& op, std::uint32_t transfer);
  void tell_connection(std::size_t channel);

  static constexpr std::size_t kSlots = 4;

  NetTable& net_;
  const JobOptions& options_;
  JobTally& tally_;
  std::size_t slot_bytes_;
  std::vector<std::byte> pattern_;
  std::vector<Connection> connections_;
  WireTruth truth_;
};

}  // namespace clustar::tests::fake_nccl
