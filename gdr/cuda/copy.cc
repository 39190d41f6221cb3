#include "gdr/cuda/copy.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "gdr/cuda/contained.h"

namespace clustar::gdr::cuda {
namespace {

constexpr unsigned kMostOutstanding = 65536;
constexpr std::size_t kWarmUp = 4096;
constexpr auto kWarmUpPatience = std::chrono::seconds(10);
constexpr const char* kContextEnds = "the CUDA context cannot be used further, the process must start again";
constexpr const char* kNoRoom = "the GPU may be full (nvidia-smi)";
constexpr auto kPatience = std::chrono::seconds(1);

CUdeviceptr pointer(const std::byte* address) { return reinterpret_cast<CUdeviceptr>(address); }

class PinnedBuffer final : public HostBuffer {
 public:
  PinnedBuffer(std::shared_ptr<Home> home, std::span<std::byte> bytes) : home_(std::move(home)), bytes_(bytes) {}
  ~PinnedBuffer() override { home_->free(bytes_.data()); }
  std::span<std::byte> bytes() const override { return bytes_; }

 private:
  std::shared_ptr<Home> home_;
  std::span<std::byte> bytes_;
};

}  // namespace

Result<std::span<std::byte>> Home::allocate(std::size_t bytes) {
  // Room first: what the driver gave is never lost to a failed allocation of ours.
  ranges_.reserve(ranges_.size() + 1);
  late_.reserve(ranges_.size() + late_.size() + 1);
  const Current current(context_);
  void* memory = nullptr;
  CUresult result = current.result();
  if (result == CUDA_SUCCESS) {
    result = cuMemHostAlloc(&memory, bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
  }
  if (result != CUDA_SUCCESS) {
    return tl::unexpected(refused("cuMemHostAlloc", fmt::format("of {} B", bytes), result,
                                  "pinned memory is bounded by the machine's memory and the container's"));
  }
  ranges_.push_back({static_cast<std::byte*>(memory), bytes});
  return std::span<std::byte>(ranges_.back().begin, bytes);
}

void Home::free(std::byte* begin) {
  std::erase_if(ranges_, [&](const Range& range) { return range.begin == begin; });
  if (lost_) return;
  if (busy_) {
    late_.push_back(begin);
  } else {
    release(begin);
  }
}

bool Home::holds(const std::byte* begin, std::size_t bytes) const {
  return std::any_of(ranges_.begin(), ranges_.end(), [&](const Range& range) {
    return begin >= range.begin && bytes <= range.bytes &&
           static_cast<std::size_t>(begin - range.begin) <= range.bytes - bytes;
  });
}

void Home::copies_ended() {
  busy_ = false;
  for (std::byte* begin : late_) release(begin);
  late_.clear();
}

void Home::release(std::byte* begin) {
  const Current current(context_);
  if (current.result() == CUDA_SUCCESS) cuMemFreeHost(begin);
}

Home::~Home() {
  if (!lost_) copies_ended();
}

Result<std::unique_ptr<DeviceCopy>> CudaCopy::open(int device, const CopyOptions& options) {
  if (options.most_outstanding < 1 || options.most_outstanding > kMostOutstanding) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} copies outstanding: 1 to {} are allowed", options.most_outstanding, kMostOutstanding));
  }
  if (auto started = start(); !started) return tl::unexpected(started.error());
  auto context = Context::of(device);
  if (!context) return tl::unexpected(context.error());
  std::unique_ptr<CudaCopy> copy(new CudaCopy(std::move(*context)));
  if (auto prepared = copy->prepare(options.most_outstanding); !prepared) return tl::unexpected(prepared.error());
  return copy;
}

Result<void> CudaCopy::prepare(unsigned most_outstanding) {
  events_.reserve(most_outstanding);
  {
    const Current current(home_->context());
    CUresult result = current.result();
    if (result == CUDA_SUCCESS) result = cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING);
    if (result != CUDA_SUCCESS) return tl::unexpected(refused("cuStreamCreate", "", result, kNoRoom));
    while (events_.size() < most_outstanding) {
      CUevent event = nullptr;
      result = cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
      if (result != CUDA_SUCCESS) return tl::unexpected(refused("cuEventCreate", "", result, kNoRoom));
      events_.push_back(event);
    }
  }
  return warm_up();
}

