#include "libfabric_shim/failure.h"

#include <fmt/format.h>
#include <rdma/fi_errno.h>

#include "libfabric_shim/library.h"

namespace clustar::transport::ofi {
namespace {

struct Kind {
  ErrorCode code;
  const char* fix;
};

Kind kind_of(int error) {
  switch (error) {
    case FI_ENODATA:
      return {ErrorCode::kUnavailable,
              "no provider has reliable tagged messages here; fi_info -t FI_EP_RDM lists those that do"};
    case FI_ENOMEM:
      return {ErrorCode::kSystem, "memory or locked memory is short: see ulimit -l, and the container's limit"};
    case FI_EMFILE: return {ErrorCode::kSystem, "descriptors are short: see ulimit -n"};
    case FI_EACCES:
    case FI_EPERM:
      return {ErrorCode::kSystem, "the process may not open the device: see the rights of /dev/infiniband"};
    case FI_ECONNREFUSED:
    case FI_ECONNRESET:
    case FI_ECONNABORTED:
    case FI_ENOTCONN:
    case FI_ESHUTDOWN: return {ErrorCode::kRemote, "the peer's endpoint is gone; see the log of its process"};
    case FI_EHOSTUNREACH:
    case FI_ENETUNREACH:
    case FI_EHOSTDOWN:
    case FI_ETIMEDOUT:
      return {ErrorCode::kRemote, "the peer is not reached; check routes, firewalls and security groups of the fabric"};
    case FI_ETRUNC:
      return {ErrorCode::kRemote, "a message was longer than was agreed on; load the same plugin on all ranks"};
    default: return {ErrorCode::kSystem, "FI_LOG_LEVEL=warn lets the provider say more"};
  }
}

}  // namespace

Error failure(const std::string& where, const char* call, ssize_t code) {
  const int error = static_cast<int>(code < 0 ? -code : code);
  const Kind kind = kind_of(error);
  return {kind.code, fmt::format("{}: {}: {} ({}); {}", where, call,
                                 Library::get() ? Library::get()->error_text(error) : "?", error, kind.fix)};
}

}  // namespace clustar::transport::ofi
