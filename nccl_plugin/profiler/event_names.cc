#include "nccl_plugin/profiler/event_names.h"

#include <array>
#include <cstddef>
#include <string_view>

#include "nccl_plugin/abi/types.h"

namespace clustar::nccl_plugin {
namespace {

struct Word {
  std::string_view name;
  int number;
};

constexpr std::array kFunctions = {
    Word{"AllReduce", nccl_abi::kAllReduce}, Word{"ReduceScatter", nccl_abi::kReduceScatter},
    Word{"AllGather", nccl_abi::kAllGather}, Word{"Send", nccl_abi::kSend},
    Word{"Recv", nccl_abi::kRecv},           Word{"Broadcast", nccl_abi::kBroadcast},
    Word{"Reduce", nccl_abi::kReduce},       Word{"SendRecv", nccl_abi::kSendRecv},
    Word{"AlltoAll", nccl_abi::kAlltoAll},   Word{"Scatter", nccl_abi::kScatter},
    Word{"Gather", nccl_abi::kGather},
};
constexpr std::array kAlgorithms = {
    Word{"RING", nccl_abi::kRing},
    Word{"TREE", nccl_abi::kTree},
    Word{"COLLNET_DIRECT", nccl_abi::kCollnetDirect},
    Word{"COLLNET_CHAIN", nccl_abi::kCollnetChain},
    Word{"NVLS", nccl_abi::kNvls},
    Word{"NVLS_TREE", nccl_abi::kNvlsTree},
    Word{"PAT", nccl_abi::kPat},
};
constexpr std::array kProtocols = {
    Word{"SIMPLE", nccl_abi::kSimple},
    Word{"LL", nccl_abi::kLL},
    Word{"LL128", nccl_abi::kLL128},
};
constexpr std::array kDatatypes = {
    Word{"ncclFloat32", nccl_abi::kFloat32},
    Word{"ncclBfloat16", nccl_abi::kBfloat16},
    Word{"ncclFloat16", nccl_abi::kFloat16},
    Word{"ncclInt8", nccl_abi::kInt8},
    Word{"Unknown", nccl_abi::kUint8},
    Word{"ncclInt32", nccl_abi::kInt32},
    Word{"ncclUint32", nccl_abi::kUint32},
    Word{"ncclInt64", nccl_abi::kInt64},
    Word{"ncclUint64", nccl_abi::kUint64},
    Word{"ncclFloat64", nccl_abi::kFloat64},
    Word{"ncclFloat8e4m3", nccl_abi::kFloat8e4m3},
    Word{"ncclFloat8e5m2", nccl_abi::kFloat8e5m2},
};
// Bytes of an element, by ncclDataType_t.
constexpr std::array<std::uint32_t, 12> kSizes = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

template <std::size_t kWords>
int find(const std::array<Word, kWords>& words, const char* name) {
  if (name == nullptr) return -1;
  for (const Word& word : words) {
    if (word.name == name) return word.number;
  }
  return -1;
}

}  // namespace

int function_of(const char* name) { return find(kFunctions, name); }
int algorithm_of(const char* name) { return find(kAlgorithms, name); }
int protocol_of(const char* name) { return find(kProtocols, name); }
int datatype_of(const char* name) { return find(kDatatypes, name); }
std::uint32_t size_of_datatype(int datatype) {
  return datatype < 0 || static_cast<std::size_t>(datatype) >= kSizes.size()
             ? 0
             : kSizes[static_cast<std::size_t>(datatype)];
}

}  // namespace clustar::nccl_plugin
