#include "bench/trainer/nccl/collective.h"

#include <fmt/format.h>

#include <cstring>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "bench/trainer/failed_pending.h"
#include "bench/trainer/nccl/communicator.h"
#include "bench/trainer/nccl/direct_exchange.h"

namespace clustar::bench::trainer {
namespace {

int nccl_type(Precision type) {
  switch (type) {
    case Precision::kFloat32: return kNcclFloat32;
    case Precision::kBfloat16: return kNcclBfloat16;
    case Precision::kFloat16: return kNcclFloat16;
  }
  return kNcclFloat32;
}

class NcclCollective final : public Collective {
 public:
  NcclCollective(const NcclLibrary& library, const NcclOptions& options, int size)
      : communicator_(library, options), size_(size) {}
  ~NcclCollective() override { (void)close(); }

  Result<void> connect(int rank, const NcclUniqueId& id) {
    rank_ = rank;
    if (const auto& direct = communicator_.options().direct) {
      auto exchange = DirectExchange::open(*direct, communicator_.options().comm_name, rank, size_);
      if (!exchange) return tl::unexpected(exchange.error());
      exchange_ = std::move(*exchange);
    }
    return communicator_.connect(rank, size_, id, exchange_ != nullptr ? exchange_->stream() : nullptr);
  }

  int size() const override { return size_; }

  bool takes_device_memory() const override { return true; }

