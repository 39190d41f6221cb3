#include "bench/trainer/nccl_collective.h"

#include <fmt/format.h>

#include <atomic>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "bench/trainer/failed_pending.h"

namespace clustar::bench::trainer {
namespace {

using SteadyClock = std::chrono::steady_clock;
constexpr std::chrono::microseconds kPoll{20};

SteadyClock::time_point deadline_after(std::chrono::milliseconds timeout) {
  return timeout.count() > 0 ? SteadyClock::now() + timeout : SteadyClock::time_point::max();
}

int nccl_type(Precision type) {
  switch (type) {
    case Precision::kFloat32: return kNcclFloat32;
    case Precision::kBfloat16: return kNcclBfloat16;
    case Precision::kFloat16: return kNcclFloat16;
  }
  return kNcclFloat32;
}

// One communicator with its stream: what the collective and its pending operations share.
struct Communicator {
  NcclLibrary library;
  NcclOptions options;
  void* comm = nullptr;
  void* stream = nullptr;
  bool aborted = false;
  bool drained = false;  // by an abort

  Result<void> cuda(int result, const char* call) const {
    if (result == kCudaSuccess) return {};
    library.cuda.get_last_error();
    return fail(ErrorCode::kSystem, fmt::format("{}: {}", call, library.cuda.get_error_string(result)));
  }

  Error nccl_error(int result, const char* call) const {
    const char* const more = comm != nullptr ? library.nccl.get_last_error(comm) : nullptr;
    return {ErrorCode::kRemote, fmt::format("{}: {}{}{}", call, library.nccl.get_error_string(result),
                                            more != nullptr && *more != '\0' ? ": " : "", more != nullptr ? more : "")};
  }

  // Until a call of the communicator, which does not block, has done its work.
  Result<void> settle(int result, const char* call, SteadyClock::time_point deadline) const {
    while (result == kNcclInProgress) {
      if (SteadyClock::now() > deadline) {
        return fail(ErrorCode::kRemote, fmt::format("{} did not end in time; is every rank there?", call));
      }
      std::this_thread::sleep_for(kPoll);
      int asynchronous = kNcclSuccess;
      result = library.nccl.comm_get_async_error(comm, &asynchronous);
      if (result == kNcclSuccess) result = asynchronous;
    }
    if (result == kNcclSuccess) return {};
    return tl::unexpected(nccl_error(result, call));
  }

  // What failed while nobody called.
  Result<void> health() const {
    int asynchronous = kNcclSuccess;
    const int result = library.nccl.comm_get_async_error(comm, &asynchronous);
    const int error = result != kNcclSuccess ? result : asynchronous;
    if (error == kNcclSuccess || error == kNcclInProgress) return {};
    return tl::unexpected(nccl_error(error, "NCCL"));
  }

  // An abort ends the kernels at once, and only then do the copies behind them run: they may still write to a buffer
  // that its owner is about to free.
  void abort() {
    if (std::exchange(aborted, true)) return;
    if (comm != nullptr) library.nccl.comm_abort(std::exchange(comm, nullptr));
    drained = drain();
  }

  // Whether all that the stream was given is done within the time to close.
  bool drain() const {
    if (stream == nullptr) return true;
    void* last = nullptr;
    if (library.cuda.event_create(&last, kEventDisableTiming) != kCudaSuccess) return false;
    int state = library.cuda.event_record(last, stream);
    const SteadyClock::time_point deadline = deadline_after(options.close_timeout);
    if (state == kCudaSuccess) state = library.cuda.event_query(last);
    while (state == kCudaNotReady && SteadyClock::now() < deadline) {
      std::this_thread::sleep_for(kPoll);
      state = library.cuda.event_query(last);
    }
    library.cuda.event_destroy(last);
    return state == kCudaSuccess;
  }

  Error aborted_error() const {
    return {ErrorCode::kRemote, drained ? "the communicator was aborted"
                                        : "the communicator was aborted, and its device did not end its work in time"};
  }
};

using EndTime = std::shared_ptr<std::atomic<SteadyClock::rep>>;

// On a thread of the CUDA runtime, in the stream's order.
void note_end(void* argument) {
  const std::unique_ptr<EndTime> end(static_cast<EndTime*>(argument));
  (*end)->store(SteadyClock::now().time_since_epoch().count());
}

class NcclPending final : public Pending {
 public:
  NcclPending(Communicator& communicator, SteadyClock::time_point started)
      : communicator_(communicator), started_(started), end_(std::make_shared<EndTime::element_type>(0)) {}
  ~NcclPending() override {
    if (done_ != nullptr) communicator_.library.cuda.event_destroy(done_);
  }

