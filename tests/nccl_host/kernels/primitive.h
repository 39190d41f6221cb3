#pragma once

#include <cstddef>

namespace nccl_host {

// One step of a ring: of count elements, what arrives (if receive) is reduced with input (if any), written to output
// (if any) and passed on (if send). finish: the reduction is complete here.
struct Step {
  bool receive = false;
  bool send = false;
  const void* input = nullptr;
  void* output = nullptr;
  size_t count = 0;
  bool finish = false;
};

// How steps go over a connection. Each step takes part in the protocol even with no elements.
class Primitive {
 public:
  virtual ~Primitive() = default;
  virtual void Do(const Step& step) = 0;
};

}  // namespace nccl_host
