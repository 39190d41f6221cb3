#include "bench/proxy/nccl_names.h"

#include "nccl_plugin/abi/types.h"

namespace clustar::bench::proxy {

int function_of(Collective collective) {
  switch (collective) {
    case Collective::kBroadcast: return nccl_abi::kBroadcast;
    case Collective::kAllGather: return nccl_abi::kAllGather;
    case Collective::kReduceScatter: return nccl_abi::kReduceScatter;
    case Collective::kAllReduce: break;
  }
  return nccl_abi::kAllReduce;
}

const char* function_name(Collective collective) {
  switch (collective) {
    case Collective::kBroadcast: return "Broadcast";
    case Collective::kAllGather: return "AllGather";
    case Collective::kReduceScatter: return "ReduceScatter";
    case Collective::kAllReduce: break;
  }
  return "AllReduce";
}

int protocol_of(Protocol protocol) {
  switch (protocol) {
    case Protocol::kLL: return nccl_abi::kLL;
    case Protocol::kLL128: return nccl_abi::kLL128;
    case Protocol::kSimple: break;
  }
  return nccl_abi::kSimple;
}

const char* protocol_name(Protocol protocol) {
  switch (protocol) {
    case Protocol::kLL: return "LL";
    case Protocol::kLL128: return "LL128";
    case Protocol::kSimple: break;
  }
  return "SIMPLE";
}

const char* datatype_name(DataType type) {
  switch (type) {
    case DataType::kFloat64: return "ncclFloat64";
    case DataType::kInt32: return "ncclInt32";
    case DataType::kFloat16: return "ncclFloat16";
    case DataType::kBfloat16: return "ncclBfloat16";
    case DataType::kUint8: return "Unknown";  // NCCL has no word for ncclUint8
    case DataType::kFloat32: break;
  }
  return "ncclFloat32";
}

}  // namespace clustar::bench::proxy
