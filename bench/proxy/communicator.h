// Collectives on host memory over any net plugin, driven as NCCL's proxy drives it: one service thread and one
// progress thread per communicator, 8 steps of 512 KiB, slices of at most 1 MiB, rings over channels.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bench/proxy/bootstrap.h"
#include "bench/proxy/net_plugin.h"
#include "transport/base/result.h"

namespace clustar::bench::proxy {

class LossReports;

// The 16-bit floats are added in float32, and every sum of two is rounded to them, as NCCL's kernels do.
enum class DataType : std::uint8_t { kFloat32, kFloat64, kInt32, kUint8, kFloat16, kBfloat16 };
enum class ReduceOp : std::uint8_t { kSum, kMax };
// What becomes of an element of which a direct all-reduce did not receive all contributions, because the transport may
// lose a bounded part of them (nccl_plugin/clustar.h).
enum class Missing : std::uint8_t {
  kZero,      // a missing contribution counts as 0
  kRescale,   // the sum of those that came, times ranks / contributions; an element that none sent is 0 (kSum only)
  kResidual,  // as kZero; and each rank learns which of its own contributions were lost
};
enum class Protocol : std::uint8_t { kSimple, kLL, kLL128 };  // LL and LL128 give the wire sizes and posting rules only

struct CommunicatorOptions {
  int device = -1;  // net device of this rank; -1 = rank modulo devices
  int channels = 1;
  Protocol protocol = Protocol::kSimple;
  std::uint64_t comm_id = 0;  // same on all ranks
  int traffic_class = -1;     // -1 = undefined
  std::chrono::milliseconds connect_timeout{30000};
  // Time one transfer step may go without progress before the collective fails (0 = never).
  std::chrono::milliseconds stall_timeout{0};
  // Shared connections, as NCCL's PXN traffic: up to maxRecvs (and 8) channels use one send and one receive comm, a
  // tag per channel, and their receives are posted as one grouped irecv. Same on all ranks.
  bool group_channels = false;
  // iflush after each received Simple slice, as NCCL does for GPU memory; host memory needs none.
  bool force_flush = false;
  // Step buffers in the memory of a GPU that the NIC reaches, as NCCL registers them there: by regMrDmaBuf if the
  // device's ptrSupport says so, otherwise by regMr as NCCL_PTR_CUDA; flushed if the device asks for it (forceFlush),
  // or by force_flush. Host memory plays the GPU's, so only a plugin that emulates takes it.
  bool gpu_memory = false;
  // Connects every pair of ranks, for all_reduce_direct() and all_to_all(): NCCL's p2p connections, one channel each
  // way. Same on all ranks.
  bool direct = false;
  // Where all_reduce_direct() learns what is missing; outlives the communicator. Null: from the plugin's C API.
  LossReports* losses = nullptr;
  std::string comm_name;  // ncclConfig_t.commName, for the profiler
  // The profiler and the tuner of the plugin's library, each in the newest version up to this one, 4 to 6; 0 = as the
  // NCCL that loads this version of the net plugin (net v12: 6, v11: 5, v10: 4, below: none), -1 = none.
  int profiler_version = 0;
  int tuner_version = 0;
};

// What one collective did on this rank.
struct CollectiveStats {
  double seconds = 0;            // from start() to completion
  std::uint64_t bytes_sent = 0;  // payload given to isend
  std::uint64_t bytes_received = 0;
  std::uint64_t steps = 0;                // transfers (isend) completed
  Protocol protocol = Protocol::kSimple;  // what the tuner left of the communicator's
  // Of a direct all-reduce: contributions (elements of one rank) that this rank did not receive, of those it expected.
  std::uint64_t missing_contributions = 0;
  std::uint64_t expected_contributions = 0;
  std::vector<double> step_seconds;  // post to completion of each send step; filled when record_steps is set
};

// A started collective. The buffers must stay valid and untouched until wait() returned. May outlive the communicator,
// whose end completes it with an error.
class Pending {
 public:
  virtual ~Pending() = default;
  virtual bool done() const = 0;               // never blocks; any thread
  virtual Result<CollectiveStats> wait() = 0;  // blocks; error names the failed plugin call and its result
};

// Thread rule: start calls from one thread at a time; collectives execute in start order, the same on all ranks.
class Communicator {
 public:
  virtual ~Communicator() = default;  // closes in NCCL's order, in-flight transfers included (abort)

