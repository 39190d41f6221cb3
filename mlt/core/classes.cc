#include "mlt/core/classes.h"

#include "mlt/core/options_check.h"
#include "mlt/core/ppm.h"

namespace clustar::mlt {

Classes::Classes(const Options& options) : options_(options) {
  for (const std::uint8_t traffic_class : options.traffic_class) {
    require_option(traffic_class <= 7, "Classes: traffic_class must be 0 .. 7");
  }
  require_option(options.front_ppm <= kMillion, "Classes: front_ppm must be 0 .. 1000000");
}

PacketKind Classes::bulk(std::uint32_t index, std::uint32_t collectives) const {
  if (index >= collectives) return PacketKind::kBackLayerBulk;
  const std::uint64_t front = std::uint64_t{collectives} * options_.front_ppm / kMillion;
  return index >= collectives - front ? PacketKind::kFrontLayerBulk : PacketKind::kBackLayerBulk;
}

}  // namespace clustar::mlt
