// NCCL's step arithmetic: what one connection buffer holds and what one transfer carries.
// Source: NCCL 2.28.9 src/include/collectives.h (chunk and slice steps), src/include/device.h (LL and LL128 lines),
// src/init.cc computeBuffSizes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bench/proxy/communicator.h"

namespace clustar::bench::proxy {

inline constexpr int kSteps = 8;         // NCCL_STEPS
inline constexpr int kSharedSteps = 16;  // NCCL_SHARED_STEPS: steps in flight over all subs of one operation
inline constexpr int kProtocols = 3;

inline constexpr std::size_t kLlLineBytes = 16;
inline constexpr std::size_t kLlLinePayload = 8;
inline constexpr std::size_t kLl128LineBytes = 128;
inline constexpr std::size_t kLl128LinePayload = 120;
// A warp writes 16 lines of LL128 at a time, so sizes on the wire are multiples of that.
inline constexpr std::size_t kLl128BlockLines = 16;

struct WireShape {
  std::size_t step_bytes;    // of the connection buffer, and what irecv posts per step
  std::size_t step_payload;  // user data in one step
};

constexpr WireShape wire_shape(Protocol protocol) {
  switch (protocol) {
    case Protocol::kLL: return {64 * 1024, 32 * 1024};
    case Protocol::kLL128: return {614'400, 576'000};
    case Protocol::kSimple: break;
  }
  return {512 * 1024, 512 * 1024};
}

constexpr std::size_t buffer_bytes(Protocol protocol) { return wire_shape(protocol).step_bytes * kSteps; }

constexpr std::size_t div_up(std::size_t a, std::size_t b) { return (a + b - 1) / b; }
constexpr std::size_t round_up(std::size_t a, std::size_t b) { return div_up(a, b) * b; }

// Bytes given to isend for `payload` bytes of user data.
constexpr std::size_t wire_bytes(Protocol protocol, std::size_t payload) {
  switch (protocol) {
    case Protocol::kLL: return div_up(payload, kLlLinePayload) * kLlLineBytes;
    case Protocol::kLL128:
      return div_up(payload, kLl128BlockLines * kLl128LinePayload) * kLl128BlockLines * kLl128LineBytes;
    case Protocol::kSimple: break;
  }
  return payload;
}

constexpr std::size_t element_bytes(DataType type) {
  switch (type) {
    case DataType::kFloat64: return 8;
    case DataType::kUint8: return 1;
    case DataType::kFloat16:
    case DataType::kBfloat16: return 2;
    case DataType::kFloat32:
    case DataType::kInt32: break;
  }
  return 4;
}

}  // namespace clustar::bench::proxy
