// For tests of the logging shim: a net plugin that moves nothing, and names each message's collective as its caller
// says. Exports v10, v11, v12 and clustarApi_v1 with identify alone.
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "nccl_plugin/abi/tables.h"
#include "nccl_plugin/clustar.h"

namespace {

namespace abi = clustar::nccl_abi;

int g_request;

int isend(void*, void*, std::size_t size, int, void*, void*, void** request) {
  // Busy, as a plugin may be; the shim must not ask about such a call.
  *request = size == 0 ? nullptr : &g_request;
  return abi::kSuccess;
}

template <class Table>
constexpr Table table() {
  Table out{};
  out.name = "IDENTIFYING";
  if constexpr (std::is_same_v<Table, abi::TableV10>) {
    out.init = [](abi::DebugLogger, abi::ProfilerCallback) -> int { return abi::kSuccess; };
  } else {
    out.init = [](void**, std::uint64_t, abi::CommConfig*, abi::DebugLogger, abi::ProfilerCallback) -> int {
      return abi::kSuccess;
    };
  }
  out.isend = isend;
  out.closeSend = [](void*) -> int { return abi::kSuccess; };
  return out;
}

// As the real one does, through the callback; here that belongs to the test and fills the answer itself.
int identify(int (*callback)(void**, int, void*, std::int64_t, void*), void* phandle, clustarMessage_v1* out) {
  if (callback == nullptr || out == nullptr || out->size != sizeof *out) return CLUSTAR_EINVAL;
  void* event = nullptr;
  clustarMessage_v1 answer{};
  if (callback(&event, 0, phandle, 0, &answer) != abi::kSuccess) return CLUSTAR_ENOTFOUND;
  *out = answer;
  return CLUSTAR_OK;
}

}  // namespace

#define PLUGIN_EXPORT __attribute__((visibility("default")))

extern "C" {
PLUGIN_EXPORT extern const abi::TableV10 ncclNetPlugin_v10;
PLUGIN_EXPORT extern const abi::TableV11 ncclNetPlugin_v11;
PLUGIN_EXPORT extern const abi::TableV12 ncclNetPlugin_v12;
const abi::TableV10 ncclNetPlugin_v10 = table<abi::TableV10>();
const abi::TableV11 ncclNetPlugin_v11 = table<abi::TableV11>();
const abi::TableV12 ncclNetPlugin_v12 = table<abi::TableV12>();
}

extern "C" PLUGIN_EXPORT const clustarApi_v1_t clustarApi_v1 = {.size = sizeof(clustarApi_v1_t),
                                                                .version = "test",
                                                                .getTotals = nullptr,
                                                                .getReason = nullptr,
                                                                .getCollective = nullptr,
                                                                .listCollectives = nullptr,
                                                                .listMissing = nullptr,
                                                                .listMissingFrom = nullptr,
                                                                .listLostTo = nullptr,
                                                                .reportGradientNorm = nullptr,
                                                                .setCritical = nullptr,
                                                                .identify = identify};
