#include "bench/perf/busbw.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

namespace clustar::bench::perf {
namespace {

constexpr int kRanks = 2;

// Small integers, so that sums are exact and order does not matter.
float value_of(std::uint64_t seed, int rank, std::size_t i) {
  return static_cast<float>((seed * 31 + static_cast<std::uint64_t>(rank) * 7 + i) % 4096);
}

}  // namespace

Result<std::unique_ptr<Busbw>> Busbw::open(proxy::NetPlugin& plugin, int device, int rank, const std::string& root,
                                           std::chrono::milliseconds timeout) {
  auto bootstrap = proxy::Bootstrap::join({rank, kRanks, root, timeout, timeout});
  if (!bootstrap) return tl::unexpected(bootstrap.error());
  proxy::CommunicatorOptions options;
  options.device = device;
  options.comm_id = 0x627573;
  options.connect_timeout = timeout;
  options.stall_timeout = timeout;
  auto communicator = proxy::Communicator::create(plugin, **bootstrap, options);
  if (!communicator) return tl::unexpected(communicator.error());
  auto busbw = std::make_unique<Busbw>();
  busbw->communicator_ = std::move(*communicator);
  return busbw;
}

Result<Sample> Busbw::run(std::size_t bytes, std::uint64_t count, std::uint64_t seed,
                          std::atomic<std::uint64_t>& progress) {
  const std::size_t elements = std::max<std::size_t>(bytes / sizeof(float), 1);
  if (memory_.size() != elements * sizeof(float)) {
    auto memory = Memory::allocate(elements * sizeof(float));
    if (!memory) return tl::unexpected(memory.error());
    memory_ = std::move(*memory);
  }
  const std::span<float> values(reinterpret_cast<float*>(memory_.data()), elements);
  const auto reduce = [&] {
    auto done =
        communicator_->all_reduce(values.data(), elements, proxy::DataType::kFloat32, proxy::ReduceOp::kSum)->wait();
    progress.store(progress.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    return done;
  };
  // Zero stays zero however often it is summed. The first one lets the slower rank catch up.
  std::fill(values.begin(), values.end(), 0.0f);
  if (auto ok = reduce(); !ok) return tl::unexpected(ok.error());
  Sample sample;
  const double cpu_before = cpu_seconds();
  const auto begin = Clock::now();
  for (std::uint64_t i = 0; i < count; ++i) {
    if (auto ok = reduce(); !ok) return tl::unexpected(ok.error());
  }
  sample.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  sample.cpu_s = cpu_seconds() - cpu_before;
  const int rank = communicator_->rank();
  for (std::size_t i = 0; i < elements; ++i) values[i] = value_of(seed, rank, i);
  if (auto ok = reduce(); !ok) return tl::unexpected(ok.error());
  for (std::size_t i = 0; i < elements; ++i) {
    const float expected = value_of(seed, 0, i) + value_of(seed, 1, i);
    if (values[i] == expected) continue;
    return fail(ErrorCode::kInternal,
                fmt::format("wrong data: element {} of an all-reduce of {} bytes is {} instead of {}", i, bytes,
                            values[i], expected));
  }
  // Busbw of an all-reduce is 2 (n-1)/n of the buffer; for two ranks the buffer itself.
  sample.delivered_bytes = count * elements * sizeof(float);
  return sample;
}

}  // namespace clustar::bench::perf
