// The only translation of our errors into ncclResult_t, and the wall that no exception passes.
#pragma once

#include <new>
#include <utility>

#include "nccl_plugin/abi/types.h"
#include "transport/base/log.h"
#include "transport/base/result.h"

namespace clustar::nccl_plugin {

// ncclRemoteError is for peers and their hosts, ncclSystemError for this machine (NCCL v2.28.9 src/nccl.h.in).
constexpr int to_nccl(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument: return nccl_abi::kInvalidArgument;
    case ErrorCode::kInvalidUsage: return nccl_abi::kInvalidUsage;
    case ErrorCode::kUnavailable: return nccl_abi::kSystemError;
    case ErrorCode::kSystem: return nccl_abi::kSystemError;
    case ErrorCode::kRemote: return nccl_abi::kRemoteError;
    case ErrorCode::kInternal: return nccl_abi::kInternalError;
  }
  return nccl_abi::kInternalError;
}

// Runs `body`, which returns an ncclResult_t.
template <class Body>
int guarded(Body&& body) noexcept {
  try {
    return std::forward<Body>(body)();
  } catch (const std::bad_alloc&) {
    return nccl_abi::kSystemError;
  } catch (...) {
    return nccl_abi::kInternalError;  // also what a chained profiler throws, of whatever type
  }
}

}  // namespace clustar::nccl_plugin