  // Behind all that the stream was given.
  Result<void> mark_end() {
    const CudaCalls& cuda = communicator_.library.cuda;
    if (auto ok = communicator_.cuda(cuda.event_create(&done_, kEventDisableTiming), "cudaEventCreate"); !ok) return ok;
    auto argument = std::make_unique<EndTime>(end_);
    const int launched = cuda.launch_host_function(communicator_.stream, note_end, argument.get());
    if (auto ok = communicator_.cuda(launched, "cudaLaunchHostFunc"); !ok) return ok;
    static_cast<void>(argument.release());  // note_end deletes it
    return communicator_.cuda(cuda.event_record(done_, communicator_.stream), "cudaEventRecord");
  }

  // One that failed has ended its copies, too: the communicator is of no use then, and is aborted.
  Result<CollectiveOutcome> wait() override {
    if (communicator_.aborted) return tl::unexpected(communicator_.aborted_error());
    const auto ended = wait_for_end();
    if (!ended) {
      communicator_.abort();
      return tl::unexpected(ended.error());
    }
    const SteadyClock::time_point end{SteadyClock::duration(end_->load())};
    return CollectiveOutcome{.seconds = std::chrono::duration<double>(end - started_).count()};
  }

  Result<void> hold_back(Stream stream) override {
    const int held = communicator_.library.cuda.stream_wait_event(stream.handle, done_, 0);
    return communicator_.cuda(held, "cudaStreamWaitEvent");
  }

 private:
  Result<void> wait_for_end() const {
    const SteadyClock::time_point deadline = deadline_after(communicator_.options.stall_timeout);
    for (;;) {
      const int state = communicator_.library.cuda.event_query(done_);
      if (state == kCudaSuccess) return {};
      if (state != kCudaNotReady) return communicator_.cuda(state, "cudaEventQuery");
      if (auto ok = communicator_.health(); !ok) return ok;
      if (SteadyClock::now() > deadline) {
        return fail(ErrorCode::kRemote, fmt::format("NCCL did not end it within {} s, the --stall-timeout",
                                                    communicator_.options.stall_timeout.count() / 1000));
      }
      std::this_thread::sleep_for(kPoll);
    }
  }

  Communicator& communicator_;
  SteadyClock::time_point started_;
  EndTime end_;
  void* done_ = nullptr;
};

class NcclCollective final : public Collective {
 public:
  NcclCollective(NcclLibrary library, const NcclOptions& options, int size) : size_(size) {
    communicator_.library = std::move(library);
    communicator_.options = options;
  }
  ~NcclCollective() override { (void)close(); }

  Result<void> connect(int rank, const NcclUniqueId& id) {
    rank_ = rank;
    NcclConfig config;
    config.blocking = 0;  // so that a rank that never comes is an error and no hang
    config.min_ctas = config.max_ctas = communicator_.options.channels;
    if (!communicator_.options.comm_name.empty()) config.comm_name = communicator_.options.comm_name.c_str();
    const CudaCalls& cuda = communicator_.library.cuda;
    const int created = cuda.stream_create(&communicator_.stream, kStreamNonBlocking);
    if (auto ok = communicator_.cuda(created, "cudaStreamCreate"); !ok) return ok;
    const int begun = communicator_.library.nccl.comm_init_rank_config(&communicator_.comm, size_, id, rank, &config);
    return communicator_.settle(begun, "ncclCommInitRankConfig", deadline_after(communicator_.options.join_timeout));
  }

  int size() const override { return size_; }

  bool takes_device_memory() const override { return true; }

  Buffer map(void* host, std::size_t bytes) override {
    const CudaCalls& cuda = communicator_.library.cuda;
    void* device = nullptr;
    if (auto ok = communicator_.cuda(cuda.malloc(&device, bytes), "cudaMalloc"); !ok) {
      if (!error_) error_ = Error{ok.error().code, fmt::format("{} of {} bytes", ok.error().message, bytes)};
      return {};
    }
    mirrors_.push_back(device);
    // Where that is refused, the copies are slower and hold up the caller, and right all the same.
    if (cuda.host_register(host, bytes, 0) == kCudaSuccess) {
      registered_.push_back(host);
    } else {
      cuda.get_last_error();
    }
    return {static_cast<std::byte*>(host), static_cast<std::byte*>(device)};
  }

