#include "libfabric_shim/endpoint.h"

#include <rdma/fi_cm.h>

#include "libfabric_shim/failure.h"
#include "libfabric_shim/gpu_memory.h"
#include "libfabric_shim/signals.h"

namespace clustar::transport::ofi {

Result<Endpoint> Endpoint::open(const Domain& domain, const CompletionQueue& sent, const CompletionQueue& received,
                                const AddressVector& addresses) {
  const KeptSignals signals;
  Endpoint made;
  fid_ep* endpoint = nullptr;
  const auto failed = [&](const char* call, int code) { return tl::unexpected(failure(domain.name(), call, code)); };
  // The parameter is not const, and nothing is written to it.
  auto* const info = const_cast<fi_info*>(&domain.info());
  if (const int code = fi_endpoint(domain.raw(), info, &endpoint, nullptr); code != 0)
    return failed("fi_endpoint", code);
  made.endpoint_.reset(endpoint);
  if (domain.gpu() == GpuUse::kCuda) {
    if (const auto forbidden = forbid_cuda_calls(*endpoint, domain.name()); !forbidden) {
      return tl::unexpected(forbidden.error());
    }
  }
  const std::uint64_t one = &sent == &received ? FI_TRANSMIT | FI_RECV : FI_TRANSMIT;
  if (const int code = fi_ep_bind(endpoint, &sent.raw()->fid, one); code != 0) {
    return failed("fi_ep_bind (queue)", code);
  }
  if (one == FI_TRANSMIT) {
    if (const int code = fi_ep_bind(endpoint, &received.raw()->fid, FI_RECV); code != 0) {
      return failed("fi_ep_bind (queue of receives)", code);
    }
  }
  if (const int code = fi_ep_bind(endpoint, &addresses.raw()->fid, 0); code != 0) {
    return failed("fi_ep_bind (addresses)", code);
  }
  if (const int code = fi_enable(endpoint); code != 0) return failed("fi_enable", code);
  std::size_t length = 0;
  fi_getname(&endpoint->fid, nullptr, &length);  // says how long it is
  made.address_.resize(length);
  if (const int code = fi_getname(&endpoint->fid, made.address_.data(), &length); code != 0) {
    return failed("fi_getname", code);
  }
  made.address_.resize(length);
  return made;
}

}  // namespace clustar::transport::ofi
