#include "tests/gpu/kernel_check_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "bench/trainer/graph/cuda/dense_arguments.h"
#include "gdr/kernels/arguments.h"
#include "tests/half_reference.h"

namespace clustar::gpu_check {
namespace {

using namespace gdr;
using launch::Device;
using tests::Bfloat16;
using tests::Float16;

// Whole numbers from 0 to below `below`: their sums are exact in every type here.
template <class T>
std::vector<T> numbers(std::size_t count, unsigned below, unsigned step) {
  std::vector<T> all(count);
  for (std::size_t i = 0; i < count; ++i) {
    all[i] = static_cast<T>(static_cast<double>((i * step + i / 977) % below));
  }
  return all;
}

template <class T>
double number(const T& value) {
  return static_cast<double>(value);
}

// Arrays of one case on the device, and what failed first.
class Arrays {
 public:
  explicit Arrays(Device& device) : device_(device) {}

  template <class T>
  T* upload(const std::vector<T>& host) {
    auto memory = device_.allocate(host.size() * sizeof(T));
    if (!memory) {
      failed_ = memory.error();
      return nullptr;
    }
    prepared_.memory.push_back(*memory);
    if (auto done = device_.upload(*memory, host.data(), host.size() * sizeof(T)); !done) failed_ = done.error();
    return static_cast<T*>(*memory);
  }
  Prepared& prepared() { return prepared_; }
  Result<Prepared> finish() {
    if (!failed_) return std::move(prepared_);
    for (void* memory : prepared_.memory) device_.release(memory);
    return tl::unexpected(*failed_);
  }

