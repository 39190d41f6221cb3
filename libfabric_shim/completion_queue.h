// A completion queue: what was posted is over, well or not.
#pragma once

#include <rdma/fi_eq.h>

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "libfabric_shim/domain.h"
#include "libfabric_shim/handle.h"

namespace clustar::transport::ofi {

class CompletionQueue {
 public:
  static constexpr std::size_t kBatch = 16;
  // Error: libfabric's.
  static Result<CompletionQueue> open(const Domain& domain);

  fid_cq* raw() const { return queue_.get(); }

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
  explicit CompletionQueue(std::string where) : where_(std::move(where)) {}

  std::string where_;
  Fid<fid_cq> queue_;
  std::array<fi_cq_msg_entry, kBatch> entries_{};
};

}  // namespace clustar::transport::ofi
