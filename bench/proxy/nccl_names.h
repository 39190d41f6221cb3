// NCCL's numbers and words for what the proxy runs. Source: NCCL 2.28.9 src/collectives.cc ncclFuncToString and
// ncclDatatypeToString, ncclProtoToString.
#pragma once

#include "bench/proxy/communicator.h"
#include "bench/proxy/ring_program.h"

namespace clustar::bench::proxy {

int function_of(Collective collective);            // ncclFunc_t
const char* function_name(Collective collective);  // "AllReduce"
int protocol_of(Protocol protocol);                // NCCL_PROTO_*
const char* protocol_name(Protocol protocol);      // "SIMPLE"
const char* datatype_name(DataType type);          // "ncclFloat32"

}  // namespace clustar::bench::proxy
