// Which devices carry GPU memory: their domains, opened for that where libfabric promises it (FI_HMEM).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "libfabric_shim/domain.h"
#include "libfabric_shim/rdm/devices.h"
#include "transport/api/context.h"

namespace clustar::transport::ofi {

class GpuDevices {
 public:
  // What libfabric and the driver have, asked only where the settings offer GPU memory.
  static GpuDevices find(const TransportContext& context, const Settings& settings);

  // With GPU memory, or else without, and what the properties of `device` say of it. Error: libfabric's.
  Result<Domain> open(Found& device) const;
  // Of the domains with GPU memory; null: none has it, or host memory plays it.
  const std::shared_ptr<GpuDriver>& driver() const { return driver_; }

 private:
  const Info* match(const fi_info& plain) const;
  Result<Domain> try_gpu(const fi_info& plain, std::uint32_t& kinds) const;

  std::vector<Info> infos_;  // with FI_HMEM
  std::shared_ptr<GpuDriver> driver_;
  bool played_ = false;
  std::string why_not_;  // no device is asked
};

}  // namespace clustar::transport::ofi
