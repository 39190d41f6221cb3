// A completion queue: what was posted is over, well or not.
#pragma once

#include <rdma/fi_eq.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "libfabric_shim/domain.h"
#include "libfabric_shim/handle.h"

namespace clustar::transport::ofi {

class CompletionQueue {
 public:
  static constexpr std::size_t kBatch = 16;
  // kDescriptor: a thread may sleep on it. Error: libfabric's.
  enum class Wait : std::uint8_t { kNone, kDescriptor };
  static Result<CompletionQueue> open(const Domain& domain, Wait wait = Wait::kNone);

  fid_cq* raw() const { return queue_.get(); }
  // Readable when there is something to read; -1: it was opened without. The domain still is.
  int descriptor() const { return descriptor_; }
  // To be called before a thread sleeps on it. False: there is something already.
  bool may_sleep();

  struct Batch {
    std::span<const fi_cq_msg_entry> done;  // valid until the next read
    bool failed = false;                    // the next completion is a failure: read_failure()
  };
  // Also lets the provider work, where nothing else does. Error: the queue itself failed.
  Result<Batch> read();
  struct Failure {
    void* context = nullptr;  // null: it belongs to nothing that was posted
    int code = 0;             // an errno of libfabric; FI_ECANCELED after fi_cancel
    Error error;
  };
  // nullopt: there was none after all.
  std::optional<Failure> read_failure();

 private:
  explicit CompletionQueue(const Domain& domain) : where_(domain.name()), fabric_(domain.fabric()) {}

  std::string where_;
  fid_fabric* fabric_ = nullptr;
  int descriptor_ = -1;
  Fid<fid_cq> queue_;
  std::array<fi_cq_msg_entry, kBatch> entries_{};
};

}  // namespace clustar::transport::ofi
