// Where a thread sleeps until one of some descriptors is readable, somebody wakes it, or its time is over.
#pragma once

#include <span>

#include "transport/base/file_descriptor.h"
#include "transport/base/result.h"
#include "transport/base/time.h"

namespace clustar::transport::net {

class Waker {
 public:
  static Result<Waker> create();

  // Up to kMost descriptors. A wake() before counts. One thread at a time.
  static constexpr std::size_t kMost = 64;
  void wait(std::span<const int> readable, Duration timeout);
  void wake();  // any thread

 private:
  explicit Waker(FileDescriptor event) : event_(std::move(event)) {}

  FileDescriptor event_;
};

}  // namespace clustar::transport::net
