// One communicator of NCCL's with its stream, as its collectives and their pending operations share it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "bench/trainer/collective.h"
#include "bench/trainer/nccl/library.h"
#include "bench/trainer/nccl/options.h"
#include "transport/base/result.h"

namespace clustar::bench::trainer {

class NcclCommunicator {
 public:
  using Clock = std::chrono::steady_clock;

  NcclCommunicator(NcclLibrary library, NcclOptions options)
      : library_(std::move(library)), options_(std::move(options)) {}

  // `stream` null: it makes one of its own. Waits at most for the options' join_timeout.
  Result<void> connect(int rank, int size, const NcclUniqueId& id, void* stream);
  // Ends its kernels at once. Only then do the copies behind them run, which may still write to a buffer that its owner
  // is about to free: all of them are waited for.
  // `why`: what it is about, which all that wait are told.
  void abort(std::optional<Error> why = {});
  bool aborted() const { return aborted_; }
  Error aborted_error() const;
  // Whether the device is done with all of it. Otherwise what it may still touch has to stay.
  bool drained() const { return aborted_ ? drained_ : drain(); }
  Result<void> finalize();
  Result<void> destroy_stream();

  const NcclCalls& nccl() const { return library_.nccl; }
  const CudaCalls& cuda() const { return library_.cuda; }
  const NcclOptions& options() const { return options_; }
  void* comm() const { return comm_; }
  void* stream() const { return stream_; }

  Result<void> check_cuda(int result, const char* call) const;
  // Until a call of the communicator, which does not block, has done its work: at most for the options' stall_timeout.
  Result<void> settle(int result, const char* call) const;
  Result<void> health() const;  // what failed while nobody called

 private:
  Error nccl_error(int result, const char* call) const;
  Result<void> settle_until(int result, const char* call, Clock::time_point deadline) const;
  bool drain() const;

  NcclLibrary library_;
  NcclOptions options_;
  void* comm_ = nullptr;
  void* stream_ = nullptr;
  bool owns_stream_ = false;
  bool aborted_ = false;
  bool drained_ = false;  // by an abort
  std::optional<Error> why_aborted_;
};

// What an exchange found out by itself, before the end of its work on the device.
struct ExchangeNotes {
  std::uint64_t missing = 0;   // as CollectiveOutcome
  std::uint64_t expected = 0;  // as CollectiveOutcome
  std::optional<Error> error{};
};

// Behind all that the communicator's stream was given when it was marked.
class NcclPending final : public Pending {
 public:
  // `communicator` outlives it. `notes`: null, or written before the end.
  NcclPending(NcclCommunicator& communicator, NcclCommunicator::Clock::time_point started,
              std::shared_ptr<const ExchangeNotes> notes);
  ~NcclPending() override;
  Result<void> mark_end();

  // One that failed has ended its copies, too: the communicator is of no use then, and is aborted.
  Result<CollectiveOutcome> wait() override;
  Result<void> hold_back(Stream stream) override;

 private:
  using EndTime = std::shared_ptr<std::atomic<NcclCommunicator::Clock::rep>>;
  static void note_end(void* argument);  // on a thread of the CUDA runtime, in the stream's order
  Result<void> wait_for_end() const;

  NcclCommunicator& communicator_;
  NcclCommunicator::Clock::time_point started_;
  std::shared_ptr<const ExchangeNotes> notes_;
  EndTime end_;
  void* done_ = nullptr;
};

}  // namespace clustar::bench::trainer