  std::unique_ptr<Pending> all_reduce(Buffer values, std::size_t count, Precision type, Event ready, float*) override {
    const Piece all{values, count * element_bytes(type)};
    return run(all, {all}, ready, "ncclAllReduce", [&] {
      return communicator_.library.nccl.all_reduce(values.device, values.device, count, nccl_type(type), kNcclSum,
                                                   communicator_.comm, communicator_.stream);
    });
  }

  std::unique_ptr<Pending> all_gather(Buffer own, Buffer all, std::size_t bytes, Event ready) override {
    const Piece received{all, bytes * static_cast<std::size_t>(size_)};
    return run({own, bytes}, {received}, ready, "ncclAllGather", [&] {
      return communicator_.library.nccl.all_gather(own.device, all.device, bytes, kNcclUint8, communicator_.comm,
                                                   communicator_.stream);
    });
  }

  std::unique_ptr<Pending> reduce_scatter(Buffer values, std::size_t count, Precision type, Event ready) override {
    const std::size_t bytes = count * element_bytes(type);
    const Buffer own = values.at(static_cast<std::size_t>(rank_) * bytes);
    return run({values, bytes * static_cast<std::size_t>(size_)}, {{own, bytes}}, ready, "ncclReduceScatter", [&] {
      return communicator_.library.nccl.reduce_scatter(values.device, own.device, count, nccl_type(type), kNcclSum,
                                                       communicator_.comm, communicator_.stream);
    });
  }

  // What a rank has for itself stays in host memory. As bytes, which never lose.
  std::unique_ptr<Pending> all_to_all(Buffer send, Buffer recv, const BlockSizes& bytes) override {
    struct Part {
      int peer;
      Piece out, in;
    };
    std::vector<Part> parts;
    std::vector<Piece> received;
    std::size_t sent = 0;
    std::size_t expected = 0;
    for (int peer = 0; peer < size_; ++peer) {
      const auto block = static_cast<std::size_t>(peer);
      const Part part{peer, {send.at(sent), bytes.send[block]}, {recv.at(expected), bytes.recv[block]}};
      sent += part.out.bytes;
      expected += part.in.bytes;
      if (peer != rank_) {
        parts.push_back(part);
        received.push_back(part.in);
      } else if (part.out.bytes > 0) {
        std::memcpy(part.in.buffer.host, part.out.buffer.host, part.out.bytes);
      }
    }
    return run({send, sent}, received, {}, "ncclGroupEnd", [&] {
      const NcclCalls& nccl = communicator_.library.nccl;
      int result = nccl.group_start();
      for (const auto& [peer, out, in] : parts) {
        if (result != kNcclSuccess) break;
        if (out.bytes > 0)
          result = nccl.send(out.buffer.device, out.bytes, kNcclUint8, peer, communicator_.comm, communicator_.stream);
        if (result == kNcclSuccess && in.bytes > 0)
          result = nccl.recv(in.buffer.device, in.bytes, kNcclUint8, peer, communicator_.comm, communicator_.stream);
      }
      const int ended = nccl.group_end();
      return result != kNcclSuccess ? result : ended;
    });
  }

  void abort() override { communicator_.abort(); }

  Result<void> close() override {
    if (std::exchange(closed_, true)) return {};
    Result<void> first = finalize();
    if (communicator_.aborted ? !communicator_.drained : !communicator_.drain()) {
      // What the device may still touch stays, until the process ends.
      return first ? fail(ErrorCode::kSystem, "NCCL's device did not end its work in time") : first;
    }
    const CudaCalls& cuda = communicator_.library.cuda;
    const auto keep = [&](int result, const char* call) {
      if (auto ok = communicator_.cuda(result, call); !ok && first) first = ok;
    };
    for (void* host : registered_) keep(cuda.host_unregister(host), "cudaHostUnregister");
    for (void* device : mirrors_) keep(cuda.free(device), "cudaFree");
    if (communicator_.stream != nullptr) keep(cuda.stream_destroy(communicator_.stream), "cudaStreamDestroy");
    return first;
  }

  std::optional<Traffic> traffic() const override { return std::nullopt; }

