// Where a thread sleeps until a descriptor is readable, somebody wakes it, or its time is over.
#pragma once

#include "transport/base/file_descriptor.h"
#include "transport/base/result.h"
#include "transport/base/time.h"

namespace clustar::transport::net {

class Waker {
 public:
  static Result<Waker> create();

  // `fd` < 0: for none. A wake() before counts. One thread at a time.
  void wait(int fd, Duration timeout);
  void wake();  // any thread

 private:
  explicit Waker(FileDescriptor event) : event_(std::move(event)) {}

  FileDescriptor event_;
};

}  // namespace clustar::transport::net
