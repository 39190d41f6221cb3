#pragma once

#include <cstddef>
#include <string>

#include "tests/nccl_host/kernels/datatype.h"
#include "tests/nccl_host/ranks/ranks.h"

namespace nccl_host {

enum class Collective { kAllReduce, kReduceScatter, kAllGather, kBroadcast, kReduce, kSendRecv };
// Numbers of the first five as in nccl.h.
enum class Operation { kSum, kProd, kMax, kMin, kAvg, kPreMulSum };

struct Options : RankOptions {
  Collective collective = Collective::kAllReduce;
  std::string collective_name = "all_reduce";
  Datatype type = Datatype::kFloat32;
  std::string type_name = "float";
  Operation op = Operation::kSum;
  std::string op_name = "sum";
  size_t min_bytes = 1 << 20;
  size_t max_bytes = 1 << 20;
  size_t factor = 2;
  int iterations = 2;
  int root = 0;
  bool check = true;
};

// Prints what is allowed and ends the process with status 2 where an argument is not.
Options ParseOrExit(int argc, char** argv);

}  // namespace nccl_host
