// NCCL's plugin ABI, declared in our own words: scalar types and constants that every version shares.
// Source of the layouts: NCCL v2.28.9-1 and v2.30.7-1, src/include/plugin/ (checked by
// tests/unit/nccl_plugin/abi/abi_test.cc).
#pragma once

#include <cstddef>
#include <cstdint>

namespace clustar::nccl_abi {

// ncclResult_t
enum Result : int {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
};

// ncclDebugLogLevel and ncclDebugLogSubSys
enum LogLevel : int { kLogNone = 0, kLogVersion = 1, kLogWarn = 2, kLogInfo = 3, kLogAbort = 4, kLogTrace = 5 };
enum LogFlags : unsigned long {
  kLogInit = 0x1,
  kLogNet = 0x10,
  kLogEnv = 0x80,
  kLogAll = ~0ul,
};
using DebugLogger = void (*)(int level, unsigned long flags, const char* file, int line, const char* format, ...);
// ncclProfilerCallback_t; type: 0 start, 1 stop, 2 update, 3 update and stop.
using ProfilerCallback = int (*)(void** event_handle, int type, void* profiler_handle, std::int64_t plugin_id,
                                 void* extension_data);

inline constexpr std::size_t kHandleBytes = 128;        // NCCL_NET_HANDLE_MAXSIZE
inline constexpr int kMaxRequests = 32;                 // NCCL_NET_MAX_REQUESTS; a sender may see 32 x maxRecvs
inline constexpr std::size_t kMaxBytesV9 = 1ull << 40;  // NCCL_MAX_NET_SIZE_BYTES
inline constexpr int kPtrHost = 0x1;
inline constexpr int kPtrCuda = 0x2;
inline constexpr int kPtrDmaBuf = 0x4;
inline constexpr int kDeviceTypeHost = 0;
inline constexpr int kDeviceVersionInvalid = 0;
inline constexpr std::uintptr_t kOptionalRecvCompletion = 0x1;  // marker in *request before irecv
inline constexpr int kTrafficClassUndefined = -1;

struct DeviceHandle {
  int type;
  int version;
  void* handle;
  std::size_t size;
  int needs_proxy_progress;
};

struct CommConfig {  // ncclNetCommConfig_v10_t .. v12_t
  int traffic_class;
};

struct CommAttr {
  std::int32_t max_concurrent_peers;
  std::int32_t min_concurrent_peers;
  std::int32_t max_flows_per_peer;
  std::int32_t min_flows_per_peer;
};

struct NetAttr {  // ncclNetAttr_v11_t, v12_t; masks are 1 << ncclFunc_t, 1 << algorithm, 1 << protocol
  CommAttr send;
  CommAttr recv;
  std::uint32_t op;
  std::uint32_t algo;
  std::uint32_t proto;
};
inline constexpr std::uint32_t kNetAttrUndefined = 0xffffffff;

enum Func : int {
  kBroadcast = 0,
  kReduce = 1,
  kAllGather = 2,
  kReduceScatter = 3,
  kAllReduce = 4,
  kSendRecv = 5,
  kSend = 6,
  kRecv = 7,
  kAlltoAll = 8,
  kScatter = 9,
  kGather = 10,
};
enum Algo : int {
  kTree = 0,
  kRing = 1,
  kCollnetDirect = 2,
  kCollnetChain = 3,
  kNvls = 4,
  kNvlsTree = 5,
  kPat = 6,
};
// ncclDataType_t (NCCL v2.28.9 src/nccl.h.in)
enum DataType : int {
  kInt8 = 0,
  kUint8 = 1,
  kInt32 = 2,
  kUint32 = 3,
  kInt64 = 4,
  kUint64 = 5,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBfloat16 = 9,
  kFloat8e4m3 = 10,
  kFloat8e5m2 = 11,
};
enum Proto : int { kLL = 0, kLL128 = 1, kSimple = 2 };

static_assert(sizeof(CommConfig) == 4);
static_assert(sizeof(NetAttr) == 44);

}  // namespace clustar::nccl_abi
