#include "libfabric_shim/rdm/gpu_devices.h"

#include <fmt/format.h>
#include <rdma/fi_errno.h>

#include <cstring>
#include <string_view>
#include <utility>

#include "libfabric_shim/failure.h"
#include "libfabric_shim/gpu_memory.h"

namespace clustar::transport::ofi {
namespace {

std::string_view text(const char* maybe) { return maybe == nullptr ? std::string_view() : maybe; }

bool same_address(const fi_info& a, const fi_info& b) {
  if (a.addr_format != b.addr_format || (a.src_addr == nullptr) != (b.src_addr == nullptr)) return false;
  return a.src_addr == nullptr ||
         (a.src_addrlen == b.src_addrlen && std::memcmp(a.src_addr, b.src_addr, a.src_addrlen) == 0);
}

// A provider's promise is an endpoint's, which none has yet.
Result<void> promises(const Domain& domain) {
  fid_ep* endpoint = nullptr;
  auto* const info = const_cast<fi_info*>(&domain.info());
  if (const int code = fi_endpoint(domain.raw(), info, &endpoint, nullptr); code != 0) {
    return tl::unexpected(failure(domain.name(), "fi_endpoint", code));
  }
  const Fid<fid_ep> owned(endpoint);
  return forbid_cuda_calls(*endpoint, domain.name());
}

}  // namespace

GpuDevices GpuDevices::find(const TransportContext& context, const Settings& settings) {
  GpuDevices found;
  found.played_ = settings.emulate_gpu;
  if (!settings.offer_gpu_memory) {
    found.why_not_ = "CLUSTAR_GDR=off";
    return found;
  }
  if (!found.played_) {
    auto driver = context.gpu_driver ? context.gpu_driver()
                                     : Result<std::shared_ptr<GpuDriver>>(
                                           fail(ErrorCode::kUnavailable, "nothing here speaks to a GPU's driver"));
    if (!driver) {
      found.why_not_ = driver.error().message;
      return found;
    }
    found.driver_ = std::move(*driver);
  }
  found.infos_ = find_gpu_infos(settings.progress);
  return found;
}

const Info* GpuDevices::match(const fi_info& plain) const {
  for (const Info& info : infos_) {
    const bool same = provider_of(*info) == provider_of(plain) &&
                      text(info->domain_attr->name) == text(plain.domain_attr->name) &&
                      text(info->fabric_attr->name) == text(plain.fabric_attr->name) && same_address(*info, plain);
    if (same) return &info;
  }
  return nullptr;
}

Result<Domain> GpuDevices::try_gpu(const fi_info& plain, std::uint32_t& kinds) const {
  if (!why_not_.empty()) return fail(ErrorCode::kUnavailable, why_not_);
  const Info* const info = match(plain);
  if (info == nullptr) return fail(ErrorCode::kUnavailable, "the domain has no FI_HMEM");
  std::string why;
  kinds = gpu_kinds(**info, why);
  if (kinds == 0) return fail(ErrorCode::kUnavailable, why);
  Info copy(Library::get()->duplicate_info(info->get()));
  if (!copy) return tl::unexpected(failure(name_of(plain), "fi_dupinfo", FI_ENOMEM));
  auto domain = Domain::open(std::move(copy), played_ ? GpuUse::kPlayed : GpuUse::kCuda);
  if (!domain || played_) return domain;
  if (const auto promised = promises(*domain); !promised) return tl::unexpected(promised.error());
  return domain;
}

Result<Domain> GpuDevices::open(Found& device) const {
  std::uint32_t kinds = 0;
  auto domain = try_gpu(*device.info, kinds);
  DeviceProperties& properties = device.properties;
  if (domain) {
    properties.memory_kinds |= played_ ? gdr::kAnyKind : kinds;
    properties.force_flush = played_;
    properties.gdr = played_ ? "emulated: host memory plays GPU memory"
                             : fmt::format("{} moves GPU memory (FI_HMEM){}", provider_of(domain->info()),
                                           (kinds & gdr::bit(gdr::MemoryKind::kDmaBuf)) != 0 ? ", dma-bufs too" : "");
    return domain;
  }
  properties.gdr = fmt::format("off: {} moves host memory only here ({}); NCCL keeps its buffers in pinned host memory",
                               provider_of(*device.info), domain.error().message);
  return Domain::open(std::move(device.info));
}

}  // namespace clustar::transport::ofi
