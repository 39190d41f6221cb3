// A process that listens on rxe_b with the verbs transport and posts receives of tag 1, until it is killed.
#pragma once

#include <sys/types.h>

#include "transport/api/transport.h"
#include "transport/base/file_descriptor.h"

namespace clustar::tests {

class RcPeer {
 public:
  RcPeer();  // throws where it cannot listen
  ~RcPeer() { kill(); }
  RcPeer(const RcPeer&) = delete;
  RcPeer& operator=(const RcPeer&) = delete;

  const transport::Handle& handle() const { return handle_; }
  // Returns when its receives are posted; throws when it ends before.
  void await_ready();
  // Returns when the kernel has taken back what it had.
  void kill();

 private:
  FileDescriptor from_;
  pid_t child_ = -1;
  transport::Handle handle_{};
};

}  // namespace clustar::tests
