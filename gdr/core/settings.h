// NCCL's variables about GPUDirect RDMA, as NCCL 2.28.9 reads them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

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

// A number as NCCL reads it, by strtoll with base 0: 0x and 0 in front count, what follows a number is ignored, no
// number is 0, and one that 64 bits do not hold is `otherwise` (src/misc/param.cc).
std::int64_t number_of(const std::optional<std::string>& value, std::int64_t otherwise);

// NCCL_NET_GDR_LEVEL as ncclGetLevel reads it (src/graph/paths.cc): a name, or what begins with a digit and is one of
// the old numbers 0 to 4 by strtol with base 0, larger ones being 4; so 08 is 0, and 0x4 is 4. Nothing: NCCL ignores
// such a value; or it cuts the number to a negative int, and what it reads then is undefined (level_overflows).
std::optional<Distance> parse_level(std::string_view text);
bool level_overflows(std::string_view text);

// Farthest distance at which NCCL uses GPUDirect RDMA: PXB unless the variable holds a level.
Distance farthest(const Settings& settings);

}  // namespace clustar::gdr
