#include "paraexpress/torch/work.h"

#include <c10/util/Exception.h>

#include <mutex>
#include <stdexcept>
#include <utility>

#include "paraexpress/torch/finishers.h"

namespace clustar::torch_backend {

Work::Work(int rank, c10d::OpType type, const char* title, const std::vector<at::Tensor>& inputs,
           std::vector<at::Tensor> outputs)
    : c10d::Work(rank, type, title, inputs), outputs_(std::move(outputs)) {}

void Work::complete(const Result<std::uint32_t>& outcome) {
  std::exception_ptr why;
  if (!outcome) {
    const std::string& message = outcome.error().message;  // of an operation: its name, "clustar:send", is in front
    why =
        std::make_exception_ptr(std::runtime_error(message.starts_with("clustar:") ? message : "clustar: " + message));
  }
  std::unique_lock lock(mutex_);
  if (outcome) source_ = static_cast<int>(*outcome);
  if (future_ == nullptr) {
    // From here on getFuture() gives one that is complete.
    completed_ = true;
    exception_ = why;
    lock.unlock();
    return finish(why);
  }
  lock.unlock();
  // What hangs on the future may wait for another operation, so it must not hold up the thread that moves it. The
  // future goes first, as with gloo's works: after wait() it is there.
  auto self = c10::intrusive_ptr<Work>::unsafe_reclaim_from_nonowning(this);
  finish_later([self = std::move(self), why] {
    if (why != nullptr) {
      self->future_->setError(why);
    } else {
      self->future_->markCompleted(c10::IValue(self->outputs_));
    }
    self->finish(why);
  });
}

std::vector<at::Tensor> Work::result() {
  const std::lock_guard lock(mutex_);
  TORCH_CHECK(completed_, "clustar: the operation has not ended; wait() for it first");
  return outputs_;
}

int Work::sourceRank() const {
  const std::lock_guard lock(mutex_);
  TORCH_CHECK(opType_ == c10d::OpType::RECVANYSOURCE && source_ >= 0,
              "clustar: only a receive from any rank has a source rank, once it has ended");
  return source_;
}

void Work::abort() { TORCH_CHECK(false, "clustar: one operation cannot be aborted; abort() the process group"); }

c10::intrusive_ptr<c10::ivalue::Future> Work::getFuture() {
  const std::lock_guard lock(mutex_);
  if (future_ != nullptr) return future_;
  future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
  if (!completed_) return future_;
  if (exception_ != nullptr) {
    future_->setError(exception_);
  } else {
    future_->markCompleted(c10::IValue(outputs_));
  }
  return future_;
}

}  // namespace clustar::torch_backend