// A driver may load what a call needs when it is first called, and may wait for the GPU then. So that is now: copies
// both ways.
Result<void> CudaCopy::warm_up() {
  auto page = host_buffer(kWarmUp);
  if (!page) return tl::unexpected(page.error());
  warm_page_ = std::move(*page);
  std::byte* const host = warm_page_->bytes().data();
  {
    const Current current(home_->context());
    CUresult result = current.result();
    if (result == CUDA_SUCCESS) result = cuMemAlloc(&warm_memory_, kWarmUp);
    if (result != CUDA_SUCCESS) {
      return tl::unexpected(refused("cuMemAlloc", fmt::format("of {} B", kWarmUp), result, kNoRoom));
    }
  }
  auto* const device = reinterpret_cast<std::byte*>(warm_memory_);
  const auto to_end = [this](const Result<std::optional<Ticket>>& begun) -> Result<void> {
    if (!begun) return tl::unexpected(begun.error());
    const auto end = std::chrono::steady_clock::now() + kWarmUpPatience;
    while (*begun) {
      const auto ended = done(**begun);
      if (!ended) return tl::unexpected(ended.error());
      if (*ended) return {};
      if (std::chrono::steady_clock::now() > end) break;
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
    return fail(
        ErrorCode::kUnavailable,
        fmt::format("the GPU did not copy {} B within {} s: it is busy; open before kernels wait for the caller",
                    kWarmUp, kWarmUpPatience.count()));
  };
  Result<void> warm = to_end(to_device(device, host, kWarmUp));
  if (warm) warm = to_end(to_host(host, device, kWarmUp));
  return warm;
}

CudaCopy::~CudaCopy() {
  const bool ended = ended_in_time();
  if (!ended) {
    home_->give_up();
    return;
  }
  home_->copies_ended();
  const Current current(home_->context());
  if (warm_memory_ != 0) cuMemFree(warm_memory_);
  for (CUevent event : events_) cuEventDestroy(event);
  if (stream_ != nullptr) cuStreamDestroy(stream_);
}

bool CudaCopy::ended_in_time() {
  if (stream_ == nullptr || dead_) return true;
  const Current current(home_->context());
  const auto end = std::chrono::steady_clock::now() + kPatience;
  for (;;) {
    const CUresult result = cuStreamQuery(stream_);
    if (result == CUDA_SUCCESS || is_dead(result)) return true;
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

tl::unexpected<Error> CudaCopy::end_of_use(Error error) {
  failed_ = Error{error.code, "ended by an earlier error: " + error.message};
  return tl::unexpected(std::move(error));
}

Result<std::unique_ptr<HostBuffer>> CudaCopy::host_buffer(std::size_t bytes) {
  return contained([&]() -> Result<std::unique_ptr<HostBuffer>> {
    if (failed_) return tl::unexpected(*failed_);
    if (bytes == 0) return fail(ErrorCode::kInvalidArgument, "a host buffer of 0 B: at least 1 B is allowed");
    auto allocated = home_->allocate(bytes);
    if (!allocated) return tl::unexpected(allocated.error());
    return std::make_unique<PinnedBuffer>(home_, *allocated);
  });
}

template <class Enqueue>
Result<std::optional<DeviceCopy::Ticket>> CudaCopy::begin(const char* call, Enqueue&& enqueue) {
  return contained([&]() -> Result<std::optional<Ticket>> {
    if (failed_) return tl::unexpected(*failed_);
    if (next_ - oldest_ == events_.size()) {
      const auto ended = ask(oldest_);
      if (!ended) return tl::unexpected(ended.error());
      if (!*ended) return std::nullopt;
    }
    const Current current(home_->context());
    CUresult result = current.result();
    // Of a call that fails nobody knows whether its copy is on its way. So what it may use is kept: until the stream is
    // seen to be idle at the end.
    home_->copies_begin();
    if (result == CUDA_SUCCESS) result = enqueue();
    if (result == CUDA_SUCCESS) result = cuEventRecord(event_of(next_), stream_);
    if (result != CUDA_SUCCESS) return end_of_use(refused(call, "", result, kContextEnds));
    return next_++;
  });
}

Result<std::optional<DeviceCopy::Ticket>> CudaCopy::copy(std::byte* to, const std::byte* from, const std::byte* host,
                                                         std::size_t bytes) {
  // The driver copies from pageable memory by itself, and waits for that.
  if (bytes == 0 || !home_->holds(host, bytes)) {
    return fail(ErrorCode::kInvalidArgument, "a copy of 0 B, or one whose host side is in no buffer of this object");
  }
  return begin("cuMemcpyAsync", [&] { return cuMemcpyAsync(pointer(to), pointer(from), bytes, stream_); });
}

Result<std::optional<DeviceCopy::Ticket>> CudaCopy::to_device(std::byte* device, const std::byte* host,
                                                              std::size_t bytes) {
  return copy(device, host, host, bytes);
}

Result<std::optional<DeviceCopy::Ticket>> CudaCopy::to_host(std::byte* host, const std::byte* device,
                                                            std::size_t bytes) {
  return copy(host, device, host, bytes);
}

Result<bool> CudaCopy::ask(Ticket ticket) {
  CUresult result = CUDA_SUCCESS;
  {
    const OutsideCaptures outside;
    result = cuEventQuery(event_of(ticket));
  }
  if (result == CUDA_ERROR_NOT_READY) return false;
  if (result != CUDA_SUCCESS) {
    dead_ = is_dead(result);
    // An answer that says nothing of the copy: it may still write. It is told once as an error.
    if (failed_ && !dead_) return false;
    if (failed_) return tl::unexpected(*failed_);
    return end_of_use(refused("cuEventQuery", "after a copy", result, kContextEnds));
  }
  oldest_ = ticket + 1;
  // After an error there may be a copy without a ticket behind this one.
  if (oldest_ == next_ && !failed_) home_->copies_ended();
  return true;
}

Result<bool> CudaCopy::done(Ticket ticket) {
  return contained([&]() -> Result<bool> {
    if (ticket == 0 || ticket >= next_) {
      return fail(ErrorCode::kInvalidArgument, fmt::format("no copy has ticket {}", ticket));
    }
    if (ticket < oldest_) return true;
    if (dead_) return tl::unexpected(*failed_);
    return ask(ticket);
  });
}

}  // namespace clustar::gdr::cuda
