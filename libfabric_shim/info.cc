#include "libfabric_shim/info.h"

#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include <algorithm>

#include "libfabric_shim/failure.h"
#include "libfabric_shim/gpu_memory.h"
#include "libfabric_shim/signals.h"
#include "libfabric_shim/universe.h"

namespace clustar::transport::ofi {
namespace {

// What we can do as well as need: each bit of the modes is a duty that a provider may lay on us.
Info make_hints(const Library& library, const std::string& progress, Service service) {
  Info hints(library.duplicate_info(nullptr));
  if (!hints) return hints;
  const bool datagrams = service == Service::kDatagrams;
  hints->caps = (datagrams ? FI_MSG : FI_TAGGED) | FI_SEND | FI_RECV;
  hints->mode = FI_CONTEXT | FI_CONTEXT2 | (datagrams ? FI_MSG_PREFIX : 0);
  hints->ep_attr->type = datagrams ? FI_EP_DGRAM : FI_EP_RDM;
  // No remote access to memory is asked for, so the address form and the keys matter to registrations only.
  hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
  // Registrations run beside transfers.
  hints->domain_attr->threading = FI_THREAD_SAFE;
  hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
  hints->domain_attr->av_type = FI_AV_UNSPEC;
  if (progress != "any") {
    const fi_progress wanted = progress == "auto" ? FI_PROGRESS_AUTO : FI_PROGRESS_MANUAL;
    hints->domain_attr->data_progress = wanted;
    hints->domain_attr->control_progress = wanted;
  }
  return hints;
}

// Each on its own, of a list.
Result<std::vector<Info>> copies_of(const Library& library, const Info& all) {
  std::vector<Info> infos;
  for (const fi_info* each = all.get(); each != nullptr; each = each->next) {
    Info copy(library.duplicate_info(each));
    if (!copy) return tl::unexpected(failure("libfabric", "fi_dupinfo", FI_ENOMEM));
    infos.push_back(std::move(copy));
  }
  return infos;
}

}  // namespace

std::string provider_of(const fi_info& info) {
  return info.fabric_attr->prov_name == nullptr ? "?" : info.fabric_attr->prov_name;
}

std::string name_of(const fi_info& info) {
  return provider_of(info) + " (" + (info.domain_attr->name == nullptr ? "?" : info.domain_attr->name) + ")";
}

std::vector<std::string> providers_of(const std::vector<Info>& infos) {
  std::vector<std::string> names;
  for (const Info& info : infos) {
    std::string name = provider_of(*info);
    if (std::ranges::find(names, name) == names.end()) names.push_back(std::move(name));
  }
  return names;
}

std::vector<Info> find_gpu_infos(const std::string& progress) {
  const Result<Library>& library = Library::get();
  if (!library) return {};
  const Info hints = make_hints(*library, progress, Service::kMessages);
  if (!hints) return {};
  hints->caps |= FI_HMEM;
  hints->domain_attr->mr_mode |= FI_MR_HMEM;
  fi_info* found = nullptr;
  {
    const SmallUniverse universe;
    const KeptSignals signals;
    if (library->get_info(gpu_api(library->version()), nullptr, nullptr, 0, hints.get(), &found) != 0) return {};
  }
  auto infos = copies_of(*library, Info(found));
  return infos ? std::move(*infos) : std::vector<Info>{};
}

Result<std::vector<Info>> find_infos(const std::string& progress, Service service) {
  const Result<Library>& library = Library::get();
  if (!library) return tl::unexpected(library.error());
  const Info hints = make_hints(*library, progress, service);
  if (!hints) return tl::unexpected(failure("libfabric", "fi_allocinfo", FI_ENOMEM));
  fi_info* found = nullptr;
  {
    const SmallUniverse universe;
    const KeptSignals signals;
    const int code = library->get_info(FI_VERSION(1, 14), nullptr, nullptr, 0, hints.get(), &found);
    if (code == -FI_ENODATA && service == Service::kDatagrams) {
      return fail(
          ErrorCode::kUnavailable,
          (progress == "any" ? std::string() : "with CLUSTAR_OFI_PROGRESS=" + progress + ": ") +
              "no provider has datagrams here; fi_info -t FI_EP_DGRAM lists those that do (FI_PROVIDER, if set, "
              "hides others)");
    }
    if (code != 0) return tl::unexpected(failure("libfabric", "fi_getinfo", code));
  }
  return copies_of(*library, Info(found));
}

}  // namespace clustar::transport::ofi
