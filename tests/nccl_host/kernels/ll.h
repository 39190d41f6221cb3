#pragma once

#include <vector>

#include "tests/nccl_host/kernels/connection.h"
#include "tests/nccl_host/kernels/primitive.h"
#include "tests/nccl_host/kernels/reduction.h"

namespace nccl_host {

// The low-latency protocol: lines of eight bytes of data and two flags, so that a line tells itself that it is there.
class LowLatency final : public Primitive {
 public:
  LowLatency(const Reduction& reduction, Connection* receive, Connection* send, Poll poll);
  void Do(const Step& step) override;

 private:
  void ReceiveInto(size_t bytes);
  void Send(const char* data, size_t bytes);

  const Reduction& reduction_;
  Connection* receive_;
  Connection* send_;
  Poll poll_;
  std::vector<char> arrived_;
  std::vector<char> result_;
};

}  // namespace nccl_host