 private:
  Device& device_;
  Prepared prepared_;
  std::optional<Error> failed_;
};

// Each of `count` results against expected(i), at most `bound` of it and 1e-30 apart.
template <class T, class Expected>
std::function<Result<std::string>()> compared(Device& device, const T* results, std::size_t count, double bound,
                                              Expected expected) {
  return [=, &device]() -> Result<std::string> {
    std::vector<T> got(count);
    if (auto done = device.download(got.data(), results, count * sizeof(T)); !done) return tl::unexpected(done.error());
    for (std::size_t i = 0; i < count; ++i) {
      const double is = number(got[i]);
      const double should = expected(i);
      if (std::abs(is - should) <= bound * std::abs(should) + 1e-30) continue;
      return fmt::format("element {} of {} is {:.9g}, by float64 {:.9g}", i, count, is, should);
    }
    return std::string();
  };
}

template <class T>
Case sum_case(Device& device, const Kernel<SumArguments>& kernel) {
  return {kernel.name, &device, [kernel](Device& on, std::size_t bytes) -> Result<Prepared> {
            const std::size_t count = bytes / sizeof(T);
            const auto a = numbers<T>(count, 60, 7);
            const auto b = numbers<T>(count, 60, 11);
            Arrays arrays(on);
            T* const sum = arrays.upload(a);
            T* const more = arrays.upload(b);
            Prepared& made = arrays.prepared();
            made.launch = [=, &on] { return on.launch(kernel, on.grid_for(count), {sum, more, count}); };
            made.wrong = compared(on, sum, count, 0, [a, b](std::size_t i) { return number(a[i]) + number(b[i]); });
            made.bytes = 3.0 * static_cast<double>(bytes);
            return arrays.finish();
          }};
}

template <class T>
Case importance_case(Device& device, const Kernel<ImportanceArguments>& kernel) {
  return {kernel.name, &device, [kernel](Device& on, std::size_t bytes) -> Result<Prepared> {
            constexpr std::size_t kPacket = 1448;  // payload of a packet of 1,500 bytes, in whole elements
            const std::size_t count = bytes / sizeof(T);
            const std::size_t per_block = kPacket / sizeof(T);
            const std::size_t blocks = (count + per_block - 1) / per_block;
            auto values = numbers<T>(count, 100, 13);
            for (std::size_t i = 0; i < count; i += 3) values[i] = static_cast<T>(-number(values[i]));
            Arrays arrays(on);
            const T* const at = arrays.upload(values);
            float* const sums = arrays.upload(std::vector<float>(blocks, -1));
            Prepared& made = arrays.prepared();
            made.launch = [=, &on] {
              return on.launch(kernel, on.grid_for(blocks * 32), {at, count, per_block, sums});
            };
            made.wrong = compared(on, sums, blocks, 1e-5, [values, per_block, count](std::size_t block) {
              double sum = 0;
              const std::size_t end = std::min(count, (block + 1) * per_block);
              for (std::size_t i = block * per_block; i < end; ++i) sum += std::abs(number(values[i]));
              return sum;
            });
            made.bytes = static_cast<double>(bytes) + static_cast<double>(blocks * sizeof(float));
            return arrays.finish();
          }};
}

Case zero_case(Device& device) {
  return {kZeroRanges.name, &device, [](Device& on, std::size_t bytes) -> Result<Prepared> {
            constexpr std::size_t kRange = 8192;
            std::vector<unsigned long long> ranges;
            std::size_t zeroed = 0;
            for (std::size_t at = 3; at + kRange <= bytes; at += 2 * kRange, zeroed += kRange) {
              ranges.insert(ranges.end(), {at, kRange});
            }
            Arrays arrays(on);
            unsigned char* const base = arrays.upload(std::vector<unsigned char>(bytes, 1));
            const unsigned long long* const list = arrays.upload(ranges);
            const std::size_t count = ranges.size() / 2;
            Prepared& made = arrays.prepared();
            made.launch = [=, &on] { return on.launch(kZeroRanges, on.grid_for(count * 256), {base, list, count}); };
            made.wrong = compared(on, base, bytes, 0, [count](std::size_t i) {
              const bool inside = i >= 3 && (i - 3) / kRange % 2 == 0 && (i - 3) / (2 * kRange) < count;
              return inside ? 0.0 : 1.0;
            });
            made.bytes = static_cast<double>(zeroed);
            return arrays.finish();
          }};
}

// Four ranks, of which one has not contributed to every second segment.
Case rescale_case(Device& device) {
  return {kRescaleF32.name, &device, [](Device& on, std::size_t bytes) -> Result<Prepared> {
            constexpr std::size_t kSegment = 362;  // elements of a packet of 1,500 bytes
            constexpr unsigned kRanks = 4;
            const std::size_t count = bytes / sizeof(float);
            std::vector<unsigned long long> segments;
            for (std::size_t at = 1; at + kSegment <= count; at += 2 * kSegment) {
              segments.insert(segments.end(), {at, kSegment, kRanks - 1});
            }
            const auto values = numbers<float>(count, 100, 17);
            Arrays arrays(on);
            float* const at = arrays.upload(values);
            const unsigned long long* const list = arrays.upload(segments);
            const std::size_t short_ones = segments.size() / 3;
            Prepared& made = arrays.prepared();
            made.launch = [=, &on] {
              return on.launch(kRescaleF32, on.grid_for(short_ones * 256), {at, list, short_ones, kRanks});
            };
            made.wrong = compared(on, at, count, 1e-7, [values, short_ones](std::size_t i) {
              const bool is_short = i >= 1 && (i - 1) / kSegment % 2 == 0 && (i - 1) / (2 * kSegment) < short_ones;
              return values[i] * (is_short ? double{kRanks} / (kRanks - 1) : 1.0);
            });
            made.bytes = 2.0 * static_cast<double>(short_ones * kSegment * sizeof(float));
            return arrays.finish();
          }};
}

using bench::trainer::graph::cuda::GemmArguments;
using bench::trainer::graph::cuda::kTile;

Case map_case(Device& device, const Kernel<bench::trainer::graph::cuda::MapArguments>& kernel, double (*f)(double)) {
  return {kernel.name, &device, [kernel, f](Device& on, std::size_t bytes) -> Result<Prepared> {
            const std::size_t count = bytes / sizeof(float);
            auto x = numbers<float>(count, 1000, 17);
            for (float& one : x) one = one / 250 - 2;
            Arrays arrays(on);
            const float* const from = arrays.upload(x);
            float* const to = arrays.upload(std::vector<float>(count, 77));
            Prepared& made = arrays.prepared();
            made.launch = [=, &on] { return on.launch(kernel, on.grid_for(count), {from, to, count}); };
            made.wrong = compared(on, to, count, 2e-5, [x, f](std::size_t i) { return f(double{x[i]}); });
            made.bytes = 2.0 * static_cast<double>(bytes);
            return arrays.finish();
          }};
}

Case add_case(Device& device) {
  using bench::trainer::graph::cuda::kAdd;
  return {kAdd.name, &device, [](Device& on, std::size_t bytes) -> Result<Prepared> {
            const std::size_t count = bytes / sizeof(float);
            const auto a = numbers<float>(count, 60, 7);
            const auto b = numbers<float>(count, 60, 11);
            Arrays arrays(on);
            const float* const first = arrays.upload(a);
            const float* const second = arrays.upload(b);
            float* const sum = arrays.upload(std::vector<float>(count, 77));
            Prepared& made = arrays.prepared();
            made.launch = [=, &on] { return on.launch(kAdd, on.grid_for(count), {first, second, sum, count}); };
            made.wrong = compared(on, sum, count, 0, [a, b](std::size_t i) { return double{a[i]} + double{b[i]}; });
            made.bytes = 3.0 * static_cast<double>(bytes);
            return arrays.finish();
          }};
}

Case sgd_case(Device& device) {
  using bench::trainer::graph::cuda::kSgd;
  return {kSgd.name, &device, [](Device& on, std::size_t bytes) -> Result<Prepared> {
            constexpr double kRate = 0.125, kMomentum = 0.5, kDecay = 0.25;  // exact in float32
            const std::size_t count = bytes / sizeof(float);
            const auto w = numbers<float>(count, 64, 7);
            const auto g = numbers<float>(count, 64, 11);
            const auto v = numbers<float>(count, 64, 13);
            Arrays arrays(on);
            float* const parameters = arrays.upload(w);
            const float* const gradients = arrays.upload(g);
            float* const velocity = arrays.upload(v);
            Prepared& made = arrays.prepared();
            made.launch = [=, &on] {
              return on.launch(kSgd, on.grid_for(count),
                               {parameters, gradients, velocity, count, static_cast<float>(kRate),
                                static_cast<float>(kMomentum), static_cast<float>(kDecay)});
            };
            made.wrong = compared(on, parameters, count, 1e-6, [w, g, v](std::size_t i) {
              return double{w[i]} - kRate * (kMomentum * double{v[i]} + double{g[i]} + kDecay * double{w[i]});
            });
            made.bytes = 5.0 * static_cast<double>(bytes);
            return arrays.finish();
          }};
}

// Square, of arrays of `bytes` at most 64 MiB, 1,024 elements a side at most.
Case gemm_case(Device& device, const Kernel<GemmArguments>& kernel, bool a_transposed, bool b_transposed) {
  return {kernel.name, &device, [=](Device& on, std::size_t bytes) -> Result<Prepared> {
            const auto root = static_cast<std::size_t>(std::sqrt(static_cast<double>(bytes / sizeof(float))));
            const std::size_t n = std::clamp<std::size_t>(root, 8, 1024) - 3;  // no multiple of a tile
            auto a = numbers<float>(n * n, 16, 7);
            auto b = numbers<float>(n * n, 16, 11);
            Arrays arrays(on);
            const float* const first = arrays.upload(a);
            const float* const second = arrays.upload(b);
            float* const product = arrays.upload(std::vector<float>(n * n, 77));
            const auto tiles = static_cast<unsigned>((n + kTile - 1) / kTile);
            const int side = static_cast<int>(n);
            Prepared& made = arrays.prepared();
            made.launch = [=, &on] {
              return on.launch(kernel, {.x = tiles, .y = tiles, .threads = 256},
                               {first, second, product, side, side, side});
            };
            // Sums of 1,021 products below 256 are exact. A row in 37 is looked at: all would take the host minutes.
            made.wrong = [=, &on]() -> Result<std::string> {
              std::vector<float> got(n * n);
              if (auto done = on.download(got.data(), product, n * n * sizeof(float)); !done) {
                return tl::unexpected(done.error());
              }
              for (std::size_t row = 0; row < n; row += 37) {
                for (std::size_t column = 0; column < n; ++column) {
                  double should = 0;
                  for (std::size_t d = 0; d < n; ++d) {
                    should += double{a[a_transposed ? d * n + row : row * n + d]} *
                              double{b[b_transposed ? column * n + d : d * n + column]};
                  }
                  const double is{got[row * n + column]};
                  if (is != should)
                    return fmt::format("({}, {}) of {} x {} is {}, not {}", row, column, n, n, is, should);
                }
              }
              return std::string();
            };
            made.operations = 2.0 * std::pow(static_cast<double>(n), 3);
            return arrays.finish();
          }};
}

double relu(double x) { return std::max(x, 0.0); }
double same(double x) { return x; }
// The tanh form, as PyTorch's approximate='tanh'.
double gelu(double x) { return x / 2 * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x))); }

}  // namespace

std::vector<Case> all_cases(Device& hooks, Device& trainer) {
  using namespace bench::trainer::graph::cuda;
  return {importance_case<float>(hooks, kImportanceF32),
          importance_case<Float16>(hooks, kImportanceF16),
          importance_case<Bfloat16>(hooks, kImportanceBf16),
          zero_case(hooks),
          rescale_case(hooks),
          sum_case<float>(hooks, kSumF32),
          sum_case<double>(hooks, kSumF64),
          sum_case<Float16>(hooks, kSumF16),
          sum_case<Bfloat16>(hooks, kSumBf16),
          sum_case<std::int8_t>(hooks, kSumI8),
          sum_case<std::int32_t>(hooks, kSumI32),
          sum_case<std::int64_t>(hooks, kSumI64),
          map_case(trainer, kCopy, same),
          map_case(trainer, kRelu, relu),
          map_case(trainer, kGelu, gelu),
          add_case(trainer),
          sgd_case(trainer),
          gemm_case(trainer, kGemmNn, false, false),
          gemm_case(trainer, kGemmNt, false, true),
          gemm_case(trainer, kGemmTn, true, false)};
}

}  // namespace clustar::gpu_check
