// A fabric and its domain: one NIC, or what plays one, opened.
#pragma once

#include <rdma/fi_domain.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "libfabric_shim/gpu_memory.h"
#include "libfabric_shim/handle.h"
#include "libfabric_shim/info.h"

namespace clustar::transport::ofi {

class Domain {
 public:
  // Error: libfabric's.
  static Result<Domain> open(Info info, GpuUse gpu = GpuUse::kNone);
  Domain(Domain&& other) noexcept;

  const fi_info& info() const { return *info_; }
  const std::string& name() const { return name_; }  // "tcp;ofi_rxm (eth0)"
  fid_domain* raw() const { return domain_.get(); }
  fid_fabric* fabric() const { return fabric_.get(); }
  // Memory that is sent from or received into must be registered (FI_MR_LOCAL).
  bool registers() const { return (info_->domain_attr->mr_mode & FI_MR_LOCAL) != 0; }
  // Whether its endpoints carry GPU memory.
  GpuUse gpu() const { return gpu_; }
  // For a registration, where the provider does not choose keys (FI_MR_PROV_KEY). Any thread.
  std::uint64_t next_key() { return key_.fetch_add(1, std::memory_order_relaxed); }

 private:
  Domain(Info info, GpuUse gpu) : info_(std::move(info)), name_(name_of(*info_)), gpu_(gpu) {}

  Info info_;
  std::string name_;
  GpuUse gpu_;
  Fid<fid_fabric> fabric_;
  Fid<fid_domain> domain_;
  std::atomic<std::uint64_t> key_{1};
};

}  // namespace clustar::transport::ofi
