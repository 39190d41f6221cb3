// An endpoint without connections, bound to its queues and addresses: tagged messages to any peer (FI_EP_RDM), or
// datagrams (FI_EP_DGRAM).
#pragma once

#include <rdma/fi_endpoint.h>
#include <rdma/fi_tagged.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "libfabric_shim/address_vector.h"
#include "libfabric_shim/completion_queue.h"

namespace clustar::transport::ofi {

class Endpoint {
 public:
  // Enabled. Queue and addresses outlive it. Error: libfabric's.
  static Result<Endpoint> open(const Domain& domain, const CompletionQueue& queue, const AddressVector& addresses) {
    return open(domain, queue, queue, addresses);
  }
  static Result<Endpoint> open(const Domain& domain, const CompletionQueue& sent, const CompletionQueue& received,
                               const AddressVector& addresses);

  // By which peers reach it.
  const std::vector<std::byte>& address() const { return address_; }

  // What these give back is libfabric's: 0, -FI_EAGAIN (read the queue, try again), or a failure. `context` is a
  // fi_context2 that stays until the completion.
  ssize_t send(fi_addr_t to, std::uint64_t tag, const void* data, std::size_t bytes, void* descriptor, void* context) {
    return fi_tsend(endpoint_.get(), data, bytes, descriptor, to, tag, context);
  }
  ssize_t receive(std::uint64_t tag, void* data, std::size_t bytes, void* descriptor, void* context) {
    return fi_trecv(endpoint_.get(), data, bytes, descriptor, FI_ADDR_UNSPEC, tag, 0, context);
  }
  // inject() has read the data when it returns, and completes nothing.
  ssize_t inject(fi_addr_t to, std::uint64_t tag, const void* data, std::size_t bytes) {
    return fi_tinject(endpoint_.get(), data, bytes, to, tag);
  }
  // Datagrams. inject() has read the data when it returns, and completes nothing.
  ssize_t inject(fi_addr_t to, const void* data, std::size_t bytes) {
    return fi_inject(endpoint_.get(), data, bytes, to);
  }
  ssize_t send(fi_addr_t to, const void* data, std::size_t bytes, void* descriptor, void* context) {
    return fi_send(endpoint_.get(), data, bytes, descriptor, to, context);
  }
  ssize_t receive(void* data, std::size_t bytes, void* descriptor, void* context) {
    return fi_recv(endpoint_.get(), data, bytes, descriptor, FI_ADDR_UNSPEC, context);
  }
  // Of a receive that nothing has come for; its completion follows, FI_ECANCELED where there was time.
  void cancel(void* context) { fi_cancel(&endpoint_->fid, context); }

 private:
  Fid<fid_ep> endpoint_;
  std::vector<std::byte> address_;
};

}  // namespace clustar::transport::ofi
