#pragma once

#include "tests/nccl_host/kernels/connection.h"
#include "tests/nccl_host/kernels/primitive.h"

namespace nccl_host {

// Send or receive of memory that is registered with the network: the proxy thread sends from it and receives into it,
// and the kernel only says when it may, and waits until it has. One of both connections is null.
// NCCL 2.28.9 src/device/prims_simple.h, NetRegMode.
class Registered final : public Primitive {
 public:
  Registered(Connection* receive, Connection* send, Poll poll);
  void Do(const Step& step) override;  // of bytes
  // What was sent has left the memory, which may change then.
  void Finish();

 private:
  Connection* receive_;
  Connection* send_;
  Poll poll_;
};

}  // namespace nccl_host
