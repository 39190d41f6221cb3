// Inputs, references and comparisons for collectives: every rank can compute what every other rank gave.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "bench/proxy/communicator.h"
#include "bench/proxy/steps.h"
#include "tests/half_reference.h"

namespace clustar::bench::proxy {

template <class T>
constexpr DataType type_of() {
  if constexpr (std::is_same_v<T, float>) return DataType::kFloat32;
  if constexpr (std::is_same_v<T, double>) return DataType::kFloat64;
  if constexpr (std::is_same_v<T, std::int32_t>) return DataType::kInt32;
  if constexpr (std::is_same_v<T, clustar::tests::Float16>) return DataType::kFloat16;
  if constexpr (std::is_same_v<T, clustar::tests::Bfloat16>) return DataType::kBfloat16;
  return DataType::kUint8;
}

// Element i of what `rank` gives: fractions whose sum depends on the order for floats, any bits for integers.
template <class T>
T value_of(int rank, std::size_t i) {
  std::uint64_t x = (static_cast<std::uint64_t>(rank) << 40) + i + 1;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  x ^= x >> 31;
  if constexpr (!std::is_integral_v<T>) return static_cast<T>(static_cast<double>(x >> 11) / (1ull << 52) - 1.0);
  return static_cast<T>(x);
}

template <class T>
std::vector<T> input_of(int rank, std::size_t count) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = value_of<T>(rank, i);
  return values;
}

// received op own, one ring hop after the other; the chunk's owner adds last.
template <class T>
T ring_reduce(int owner, int size, std::size_t i, ReduceOp op) {
  T total = value_of<T>((owner + 1) % size, i);
  for (int k = 2; k <= size; ++k) {
    const T own = value_of<T>((owner + k) % size, i);
    if (op == ReduceOp::kMax) {
      total = std::max(own, total);
    } else if constexpr (std::is_same_v<T, std::int32_t>) {
      total = static_cast<T>(static_cast<std::uint32_t>(total) + static_cast<std::uint32_t>(own));
    } else {
      total = static_cast<T>(total + own);
    }
  }
  return total;
}

// Which rank completes element i of an all-reduce, worked out from NCCL's rules a second time.
inline int owner_of(std::size_t i, std::size_t count, std::size_t element, int size,
                    const CommunicatorOptions& options) {
  const std::size_t align = std::max<std::size_t>(1, 16 / element);
  const auto even_share = [align](std::size_t elements, std::size_t parts) {
    return ((elements + parts - 1) / parts + align - 1) / align * align;
  };
  const auto n = static_cast<std::size_t>(size);
  const auto channels = std::clamp<std::size_t>(count * element / 32768, 1, static_cast<std::size_t>(options.channels));
  const std::size_t share = even_share(count, channels);
  const std::size_t part = std::min(share, count - i / share * share);
  const std::size_t chunk_steps = options.protocol == Protocol::kSimple ? 4 : 1;
  const std::size_t full = wire_shape(options.protocol).step_payload * chunk_steps / element;
  const std::size_t local = i % share;
  const std::size_t base = local / (full * n) * full * n;
  const std::size_t chunk = part - base >= full * n ? full : even_share(part - base, n);
  return static_cast<int>((local - base) / chunk);
}

template <class T>
::testing::AssertionResult same_bits(const std::vector<T>& got, const std::vector<T>& expected) {
  if (got.size() != expected.size()) return ::testing::AssertionFailure() << "sizes differ";
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (std::memcmp(&got[i], &expected[i], sizeof(T)) != 0) {
      return ::testing::AssertionFailure()
             << "element " << i << " of " << got.size() << " is " << +got[i] << ", expected " << +expected[i];
    }
  }
  return ::testing::AssertionSuccess();
}

template <class T>
void check_all_reduce(Communicator& comm, std::size_t count, ReduceOp op, const CommunicatorOptions& options) {
  auto data = input_of<T>(comm.rank(), count);
  const auto stats = comm.all_reduce(data.data(), count, type_of<T>(), op)->wait();
  ASSERT_TRUE(stats) << stats.error().message;
  std::vector<T> expected(count);
  for (std::size_t i = 0; i < count; ++i) {
    expected[i] = ring_reduce<T>(owner_of(i, count, sizeof(T), comm.size(), options), comm.size(), i, op);
  }
  ASSERT_TRUE(same_bits(data, expected)) << "all-reduce, " << sizeof(T) << " B, rank " << comm.rank();
}

template <class T>
void check_reduce_scatter(Communicator& comm, std::size_t count, ReduceOp op, bool in_place) {
  auto data = input_of<T>(comm.rank(), count * static_cast<std::size_t>(comm.size()));
  const std::size_t begin = count * static_cast<std::size_t>(comm.rank());
  std::vector<T> out(count);
  T* recv = in_place ? data.data() + begin : out.data();
  const auto stats = comm.reduce_scatter(data.data(), recv, count, type_of<T>(), op)->wait();
  ASSERT_TRUE(stats) << stats.error().message;
  out.assign(recv, recv + count);
  std::vector<T> expected(count);
  for (std::size_t i = 0; i < count; ++i) expected[i] = ring_reduce<T>(comm.rank(), comm.size(), begin + i, op);
  ASSERT_TRUE(same_bits(out, expected)) << "reduce-scatter, rank " << comm.rank();
}

template <class T>
void check_all_gather(Communicator& comm, std::size_t count, bool in_place) {
  const auto mine = input_of<T>(comm.rank(), count);
  std::vector<T> out(count * static_cast<std::size_t>(comm.size()));
  T* block = out.data() + count * static_cast<std::size_t>(comm.rank());
  if (in_place) std::copy(mine.begin(), mine.end(), block);
  const auto stats = comm.all_gather(in_place ? block : mine.data(), out.data(), count, type_of<T>())->wait();
  ASSERT_TRUE(stats) << stats.error().message;
  std::vector<T> expected;
  for (int r = 0; r < comm.size(); ++r) {
    const auto part = input_of<T>(r, count);
    expected.insert(expected.end(), part.begin(), part.end());
  }
  ASSERT_TRUE(same_bits(out, expected)) << "all-gather, rank " << comm.rank();
}

template <class T>
void check_broadcast(Communicator& comm, std::size_t count, int root) {
  auto data = input_of<T>(comm.rank(), count);
  const auto stats = comm.broadcast(data.data(), count, type_of<T>(), root)->wait();
  ASSERT_TRUE(stats) << stats.error().message;
  ASSERT_TRUE(same_bits(data, input_of<T>(root, count))) << "broadcast, rank " << comm.rank();
}

}  // namespace clustar::bench::proxy
