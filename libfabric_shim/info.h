// fi_info: what libfabric offers for what we ask.
#pragma once

#include <rdma/fabric.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "libfabric_shim/library.h"
#include "transport/base/result.h"

namespace clustar::transport::ofi {

// There is none before the library was opened.
struct FreeInfo {
  void operator()(fi_info* info) const { Library::get()->free_info(info); }
};
using Info = std::unique_ptr<fi_info, FreeInfo>;

// "tcp;ofi_rxm"
std::string provider_of(const fi_info& info);
// "tcp;ofi_rxm (eth0)", for errors
std::string name_of(const fi_info& info);

// The names of their providers, each once, in that order.
std::vector<std::string> providers_of(const std::vector<Info>& infos);

enum class Service : std::uint8_t {
  kMessages,   // reliable, tagged (FI_EP_RDM)
  kDatagrams,  // FI_EP_DGRAM
};

// Everything with that, each on its own, in libfabric's order. `progress`: OfiSettings::progress.
// The first call of a process lets libfabric load its providers (0.1 s). Error: libfabric's, kUnavailable if there is
// none.
Result<std::vector<Info>> find_infos(const std::string& progress, Service service = Service::kMessages);
// Reliable messages with GPU memory (FI_HMEM), by gpu_api(); empty: nothing has that.
std::vector<Info> find_gpu_infos(const std::string& progress);

}  // namespace clustar::transport::ofi