  Buffer map(void* host, std::size_t bytes) override {
    const CudaCalls& cuda = communicator_.cuda();
    void* device = nullptr;
    if (auto ok = communicator_.check_cuda(cuda.malloc(&device, bytes), "cudaMalloc"); !ok) {
      keep_error({ok.error().code, fmt::format("{} of {} bytes", ok.error().message, bytes)});
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

  void adopt(Buffer device, std::size_t bytes) override {
    if (exchange_ == nullptr) return;
    if (auto ok = exchange_->adopt(communicator_, device.device, bytes); !ok) keep_error(ok.error());
  }

  std::unique_ptr<Pending> all_reduce(Buffer values, std::size_t count, Precision type, Event ready, float*) override {
    if (exchange_ != nullptr) return exchange(values, count, type, ready);
    const Piece all{values, count * element_bytes(type)};
    return run(all, {all}, ready, "ncclAllReduce", [&] {
      return communicator_.nccl().all_reduce(values.device, values.device, count, nccl_type(type), kNcclSum,
                                             communicator_.comm(), communicator_.stream());
    });
  }

  std::unique_ptr<Pending> all_gather(Buffer own, Buffer all, std::size_t bytes, Event ready) override {
    const Piece received{all, bytes * static_cast<std::size_t>(size_)};
    return run({own, bytes}, {received}, ready, "ncclAllGather", [&] {
      return communicator_.nccl().all_gather(own.device, all.device, bytes, kNcclUint8, communicator_.comm(),
                                             communicator_.stream());
    });
  }

  std::unique_ptr<Pending> reduce_scatter(Buffer values, std::size_t count, Precision type, Event ready) override {
    const std::size_t bytes = count * element_bytes(type);
    const Buffer own = values.at(static_cast<std::size_t>(rank_) * bytes);
    return run({values, bytes * static_cast<std::size_t>(size_)}, {{own, bytes}}, ready, "ncclReduceScatter", [&] {
      return communicator_.nccl().reduce_scatter(values.device, own.device, count, nccl_type(type), kNcclSum,
                                                 communicator_.comm(), communicator_.stream());
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
      const NcclCalls& nccl = communicator_.nccl();
      int result = nccl.group_start();
      for (const auto& [peer, out, in] : parts) {
        if (result != kNcclSuccess) break;
        if (out.bytes > 0)
          result =
              nccl.send(out.buffer.device, out.bytes, kNcclUint8, peer, communicator_.comm(), communicator_.stream());
        if (result == kNcclSuccess && in.bytes > 0)
          result =
              nccl.recv(in.buffer.device, in.bytes, kNcclUint8, peer, communicator_.comm(), communicator_.stream());
      }
      const int ended = nccl.group_end();
      return result != kNcclSuccess ? result : ended;
    });
  }

  void abort() override { communicator_.abort(); }

  Result<void> close() override {
    if (std::exchange(closed_, true)) return {};
    Result<void> first;
    const auto keep = [&](const Result<void>& result) {
      if (!result && first) first = result;
    };
    if (exchange_ != nullptr && !communicator_.aborted()) keep(exchange_->give_up_registrations(communicator_));
    keep(communicator_.finalize());
    if (!communicator_.drained()) {
      // What the device may still touch stays, until the process ends.
      static_cast<void>(exchange_.release());
      return first ? fail(ErrorCode::kSystem, "NCCL's device did not end its work in time") : first;
    }
    const CudaCalls& cuda = communicator_.cuda();
    for (void* host : registered_) keep(communicator_.check_cuda(cuda.host_unregister(host), "cudaHostUnregister"));
    for (void* device : mirrors_) keep(communicator_.check_cuda(cuda.free(device), "cudaFree"));
    if (exchange_ != nullptr) keep(exchange_->free_memory(communicator_));
    keep(communicator_.destroy_stream());
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
    return begin(nullptr, ready, [&]() -> Result<void> {
      if (auto ok = copy(in.buffer.device, in.buffer.host, in.bytes, kHostToDevice, in.buffer.host); !ok) return ok;
      if (auto ok = communicator_.settle(launch(), call); !ok) return ok;
      for (const auto& [buffer, bytes] : out) {
        if (auto ok = copy(buffer.host, buffer.device, bytes, kDeviceToHost, buffer.host); !ok) return ok;
      }
      return {};
    });
  }

  std::unique_ptr<Pending> exchange(Buffer values, std::size_t count, Precision type, Event ready) {
    if (values.host != nullptr || type != Precision::kFloat32) {
      return failed_pending(
          {ErrorCode::kInvalidArgument, "a direct exchange sums float32 that is in a device's memory alone"});
    }
    const auto notes = std::make_shared<ExchangeNotes>();
    return begin(notes, ready, [&] {
      return exchange_->all_reduce(communicator_, reinterpret_cast<float*>(values.device), count, notes);
    });
  }

  // `add` gives the stream its work, behind `ready`.
  template <typename Add>
  std::unique_ptr<Pending> begin(std::shared_ptr<const ExchangeNotes> notes, Event ready, const Add& add) {
    if (error_) return failed_pending(*error_);
    if (communicator_.aborted()) return failed_pending(communicator_.aborted_error());
    auto pending = std::make_unique<NcclPending>(communicator_, NcclCommunicator::Clock::now(), std::move(notes));
    const auto started = [&]() -> Result<void> {
      if (ready.handle != nullptr) {
        const int held = communicator_.cuda().stream_wait_event(communicator_.stream(), ready.handle, 0);
        if (auto ok = communicator_.check_cuda(held, "cudaStreamWaitEvent"); !ok) return ok;
      }
      if (auto ok = add(); !ok) return ok;
      return pending->mark_end();
    }();
    if (!started) {
      communicator_.abort(started.error());
      return failed_pending(started.error());
    }
    return pending;
  }

  // Nothing where the buffer has no side on the host.
  Result<void> copy(void* to, const void* from, std::size_t bytes, int kind, const void* host) {
    if (host == nullptr || bytes == 0) return {};
    const int copied = communicator_.cuda().memcpy_async(to, from, bytes, kind, communicator_.stream());
    return communicator_.check_cuda(copied, "cudaMemcpyAsync");
  }

  void keep_error(const Error& error) {
    if (!error_) error_ = error;
  }

  NcclCommunicator communicator_;
  std::unique_ptr<DirectExchange> exchange_;  // null: NCCL's own all-reduces
  int rank_ = 0;
  int size_;
  std::vector<void*> mirrors_;
  std::vector<void*> registered_;
  std::optional<Error> error_;  // of what was mapped or adopted
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