  // Collective: every rank calls it with the same channels, protocol and grouping. When it fails on one rank it fails
  // on all, naming that rank. `plugin` must outlive the communicator and may serve several; `bootstrap` is used during
  // this call only.
  static Result<std::unique_ptr<Communicator>> create(NetPlugin& plugin, Bootstrap& bootstrap,
                                                      const CommunicatorOptions& options);

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Of the tables in use; 0 = none.
  virtual int profiler_version() const { return 0; }
  virtual int tuner_version() const { return 0; }
  // Applies to collectives started afterwards.
  virtual void record_steps(bool on) = 0;
  // Fails every pending and future collective, without closing anything yet. Any thread.
  virtual void abort() = 0;
  // What the destructor does, with the first error that a deregMr, close or finalize returned. Idempotent.
  virtual Result<void> close() = 0;

  // In place on `data`, count elements. Ring reduce-scatter then all-gather; summation order is fixed by the ring, so
  // all ranks get bit-identical results and a run can be repeated bit for bit.
  virtual std::unique_ptr<Pending> all_reduce(void* data, std::size_t count, DataType type, ReduceOp op) = 0;
  // The same by direct exchange (all-to-all, "transposed": OptiReduce, NSDI 2025): rank r receives block r of every
  // rank as sends and receives, adds them up in rank order, and the sums go round by all-gather, which never loses. A
  // packet that is lost costs one rank's contribution instead of a partial sum. All ranks get bit-identical results; a
  // run without loss can be repeated bit for bit. Sum of floats only. `residual`: null, or `count` elements that
  // receive this rank's own contributions as far as they were lost, and 0 elsewhere (needs kResidual); not touched
  // before wait() returned, as `data`. Needs CommunicatorOptions::direct.
  virtual std::unique_ptr<Pending> all_reduce_direct(void* data, std::size_t count, DataType type, Missing missing,
                                                     void* residual) = 0;
  // `send` holds size() * recv_count elements; rank r receives block r into `recv`.
  virtual std::unique_ptr<Pending> reduce_scatter(const void* send, void* recv, std::size_t recv_count, DataType type,
                                                  ReduceOp op) = 0;
  // `recv` holds size() * send_count elements.
  virtual std::unique_ptr<Pending> all_gather(const void* send, void* recv, std::size_t send_count, DataType type) = 0;
  virtual std::unique_ptr<Pending> broadcast(void* data, std::size_t count, DataType type, int root) = 0;
  // A group of ncclSend and ncclRecv with all peers: `send` holds a block for each rank in rank order, of send_bytes[r]
  // bytes, and `recv` receives one of recv_bytes[r] bytes from each; what rank a sends to b is what b expects of a.
  // Empty blocks are not sent. As bytes they are never lost, whatever rules say. Needs CommunicatorOptions::direct.
  virtual std::unique_ptr<Pending> all_to_all(const void* send, void* recv, std::span<const std::size_t> send_bytes,
                                              std::span<const std::size_t> recv_bytes) = 0;

  // Totals since creation: payload bytes, messages, and the plugin's answers "try again" (NULL request).
  struct Totals {
    std::uint64_t bytes_sent = 0;
    std::uint64_t bytes_received = 0;
    std::uint64_t messages_sent = 0;
    std::uint64_t messages_received = 0;
    std::uint64_t send_retries = 0;
    std::uint64_t idle_yields = 0;
  };
  virtual Totals totals() const = 0;
};

}  // namespace clustar::bench::proxy
