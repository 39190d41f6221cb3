#include "bench/trainer/nccl/communicator.h"

#include <fmt/format.h>

#include <thread>

namespace clustar::bench::trainer {
namespace {

using Clock = NcclCommunicator::Clock;
constexpr std::chrono::microseconds kPoll{20};

Clock::time_point deadline_after(std::chrono::milliseconds timeout) {
  return timeout.count() > 0 ? Clock::now() + timeout : Clock::time_point::max();
}

}  // namespace

Result<void> NcclCommunicator::connect(int rank, int size, const NcclUniqueId& id, void* stream) {
  NcclConfig config;
  config.blocking = 0;  // so that a rank that never comes is an error and no hang
  config.min_ctas = config.max_ctas = options_.channels;
  if (!options_.comm_name.empty()) config.comm_name = options_.comm_name.c_str();
  stream_ = stream;
  if (stream_ == nullptr) {
    const int created = library_.cuda.stream_create(&stream_, kStreamNonBlocking);
    if (auto ok = check_cuda(created, "cudaStreamCreate"); !ok) return ok;
    owns_stream_ = true;
  }
  const int begun = library_.nccl.comm_init_rank_config(&comm_, size, id, rank, &config);
  return settle_until(begun, "ncclCommInitRankConfig", deadline_after(options_.join_timeout));
}

Result<void> NcclCommunicator::check_cuda(int result, const char* call) const {
  if (result == kCudaSuccess) return {};
  library_.cuda.get_last_error();
  return fail(ErrorCode::kSystem, fmt::format("{}: {}", call, library_.cuda.get_error_string(result)));
}

Error NcclCommunicator::nccl_error(int result, const char* call) const {
  const char* const more = comm_ != nullptr ? library_.nccl.get_last_error(comm_) : nullptr;
  return {ErrorCode::kRemote, fmt::format("{}: {}{}{}", call, library_.nccl.get_error_string(result),
                                          more != nullptr && *more != '\0' ? ": " : "", more != nullptr ? more : "")};
}

Result<void> NcclCommunicator::settle(int result, const char* call) const {
  return settle_until(result, call, deadline_after(options_.stall_timeout));
}

Result<void> NcclCommunicator::settle_until(int result, const char* call, Clock::time_point deadline) const {
  while (result == kNcclInProgress) {
    if (Clock::now() > deadline) {
      return fail(ErrorCode::kRemote, fmt::format("{} did not end in time; is every rank there?", call));
    }
    std::this_thread::sleep_for(kPoll);
    int asynchronous = kNcclSuccess;
    result = library_.nccl.comm_get_async_error(comm_, &asynchronous);
    if (result == kNcclSuccess) result = asynchronous;
  }
  if (result == kNcclSuccess) return {};
  return tl::unexpected(nccl_error(result, call));
}

Result<void> NcclCommunicator::health() const {
  int asynchronous = kNcclSuccess;
  const int result = library_.nccl.comm_get_async_error(comm_, &asynchronous);
  const int error = result != kNcclSuccess ? result : asynchronous;
  if (error == kNcclSuccess || error == kNcclInProgress) return {};
  return tl::unexpected(nccl_error(error, "NCCL"));
}

void NcclCommunicator::abort(std::optional<Error> why) {
  if (std::exchange(aborted_, true)) return;
  why_aborted_ = std::move(why);
  if (comm_ != nullptr) library_.nccl.comm_abort(std::exchange(comm_, nullptr));
  drained_ = drain();
}

bool NcclCommunicator::drain() const {
  if (stream_ == nullptr) return true;
  void* last = nullptr;
  if (library_.cuda.event_create(&last, kEventDisableTiming) != kCudaSuccess) return false;
  int state = library_.cuda.event_record(last, stream_);
  const Clock::time_point deadline = deadline_after(options_.close_timeout);
  if (state == kCudaSuccess) state = library_.cuda.event_query(last);
  while (state == kCudaNotReady && Clock::now() < deadline) {
    std::this_thread::sleep_for(kPoll);
    state = library_.cuda.event_query(last);
  }
  library_.cuda.event_destroy(last);
  return state == kCudaSuccess;
}

Error NcclCommunicator::aborted_error() const {
  if (why_aborted_) return *why_aborted_;
  return {ErrorCode::kRemote, drained_ ? "the communicator was aborted"
                                       : "the communicator was aborted, and its device did not end its work in time"};
}

Result<void> NcclCommunicator::finalize() {
  if (comm_ == nullptr) return {};
  const auto ended =
      settle_until(library_.nccl.comm_finalize(comm_), "ncclCommFinalize", deadline_after(options_.close_timeout));
  if (!ended) {
    abort();
    return ended;
  }
  const int destroyed = library_.nccl.comm_destroy(std::exchange(comm_, nullptr));
  if (destroyed == kNcclSuccess) return {};
  return tl::unexpected(nccl_error(destroyed, "ncclCommDestroy"));
}

Result<void> NcclCommunicator::destroy_stream() {
  if (!std::exchange(owns_stream_, false)) return {};
  return check_cuda(library_.cuda.stream_destroy(std::exchange(stream_, nullptr)), "cudaStreamDestroy");
}

NcclPending::NcclPending(NcclCommunicator& communicator, Clock::time_point started,
                         std::shared_ptr<const ExchangeNotes> notes)
    : communicator_(communicator),
      started_(started),
      notes_(std::move(notes)),
      end_(std::make_shared<EndTime::element_type>(0)) {}

NcclPending::~NcclPending() {
  if (done_ != nullptr) communicator_.cuda().event_destroy(done_);
}

void NcclPending::note_end(void* argument) {
  const std::unique_ptr<EndTime> end(static_cast<EndTime*>(argument));
  (*end)->store(Clock::now().time_since_epoch().count());
}

Result<void> NcclPending::mark_end() {
  const CudaCalls& cuda = communicator_.cuda();
  const int created = cuda.event_create(&done_, kEventDisableTiming);
  if (auto ok = communicator_.check_cuda(created, "cudaEventCreate"); !ok) return ok;
  auto argument = std::make_unique<EndTime>(end_);
  const int launched = cuda.launch_host_function(communicator_.stream(), note_end, argument.get());
  if (auto ok = communicator_.check_cuda(launched, "cudaLaunchHostFunc"); !ok) return ok;
  static_cast<void>(argument.release());  // note_end deletes it
  return communicator_.check_cuda(cuda.event_record(done_, communicator_.stream()), "cudaEventRecord");
}

Result<CollectiveOutcome> NcclPending::wait() {
  if (communicator_.aborted()) return tl::unexpected(communicator_.aborted_error());
  Result<void> ended = wait_for_end();
  const Clock::time_point end{Clock::duration(end_->load())};  // the notes were written before
  if (ended && notes_ != nullptr && notes_->error) ended = tl::unexpected(*notes_->error);
  if (!ended) {
    communicator_.abort(ended.error());
    return tl::unexpected(ended.error());
  }
  CollectiveOutcome outcome{.seconds = std::chrono::duration<double>(end - started_).count()};
  if (notes_ != nullptr) {
    outcome.missing_contributions = notes_->missing;
    outcome.expected_contributions = notes_->expected;
  }
  return outcome;
}

Result<void> NcclPending::hold_back(Stream stream) {
  const int held = communicator_.cuda().stream_wait_event(stream.handle, done_, 0);
  return communicator_.check_cuda(held, "cudaStreamWaitEvent");
}

Result<void> NcclPending::wait_for_end() const {
  const Clock::time_point deadline = deadline_after(communicator_.options().stall_timeout);
  for (;;) {
    const int state = communicator_.cuda().event_query(done_);
    if (state == kCudaSuccess) return {};
    if (state != kCudaNotReady) return communicator_.check_cuda(state, "cudaEventQuery");
    if (auto ok = communicator_.health(); !ok) return ok;
    if (Clock::now() > deadline) {
      return fail(ErrorCode::kRemote, fmt::format("NCCL did not end it within {} s, the --stall-timeout",
                                                  communicator_.options().stall_timeout.count() / 1000));
    }
    std::this_thread::sleep_for(kPoll);
  }
}

}  // namespace clustar::bench::trainer
