// The collectives that nccl-check runs, and what each must leave in the receive buffer, bit for bit.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

namespace clustar::nccl_check {

inline constexpr std::size_t kElementBytes = 4;  // int32 and float32
inline constexpr std::size_t kGuardBytes = 256;  // after each receive buffer; nobody may write there

struct Collective {
  const char* name;
  double bus_factor;  // of algorithm bandwidth, as nccl-tests defines it
  std::size_t send_count, recv_count;
  std::function<ncclResult_t(const void*, void*, ncclDataType_t, ncclComm_t, cudaStream_t)> start;
  std::function<std::int32_t(std::size_t i, int round)> expected;

  // Of the larger of the two buffers, as nccl-tests counts.
  std::size_t bytes() const;
};

// All-reduce, reduce-scatter and all-gather of about `bytes` (Collective::bytes), rounded to whole elements per rank.
std::vector<Collective> collectives(std::size_t bytes, int rank, int size);
const char* name_of(ncclDataType_t type);

// Fills `send` (device memory) with the inputs of `rank` in `round`: rounds differ in every element.
void fill(void* send, std::size_t count, ncclDataType_t type, int rank, int round);
// Makes the receive buffer and its guard hold what no collective writes.
void poison(void* recv, const Collective& collective);
// {correct, wrong_elements, first_wrong where there is one} of the receive buffer and its guard.
nlohmann::json compare(const void* recv, const Collective& collective, ncclDataType_t type, int round);

}  // namespace clustar::nccl_check
