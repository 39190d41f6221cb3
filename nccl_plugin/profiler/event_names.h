// NCCL's words in profiler events as its numbers. Source: NCCL v2.27.7, v2.28.9, v2.30.7 src/collectives.cc.
#pragma once

#include <cstdint>

namespace clustar::nccl_plugin {

// ncclFunc_t, algorithm, protocol; -1: unknown, or null.
int function_of(const char* name);
int algorithm_of(const char* name);
int protocol_of(const char* name);
// ncclDataType_t. The one type that NCCL has no word for, ncclUint8, is "Unknown"; -1: any other word, or null.
int datatype_of(const char* name);
// Bytes of one element; 0 for -1.
std::uint32_t size_of_datatype(int datatype);

}  // namespace clustar::nccl_plugin
