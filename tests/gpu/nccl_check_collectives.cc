#include "tests/gpu/nccl_check_collectives.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>

#include "tests/gpu/nccl_check_bounds.h"

namespace clustar::nccl_check {
namespace {

constexpr std::uint8_t kPoison = 0xa5;

// Small integers: every sum over the ranks is exact in float32 too, in whatever order NCCL adds.
std::int32_t value(std::size_t i, int rank, int round) {
  return static_cast<std::int32_t>(
             (i * 7 + static_cast<std::size_t>(rank) * 131 + static_cast<std::size_t>(round) * 977 + 3) % 2039) -
         1019;
}
std::int32_t sum(std::size_t i, int size, int round) {
  std::int32_t total = 0;
  for (int rank = 0; rank < size; ++rank) total += value(i, rank, round);
  return total;
}
std::uint32_t bits(std::int32_t number, ncclDataType_t type) {
  if (type == ncclInt32) return static_cast<std::uint32_t>(number);
  const auto real = static_cast<float>(number);
  std::uint32_t out;
  std::memcpy(&out, &real, sizeof out);
  return out;
}

}  // namespace

std::size_t Collective::bytes() const { return std::max(send_count, recv_count) * kElementBytes; }

std::vector<Collective> collectives(std::size_t bytes, int rank, int size) {
  const auto n = static_cast<std::size_t>(size);
  const std::size_t total = std::max(bytes / kElementBytes / n, std::size_t{1}) * n;
  const std::size_t part = total / n;
  const double share = static_cast<double>(size - 1) / size;
  return {
      {"all_reduce", 2 * share, total, total,
       [=](const void* in, void* out, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream) {
         return ncclAllReduce(in, out, total, type, ncclSum, comm, stream);
       },
       [=](std::size_t i, int round) { return sum(i, size, round); }},
      {"reduce_scatter", share, total, part,
       [=](const void* in, void* out, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream) {
         return ncclReduceScatter(in, out, part, type, ncclSum, comm, stream);
       },
       [=](std::size_t i, int round) { return sum(static_cast<std::size_t>(rank) * part + i, size, round); }},
      {"all_gather", share, part, total,
       [=](const void* in, void* out, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream) {
         return ncclAllGather(in, out, part, type, comm, stream);
       },
       [=](std::size_t i, int round) { return value(i % part, static_cast<int>(i / part), round); }},
  };
}

const char* name_of(ncclDataType_t type) { return type == ncclInt32 ? "int32" : "float32"; }

void fill(void* send, std::size_t count, ncclDataType_t type, int rank, int round) {
  std::vector<std::uint32_t> host(count);
  for (std::size_t i = 0; i < count; ++i) host[i] = bits(value(i, rank, round), type);
  check(cudaMemcpy(send, host.data(), count * kElementBytes, cudaMemcpyHostToDevice), "cudaMemcpy");
}

void poison(void* recv, const Collective& collective) {
  check(cudaMemset(recv, kPoison, collective.recv_count * kElementBytes + kGuardBytes), "cudaMemset");
}

nlohmann::json compare(const void* recv, const Collective& collective, ncclDataType_t type, int round) {
  const std::size_t payload = collective.recv_count * kElementBytes;
  std::vector<std::uint8_t> got(payload + kGuardBytes);
  check(cudaMemcpy(got.data(), recv, got.size(), cudaMemcpyDeviceToHost), "cudaMemcpy");
  std::size_t wrong = 0;
  std::string first;
  for (std::size_t i = 0; i < collective.recv_count; ++i) {
    std::uint32_t word;
    std::memcpy(&word, got.data() + i * kElementBytes, sizeof word);
    const std::uint32_t wanted = bits(collective.expected(i, round), type);
    if (word != wanted && wrong++ == 0) {
      char text[96];
      std::snprintf(text, sizeof text, "element %zu is 0x%08x, expected 0x%08x", i, word, wanted);
      first = text;
    }
  }
  const auto guard = got.begin() + static_cast<std::ptrdiff_t>(payload);
  if (!std::all_of(guard, got.end(), [](std::uint8_t byte) { return byte == kPoison; })) {
    ++wrong;
    first += (first.empty() ? "" : "; ") + std::string("bytes after the receive buffer were written");
  }
  nlohmann::json result = {{"correct", wrong == 0}, {"wrong_elements", wrong}};
  if (wrong != 0) result["first_wrong"] = first;
  return result;
}

}  // namespace clustar::nccl_check
