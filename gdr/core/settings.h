// NCCL's variables about GPUDirect RDMA, as NCCL 2.28.9 reads them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "gdr/core/distance.h"

namespace clustar::gdr {

// Values as given; nothing = not set.
struct Settings {
  std::optional<std::string> gdr_level{};       // NCCL_NET_GDR_LEVEL
  std::optional<std::string> gdr_read{};        // NCCL_NET_GDR_READ
  std::optional<std::string> gdr_c2c{};         // NCCL_NET_GDR_C2C
  std::optional<std::string> dmabuf_enable{};   // NCCL_DMABUF_ENABLE
  std::optional<std::string> data_direct{};     // NCCL_IB_DATA_DIRECT
  std::optional<std::string> force_flush{};     // NCCL_NET_FORCE_FLUSH
  std::optional<std::string> gdrcopy_enable{};  // NCCL_GDRCOPY_ENABLE
  std::optional<std::string> gdrcopy_flush{};   // NCCL_GDRCOPY_FLUSH_ENABLE
};

// A number as NCCL reads it: 0x and 0 in front count, what follows a number is ignored, and no number is 0.
std::int64_t number_of(const std::optional<std::string>& value, std::int64_t otherwise);

// Farthest distance at which NCCL uses GPUDirect RDMA: PXB unless the variable holds a level.
Distance farthest(const Settings& settings);

}  // namespace clustar::gdr
