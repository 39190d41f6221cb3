// Three ways for a message between GPU memory and host memory, and copies behind a kernel.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <thread>

#include "tests/gpu/gdr_check_parts.h"

namespace clustar::gdr_check {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::json;
constexpr std::size_t kSlice = 512u << 10;  // of a message that is staged
constexpr unsigned kThreads = 512;          // of a block, as NCCL's kernels have
constexpr auto kPatience = std::chrono::seconds(10);

double microseconds(Clock::duration duration) { return std::chrono::duration<double, std::micro>(duration).count(); }

// Memory on both sides, kernels and a stream; given back at the end.
class Bench {
 public:
  Bench(const Driver& driver, const gdr::cuda::Api& api, const Options& options)
      : driver_(driver), bytes_(options.most_bytes) {
    auto opened = api.open_copy(options.device, {.most_outstanding = 64});
    if (!opened) throw std::runtime_error(opened.error().message);
    copy_ = std::move(*opened);
    auto buffer = copy_->host_buffer(bytes_);
    if (!buffer) throw std::runtime_error(buffer.error().message);
    buffer_ = std::move(*buffer);
    driver_.check(driver_.cuMemAlloc(&device_, bytes_), "cuMemAlloc");
    driver_.check(driver_.cuModuleLoadData(&module_, kKernels), "cuModuleLoadData of our PTX");
    driver_.check(driver_.cuModuleGetFunction(&copy_kernel_, module_, "clustar_copy"), "clustar_copy");
    driver_.check(driver_.cuModuleGetFunction(&wait_kernel_, module_, "clustar_wait"), "clustar_wait");
    driver_.check(driver_.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  }
  ~Bench() {
    buffer_.reset();
    copy_.reset();
    if (stream_ != nullptr) driver_.cuStreamDestroy(stream_);
    if (module_ != nullptr) driver_.cuModuleUnload(module_);
    if (device_ != 0) driver_.cuMemFree(device_);
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  std::byte* host() const { return buffer_->bytes().data(); }
  std::byte* device() const { return reinterpret_cast<std::byte*>(device_); }

  // Slices, all begun before the first is waited for, as far as there is room.
  void by_device_copy(bool to_host, std::size_t bytes) {
    gdr::DeviceCopy::Ticket last = 0;
    for (std::size_t at = 0; at < bytes;) {
      const std::size_t slice = std::min(kSlice, bytes - at);
      const auto begun = to_host ? copy_->to_host(host() + at, device() + at, slice)
                                 : copy_->to_device(device() + at, host() + at, slice);
      if (!begun) throw std::runtime_error(begun.error().message);
      if (!*begun) continue;
      last = **begun;
      at += slice;
    }
    if (!ended(last, kPatience)) throw std::runtime_error("a copy of DeviceCopy did not end");
  }
  void by_one_copy(bool to_host, std::size_t bytes) {
    driver_.check(to_host ? driver_.cuMemcpyDtoH(host(), device_, bytes) : driver_.cuMemcpyHtoD(device_, host(), bytes),
                  "cuMemcpy");
  }
  void by_kernel(bool to_host, std::size_t bytes, unsigned blocks) {
    auto to = to_host ? reinterpret_cast<CUdeviceptr>(host()) : device_;
    auto from = to_host ? device_ : reinterpret_cast<CUdeviceptr>(host());
    unsigned long long count = bytes / 16;
    void* arguments[] = {&to, &from, &count};
    driver_.check(driver_.cuLaunchKernel(copy_kernel_, blocks, 1, 1, kThreads, 1, 1, 0, stream_, arguments, nullptr),
                  "cuLaunchKernel");
    driver_.check(driver_.cuStreamSynchronize(stream_), "cuStreamSynchronize");
  }

  // `flag` is mapped host memory.
  void launch_waiting(std::byte* flag) {
    auto at = reinterpret_cast<CUdeviceptr>(flag);
    unsigned long long most = 1u << 22;  // some seconds: a kernel that nobody frees ends by itself
    void* arguments[] = {&at, &most};
    driver_.check(driver_.cuLaunchKernel(wait_kernel_, 2, 1, 1, 1, 1, 1, 0, stream_, arguments, nullptr),
                  "cuLaunchKernel");
  }
  // Behind whatever the stream has; nobody waits for it.
  void launch_copying() {
    auto to = device_ + bytes_ / 2;
    auto from = device_;
    unsigned long long count = 16;
    void* arguments[] = {&to, &from, &count};
    driver_.check(driver_.cuLaunchKernel(copy_kernel_, 1, 1, 1, kThreads, 1, 1, 0, stream_, arguments, nullptr),
                  "cuLaunchKernel");
  }
  CUstream stream() const { return stream_; }
  void await_kernel() { driver_.check(driver_.cuStreamSynchronize(stream_), "cuStreamSynchronize"); }

  bool ended(gdr::DeviceCopy::Ticket ticket, Clock::duration patience) {
    for (const auto end = Clock::now() + patience; Clock::now() < end;) {
      const auto done = copy_->done(ticket);
      if (!done) throw std::runtime_error(done.error().message);
      if (*done) return true;
    }
    return false;
  }
  gdr::DeviceCopy& copy() { return *copy_; }

  // Other bytes every time, so that nothing of the round before passes for this one's.
  void fill(bool to_host, std::size_t bytes, unsigned seed) {
    source_.resize(bytes);
    for (std::size_t i = 0; i < bytes; ++i) source_[i] = static_cast<std::byte>((i * 2654435761u + seed * 40503u) >> 8);
    if (to_host) {
      driver_.check(driver_.cuMemcpyHtoD(device_, source_.data(), bytes), "cuMemcpyHtoD");
      std::memset(host(), 0, bytes);
    } else {
      std::memcpy(host(), source_.data(), bytes);
    }
  }
  bool arrived(bool to_host, std::size_t bytes) {
    if (to_host) return std::memcmp(host(), source_.data(), bytes) == 0;
    std::vector<std::byte> back(bytes);
    driver_.check(driver_.cuMemcpyDtoH(back.data(), device_, bytes), "cuMemcpyDtoH");
    return back == source_;
  }

 private:
  const Driver& driver_;
  std::size_t bytes_;
  std::unique_ptr<gdr::DeviceCopy> copy_;
  std::unique_ptr<gdr::HostBuffer> buffer_;
  std::vector<std::byte> source_;
  CUdeviceptr device_ = 0;
  CUmodule module_ = nullptr;
  CUfunction copy_kernel_ = nullptr;
  CUfunction wait_kernel_ = nullptr;
  CUstream stream_ = nullptr;
};

struct Way {
  const char* name;
  std::function<void(Bench&, bool, std::size_t)> go;
};
const std::vector<Way> kWays = {
    {"DeviceCopy, slices of 512 KiB",
     [](Bench& bench, bool out, std::size_t bytes) { bench.by_device_copy(out, bytes); }},
    {"one cuMemcpy", [](Bench& bench, bool out, std::size_t bytes) { bench.by_one_copy(out, bytes); }},
    {"kernel, mapped host memory, 2 blocks",
     [](Bench& bench, bool out, std::size_t bytes) { bench.by_kernel(out, bytes, 2); }},
    {"kernel, mapped host memory, 16 blocks",
     [](Bench& bench, bool out, std::size_t bytes) { bench.by_kernel(out, bytes, 16); }},
};

}  // namespace

json stage(const Driver& driver, const gdr::cuda::Api& api, const Options& options) {
  Bench bench(driver, api, options);
  json rows = json::array();
  for (const bool to_host : {true, false}) {
    for (std::size_t bytes = 64u << 10; bytes <= options.most_bytes; bytes *= 4) {
      std::vector<std::vector<double>> samples(kWays.size());
      std::vector<int> wrong(kWays.size());
      // One round more, the first, is not counted: it loads code and touches pages.
      for (int round = 0; round <= options.rounds; ++round) {
        for (std::size_t turn = 0; turn < kWays.size(); ++turn) {
          const std::size_t way = (turn + static_cast<std::size_t>(round)) % kWays.size();
          bench.fill(to_host, bytes, static_cast<unsigned>(round) * 8 + static_cast<unsigned>(way));
          const auto begin = Clock::now();
          kWays[way].go(bench, to_host, bytes);
          const auto end = Clock::now();
          wrong[way] += bench.arrived(to_host, bytes) ? 0 : 1;
          if (round > 0) samples[way].push_back(microseconds(end - begin));
        }
      }
      for (std::size_t way = 0; way < kWays.size(); ++way) {
        const Spread spread = spread_of(samples[way]);
        rows.push_back({{"direction", to_host ? "GPU to host" : "host to GPU"},
                        {"bytes", bytes},
                        {"way", kWays[way].name},
                        {"rounds", options.rounds},
                        {"wrong_rounds", wrong[way]},
                        {"q1_us", spread.q1},
                        {"median_us", spread.median},
                        {"q3_us", spread.q3},
                        {"gbytes_per_s", static_cast<double>(bytes) / spread.median / 1e3}});
      }
    }
  }
  return rows;
}

json copy_behind_a_kernel(const Driver& driver, const gdr::cuda::Api& api, const Options& options) {
  constexpr std::size_t kBytes = 64u << 10;
  Bench bench(driver, api, options);
  const auto flag = bench.copy().host_buffer(64);
  if (!flag) throw std::runtime_error(flag.error().message);
  auto* word = reinterpret_cast<std::uint32_t*>((*flag)->bytes().data());
  using Begun = Result<std::optional<gdr::DeviceCopy::Ticket>>;
  const struct {
    const char* name;
    std::function<Begun()> begin;
  } copies[] = {
      {"to_device", [&] { return bench.copy().to_device(bench.device(), bench.host(), kBytes); }},
      {"to_host", [&] { return bench.copy().to_host(bench.host(), bench.device(), kBytes); }},
  };
  json rows = json::array();
  const std::atomic_ref<std::uint32_t> freed(*word);
  // Both kernels once, so that the driver has loaded them.
  freed.store(1);
  bench.launch_waiting((*flag)->bytes().data());
  bench.launch_copying();
  bench.await_kernel();
  for (const auto& copy : copies) {
    freed.store(0);
    // One kernel that runs and waits, as NCCL's; one behind it that cannot run yet, as the program's next.
    bench.launch_waiting((*flag)->bytes().data());
    bench.launch_copying();
    const auto begin = Clock::now();
    const Begun begun = copy.begin();
    if (!begun || !*begun) throw std::runtime_error(begun ? "there was no room for a copy" : begun.error().message);
    const bool ended = bench.ended(**begun, std::chrono::seconds(1));
    const auto end = Clock::now();
    freed.store(1);
    bench.await_kernel();
    // Where beginning waits for the kernel, that one has ended by itself, later than this.
    rows.push_back({{"copy", copy.name},
                    {"ended_while_the_kernel_waited", ended && end - begin < std::chrono::milliseconds(1500)},
                    {"us", microseconds(end - begin)}});
  }
  return rows;
}

json copy_beside_others(const Driver& driver, const gdr::cuda::Api& api, const Options& options) {
  constexpr std::size_t kBytes = 64u << 10;
  Bench bench(driver, api, options);
  const auto flag = bench.copy().host_buffer(64);
  if (!flag) throw std::runtime_error(flag.error().message);
  const std::atomic_ref<std::uint32_t> freed(*reinterpret_cast<std::uint32_t*>((*flag)->bytes().data()));
  CUcontext context = nullptr;
  driver.check(driver.cuCtxGetCurrent(&context), "cuCtxGetCurrent");
  void* other = nullptr;
  driver.check(driver.cuMemHostAlloc(&other, kBytes, 0), "cuMemHostAlloc");
  json rows = json::array();
  const auto copy_now = [&](const char* beside) {
    const auto begin = Clock::now();
    const auto begun = bench.copy().to_host(bench.host(), bench.device(), kBytes);
    if (!begun || !*begun) throw std::runtime_error(begun ? "there was no room for a copy" : begun.error().message);
    const bool ended = bench.ended(**begun, std::chrono::seconds(1));
    const auto took = Clock::now() - begin;
    rows.push_back(
        {{"beside", beside}, {"ended", ended && took < std::chrono::milliseconds(1500)}, {"us", microseconds(took)}});
  };
  const struct {
    const char* name;
    std::function<CUresult()> call;
  } waiters[] = {
      {"cuStreamSynchronize", [&] { return driver.cuStreamSynchronize(bench.stream()); }},
      {"cuCtxSynchronize", [&] { return driver.cuCtxSynchronize(); }},
      {"cuMemFreeHost", [&] { return driver.cuMemFreeHost(other); }},
  };
  for (const auto& waiter : waiters) {
    freed.store(0);
    bench.launch_waiting((*flag)->bytes().data());
    CUresult result = CUDA_SUCCESS;
    {
      std::jthread inside([&] {
        result = driver.cuCtxPushCurrent(context);
        if (result != CUDA_SUCCESS) return;
        result = waiter.call();
        CUcontext popped = nullptr;
        driver.cuCtxPopCurrent(&popped);
      });
      // The kernel must be let go before the thread is joined, whatever is thrown.
      const std::unique_ptr<const std::atomic_ref<std::uint32_t>, void (*)(const std::atomic_ref<std::uint32_t>*)>
          let_go(&freed, [](const std::atomic_ref<std::uint32_t>* word) { word->store(1); });
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      copy_now(waiter.name);
    }
    driver.check(result, waiter.name);
    bench.await_kernel();
  }
  // What the module does in this thread while it captures: the graph must come out whole.
  driver.check(driver.cuStreamBeginCapture(bench.stream(), CU_STREAM_CAPTURE_MODE_GLOBAL), "cuStreamBeginCapture");
  copy_now("a capture in global mode");
  const auto buffer = bench.copy().host_buffer(64);
  CUgraph graph = nullptr;
  const CUresult captured = driver.cuStreamEndCapture(bench.stream(), &graph);
  rows.back()["capture"] = driver.name_of(captured);
  if (!buffer) rows.back()["capture"] = buffer.error().message;
  if (captured == CUDA_SUCCESS) driver.cuGraphDestroy(graph);
  return rows;
}

}  // namespace clustar::gdr_check
