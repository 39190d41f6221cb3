#include "bench/proxy/plugin_error.h"

#include <fmt/format.h>

namespace clustar::bench::proxy {

const char* result_name(int result) {
  switch (result) {
    case nccl_abi::kSuccess: return "ncclSuccess";
    case nccl_abi::kUnhandledCudaError: return "ncclUnhandledCudaError";
    case nccl_abi::kSystemError: return "ncclSystemError";
    case nccl_abi::kInternalError: return "ncclInternalError";
    case nccl_abi::kInvalidArgument: return "ncclInvalidArgument";
    case nccl_abi::kInvalidUsage: return "ncclInvalidUsage";
    case nccl_abi::kRemoteError: return "ncclRemoteError";
    case nccl_abi::kInProgress: return "ncclInProgress";
    default: return "unknown ncclResult_t";
  }
}

Error plugin_error(const NetPlugin& plugin, std::string_view what, int result) {
  ErrorCode code = ErrorCode::kInternal;
  switch (result) {
    case nccl_abi::kRemoteError: code = ErrorCode::kRemote; break;
    case nccl_abi::kSystemError: code = ErrorCode::kSystem; break;
    case nccl_abi::kInvalidArgument: code = ErrorCode::kInvalidArgument; break;
    case nccl_abi::kInvalidUsage: code = ErrorCode::kInvalidUsage; break;
    default: break;
  }
  const std::string warning = plugin.last_warning();
  const std::string why =
      warning.empty() ? "the plugin logged no warning" : fmt::format("the plugin's last warning: {}", warning);
  return Error{code, fmt::format("{} returned {} ({}); {}", what, result_name(result), result, why)};
}

}  // namespace clustar::bench::proxy
