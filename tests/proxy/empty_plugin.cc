// Two tables with nothing in them: what a driver must survive.
#include "nccl_plugin/abi/tables.h"

#define EMPTY_EXPORT extern "C" __attribute__((visibility("default")))

EMPTY_EXPORT clustar::nccl_abi::TableV8 ncclNetPlugin_v8;
EMPTY_EXPORT clustar::nccl_abi::TableV11 ncclNetPlugin_v11;

clustar::nccl_abi::TableV8 ncclNetPlugin_v8{};
clustar::nccl_abi::TableV11 ncclNetPlugin_v11{};