 private:
  struct Piece {
    Buffer buffer;
    std::size_t bytes = 0;
  };
  // Copies in, `launch`es, copies out, all in the stream's order.
  template <typename Launch>
  std::unique_ptr<Pending> run(const Piece& in, const std::vector<Piece>& out, Event ready, const char* call,
                               const Launch& launch) {
    if (error_) return failed_pending(*error_);
    if (communicator_.aborted) return failed_pending(communicator_.aborted_error());
    auto pending = std::make_unique<NcclPending>(communicator_, SteadyClock::now());
    const auto started = [&]() -> Result<void> {
      const CudaCalls& cuda = communicator_.library.cuda;
      void* const stream = communicator_.stream;
      if (ready.handle != nullptr) {
        const int held = cuda.stream_wait_event(stream, ready.handle, 0);
        if (auto ok = communicator_.cuda(held, "cudaStreamWaitEvent"); !ok) return ok;
      }
      if (auto ok = copy(in.buffer.device, in.buffer.host, in.bytes, kHostToDevice, in.buffer.host); !ok) return ok;
      const auto deadline = deadline_after(communicator_.options.stall_timeout);
      if (auto ok = communicator_.settle(launch(), call, deadline); !ok) return ok;
      for (const auto& [buffer, bytes] : out) {
        if (auto ok = copy(buffer.host, buffer.device, bytes, kDeviceToHost, buffer.host); !ok) return ok;
      }
      return pending->mark_end();
    }();
    if (!started) {
      communicator_.abort();
      return failed_pending(started.error());
    }
    return pending;
  }

  // Nothing where the buffer has no side on the host.
  Result<void> copy(void* to, const void* from, std::size_t bytes, int kind, const void* host) {
    if (host == nullptr || bytes == 0) return {};
    const int copied = communicator_.library.cuda.memcpy_async(to, from, bytes, kind, communicator_.stream);
    return communicator_.cuda(copied, "cudaMemcpyAsync");
  }

  Result<void> finalize() {
    if (communicator_.comm == nullptr) return {};
    const NcclCalls& nccl = communicator_.library.nccl;
    const auto ended = communicator_.settle(nccl.comm_finalize(communicator_.comm), "ncclCommFinalize",
                                            deadline_after(communicator_.options.close_timeout));
    if (!ended) {
      communicator_.abort();
      return ended;
    }
    const int destroyed = nccl.comm_destroy(std::exchange(communicator_.comm, nullptr));
    if (destroyed == kNcclSuccess) return {};
    return tl::unexpected(communicator_.nccl_error(destroyed, "ncclCommDestroy"));
  }

  Communicator communicator_;
  int rank_ = 0;
  int size_;
  std::vector<void*> mirrors_;
  std::vector<void*> registered_;
  std::optional<Error> error_;  // of mapping
  bool closed_ = false;
};

Result<void> choose_device(const NcclLibrary& library, int rank) {
  const auto devices = library.devices();
  if (!devices) return tl::unexpected(devices.error());
  if (const int set = library.cuda.set_device(rank % *devices); set != kCudaSuccess) {
    return fail(ErrorCode::kUnavailable,
                fmt::format("cudaSetDevice({}): {}", rank % *devices, library.cuda.get_error_string(set)));
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Collective>> create_nccl_collective(const NcclLibrary& library, proxy::Bootstrap& bootstrap,
                                                           const NcclOptions& options) {
  if (auto ok = choose_device(library, bootstrap.rank()); !ok) return tl::unexpected(ok.error());
  NcclUniqueId id{};
  const int drawn = bootstrap.rank() == 0 ? library.nccl.get_unique_id(&id) : kNcclSuccess;
  // Rank 0 takes part even if it failed: the others would wait for it.
  const auto ids = bootstrap.all_gather(std::as_bytes(std::span(&id, 1)));
  if (!ids) return tl::unexpected(ids.error());
  if (drawn != kNcclSuccess) {
    return fail(ErrorCode::kSystem, fmt::format("ncclGetUniqueId: {}: {}", library.nccl.get_error_string(drawn),
                                                library.nccl.get_last_error(nullptr)));
  }
  std::memcpy(&id, ids->data(), sizeof id);
  auto collective = std::make_unique<NcclCollective>(library, options, bootstrap.size());
  if (auto ok = collective->connect(bootstrap.rank(), id); !ok) {
    collective->abort();
    return tl::unexpected(ok.error());
  }
  return collective;
}

}  // namespace clustar::bench::trainer
