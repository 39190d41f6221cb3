// One operation as c10d's users see it: what they wait for, and a future of its tensors.
#pragma once

#include <cstdint>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "transport/base/result.h"

namespace clustar::torch_backend {

class Work final : public c10d::Work {
 public:
  // `title` is what a profiler shows.
  Work(int rank, c10d::OpType type, const char* title, const std::vector<at::Tensor>& inputs,
       std::vector<at::Tensor> outputs);

  // Once. Any thread.
  void complete(const Result<std::uint32_t>& outcome);

  std::vector<at::Tensor> result() override;
  int sourceRank() const override;
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  const std::vector<at::Tensor> outputs_;
  int source_ = -1;
  // With mutex_. Made when it is first asked for: most callers never do.
  c10::intrusive_ptr<c10::ivalue::Future> future_{};
};

}  // namespace clustar::torch_backend
