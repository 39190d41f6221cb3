// What the verbs transport's NICs and channels go by.
#pragma once

#include <cstdint>
#include <string>

#include "gdr/settings.h"
#include "transport/api/settings.h"
#include "transport/base/config.h"
#include "transport/base/time.h"
#include "transport/io/verbs/completion.h"
#include "transport/io/verbs/gid.h"
#include "transport/io/verbs/settings.h"
#include "transport/net/interfaces.h"
#include "transport/net/settings.h"

namespace clustar::transport::verbs {

enum class Choice : std::uint8_t { kAuto, kOn, kOff };

// NCCL's own transport takes trafficClass as it is; what is no service level (it has 4 bits) counts by the upper three
// bits of its byte, as 802.1p would. 0 for an undefined one.
constexpr std::uint8_t service_level_of(int traffic_class) {
  if (traffic_class < 0) return 0;
  return static_cast<std::uint8_t>(traffic_class <= 15 ? traffic_class : (traffic_class & 0xff) >> 5);
}

struct Settings {
  std::string hca_filter{};  // HcaFilter's text
  io::verbs::GidWish gid{};
  std::uint16_t pkey_index = 0;
  int traffic_class = -1;  // 0 .. 255 for every connection; -1 = ChannelOptions::traffic_class, and 0 without one
  int service_level = -1;  // 0 .. 15 for every connection; -1 = service_level_of(ChannelOptions::traffic_class)
  io::verbs::RetryOptions retry{};
  std::uint8_t queue_pairs = 1;  // per connection and port
  int mtu = 0;                   // bytes; 0 = what the port has active
  std::uint32_t eager_bytes = 0;
  std::uint32_t min_stripe_bytes = 1;
  Choice relaxed_ordering = Choice::kAuto;
  Choice adaptive_routing = Choice::kAuto;  // kAuto: on InfiniBand
  std::uint32_t adaptive_routing_threshold = 0;
  bool force_flush = false;
  bool may_fuse = true;
  bool offer_gpu_memory = true;
  bool emulate_gpu = false;
  Duration stall_timeout{0};
  Duration send_ahead{0};  // SendOrderSettings::ahead_us
  // Of the socket by which two ends find each other.
  std::string interface_filter{};
  net::Family family = net::Family::kAny;

  static Choice choice(const std::string& text) {
    return text == "on" ? Choice::kOn : text == "off" ? Choice::kOff : Choice::kAuto;
  }

  explicit Settings(const Config& config)
      : Settings(config.get<IbSettings>(), config.get<GdrSettings>(), config.get<NetworkSettings>(),
                 config.get<SendOrderSettings>(), config.get<TransportSettings>()) {}
  // They hold values that their tables allow, so nothing is lost by a cast.
  Settings(const IbSettings& ib, const GdrSettings& gdr, const NetworkSettings& network, const SendOrderSettings& order,
           const TransportSettings& general)
      : hca_filter(ib.hca),
        gid{.index = ib.gid_index,
            .family = ib.addr_family == "ipv4"   ? io::verbs::GidFamily::kIpv4
                      : ib.addr_family == "ipv6" ? io::verbs::GidFamily::kIpv6
                                                 : io::verbs::GidFamily::kAny},
        pkey_index(static_cast<std::uint16_t>(ib.pkey_index)),
        traffic_class(ib.traffic_class),
        service_level(ib.service_level),
        retry{.timeout = static_cast<std::uint8_t>(ib.timeout), .retry_cnt = static_cast<std::uint8_t>(ib.retry_count)},
        queue_pairs(static_cast<std::uint8_t>(ib.queue_pairs)),
        mtu(static_cast<int>(ib.mtu)),
        eager_bytes(ib.eager_bytes),
        min_stripe_bytes(ib.stripe_bytes),
        relaxed_ordering(choice(ib.relaxed_ordering)),
        adaptive_routing(choice(ib.adaptive_routing)),
        adaptive_routing_threshold(ib.ar_threshold),
        force_flush(ib.force_flush),
        may_fuse(ib.merge_nics),
        offer_gpu_memory(gdr.gdr != "off"),
        emulate_gpu(gdr.emulate),
        stall_timeout(general.stall_timeout),
        send_ahead(std::chrono::microseconds(order.ahead_us)),
        interface_filter(network.interfaces),
        family(network.family()) {}
};

}  // namespace clustar::transport::verbs
