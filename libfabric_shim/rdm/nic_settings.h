// What a device of the transport over libfabric and its channels go by.
#pragma once

#include <algorithm>
#include <string>

#include "gdr/settings.h"
#include "libfabric_shim/rdm/wire.h"
#include "libfabric_shim/settings.h"
#include "transport/api/context.h"
#include "transport/api/settings.h"
#include "transport/base/config.h"
#include "transport/net/interfaces.h"
#include "transport/net/settings.h"

namespace clustar::transport::ofi {

struct Settings {
  std::string provider;
  std::string progress;
  SharedSettings receiving;       // what peers may send ahead of our receives
  std::uint32_t eager_bytes = 0;  // what we send ahead of theirs: receiving.eager_bytes at most
  std::uint32_t chunk_bytes = 0;
  Duration stall_timeout{0};
  Duration send_ahead{0};  // SendOrderSettings::ahead_us
  std::string interface_filter;
  net::Family family = net::Family::kAny;
  int line_mbps = 0;
  bool offer_gpu_memory = true;
  bool emulate_gpu = false;

  explicit Settings(const Config& config)
      : Settings(config.get<OfiSettings>(), config.get<NetworkSettings>(), config.get<SendOrderSettings>(),
                 config.get<TransportSettings>(), config.get<GdrSettings>()) {}
  Settings(const OfiSettings& ofi, const NetworkSettings& network, const SendOrderSettings& order,
           const TransportSettings& general, const GdrSettings& gdr)
      : provider(ofi.provider),
        progress(ofi.progress),
        // Each message that is ahead takes a frame.
        receiving{ofi.eager_bytes, std::max<std::uint32_t>(ofi.eager_bytes, 1) * kFrames},
        eager_bytes(ofi.eager_bytes),
        chunk_bytes(std::max(ofi.chunk_bytes, ofi.eager_bytes)),
        stall_timeout(general.stall_timeout),
        send_ahead(std::chrono::microseconds(order.ahead_us)),
        interface_filter(network.interfaces),
        family(network.family()),
        line_mbps(network.line_mbps),
        offer_gpu_memory(gdr.gdr != "off"),
        emulate_gpu(gdr.emulate) {}

  // What goes ahead of its receive is one chunk, which nothing interrupts.
  void keep_order(bool ordered) {
    if (ordered && send_ahead > Duration::zero()) eager_bytes = std::min<std::uint32_t>(eager_bytes, kOrderedChunk);
  }
  // Neither side copies where memory may be a GPU's, so nothing travels within frames or ahead of its receive.
  void keep_to_memory() {
    eager_bytes = 0;
    receiving = {0, kFrames};
  }
};

}  // namespace clustar::transport::ofi
