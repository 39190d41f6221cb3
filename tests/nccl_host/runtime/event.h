#pragma once

#include <memory>
#include <mutex>
#include <utility>

#include "tests/nccl_host/runtime/stream.h"

namespace nccl_host {

// A point in a stream, as a CUDA event: one that was never recorded is over. Thread-safe.
class Event {
 public:
  void Record(std::shared_ptr<Stream> stream) {
    const uint64_t number = stream->Add([] {});
    std::lock_guard lock(mutex_);
    point_ = {std::move(stream), number};
  }
  bool Done() const {
    const Point point = Last();
    return !point.stream || point.stream->Done(point.number);
  }
  void Synchronize() const {
    const Point point = Last();
    if (point.stream) point.stream->Wait(point.number);
  }
  // What is added to waiting later starts when the point that is recorded now is over. One stream is in order anyway.
  void HoldBack(Stream& waiting) const {
    const Point point = Last();
    if (!point.stream || point.stream.get() == &waiting) return;
    waiting.Add([point] { point.stream->Wait(point.number); });
  }

 private:
  struct Point {
    std::shared_ptr<Stream> stream;
    uint64_t number = 0;
  };
  Point Last() const {
    std::lock_guard lock(mutex_);
    return point_;
  }

  mutable std::mutex mutex_;
  Point point_;
};

}  // namespace nccl_host
