// NCCL's reduction of a communicator of one rank: a copy, multiplied where the operator says so.

#include <device.h>

#include <cstring>

#include "tests/nccl_host/binding/emulated_device.h"
#include "tests/nccl_host/binding/unsupported.h"
#include "tests/nccl_host/kernels/reduction.h"

ncclResult_t ncclLaunchOneRank(void* to, void const* from, size_t count, ncclDevRedOpFull op, ncclDataType_t type,
                               cudaStream_t stream) {
  using namespace nccl_host;
  if (type > ncclBfloat16) NotEmulated("fp8", "use f16 or bf16");
  const auto datatype = static_cast<Datatype>(type);
  StreamOf(stream)->Add([=] {
    uint64_t argument = op.scalarArg;
    if (op.scalarArgIsPtr) std::memcpy(&argument, reinterpret_cast<const void*>(op.scalarArg), SizeOf(datatype));
    if (op.op == ncclDevPreMulSum)
      Reduction(Operator::kPreMulSum, datatype, argument).Before(to, from, count);
    else if (to != from)
      std::memmove(to, from, count * SizeOf(datatype));
  });
  return ncclSuccess;
}
