#include "libfabric_shim/domain.h"

#include <utility>

#include "libfabric_shim/failure.h"

namespace clustar::transport::ofi {

Domain::Domain(Domain&& other) noexcept
    : info_(std::move(other.info_)),
      name_(std::move(other.name_)),
      gpu_(other.gpu_),
      fabric_(std::move(other.fabric_)),
      domain_(std::move(other.domain_)),
      key_(other.key_.load(std::memory_order_relaxed)) {}

Result<Domain> Domain::open(Info info, GpuUse gpu) {
  Domain made(std::move(info), gpu);
  fid_fabric* fabric = nullptr;
  if (const int code = Library::get()->open_fabric(made.info_->fabric_attr, &fabric, nullptr); code != 0) {
    return tl::unexpected(failure(made.name_, "fi_fabric", code));
  }
  made.fabric_.reset(fabric);
  fid_domain* domain = nullptr;
  if (const int code = fi_domain(fabric, made.info_.get(), &domain, nullptr); code != 0) {
    return tl::unexpected(failure(made.name_, "fi_domain", code));
  }
  made.domain_.reset(domain);
  return made;
}

}  // namespace clustar::transport::ofi
