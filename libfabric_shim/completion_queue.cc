#include "libfabric_shim/completion_queue.h"

#include <rdma/fi_domain.h>
#include <rdma/fi_errno.h>

#include <utility>

#include "libfabric_shim/failure.h"

namespace clustar::transport::ofi {

Result<CompletionQueue> CompletionQueue::open(const Domain& domain, Wait wait) {
  CompletionQueue made(domain);
  fi_cq_attr attributes{};
  attributes.format = FI_CQ_FORMAT_MSG;
  attributes.wait_obj = wait == Wait::kDescriptor ? FI_WAIT_FD : FI_WAIT_NONE;
  attributes.size = domain.info().tx_attr->size + domain.info().rx_attr->size;
  fid_cq* queue = nullptr;
  if (const int code = fi_cq_open(domain.raw(), &attributes, &queue, nullptr); code != 0) {
    return tl::unexpected(failure(domain.name(), "fi_cq_open", code));
  }
  made.queue_.reset(queue);
  if (wait == Wait::kNone) return made;
  if (const int code = fi_control(&queue->fid, FI_GETWAIT, &made.descriptor_); code != 0) {
    return tl::unexpected(failure(domain.name(), "fi_control (descriptor of a queue)", code));
  }
  return made;
}

bool CompletionQueue::may_sleep() {
  fid* queue = &queue_->fid;
  return fi_trywait(fabric_, &queue, 1) == 0;
}

Result<CompletionQueue::Batch> CompletionQueue::read() {
  const ssize_t got = fi_cq_read(queue_.get(), entries_.data(), entries_.size());
  if (got >= 0) return Batch{std::span(entries_).first(static_cast<std::size_t>(got)), false};
  if (got == -FI_EAGAIN) return Batch{};
  if (got == -FI_EAVAIL) return Batch{{}, true};
  return tl::unexpected(failure(where_, "fi_cq_read", got));
}

std::optional<CompletionQueue::Failure> CompletionQueue::read_failure() {
  fi_cq_err_entry entry{};
  if (fi_cq_readerr(queue_.get(), &entry, 0) <= 0) return std::nullopt;
  Failure failed{entry.op_context, entry.err, failure(where_, "a message", entry.err)};
  std::array<char, 128> said{};
  const char* const text = fi_cq_strerror(queue_.get(), entry.prov_errno, entry.err_data, said.data(), said.size());
  if (entry.prov_errno != 0 && text != nullptr) failed.error.message += std::string(" (the provider: ") + text + ")";
  return failed;
}

}  // namespace clustar::transport::ofi
