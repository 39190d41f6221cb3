// What the verbs transport takes from the project's Config.
#pragma once

#include <cstdint>
#include <string>

#include "transport/base/config.h"
#include "transport/base/time.h"
#include "transport/io/verbs/completion.h"
#include "transport/io/verbs/gid.h"
#include "transport/net/interfaces.h"

namespace clustar::transport::verbs {

enum class Choice : std::uint8_t { kAuto, kOn, kOff };

struct Settings {
  std::string hca_filter{};  // HcaFilter's text
  io::verbs::GidWish gid{};
  std::uint16_t pkey_index = 0;
  int traffic_class = -1;  // 0 .. 255 for every connection; -1 = ChannelOptions::traffic_class, and 0 without one
  std::uint8_t service_level = 0;
  // At most 6 repetitions: rdma_rxe takes 7 for "for ever".
  io::verbs::RetryOptions retry{.timeout = 18, .retry_cnt = 6};
  std::uint8_t queue_pairs = 2;  // per connection and port
  int mtu = 0;                   // bytes; 0 = what the port has active
  std::uint32_t eager_bytes = 8192;
  std::uint32_t min_stripe_bytes = 64 * 1024;
  Choice relaxed_ordering = Choice::kAuto;
  Choice adaptive_routing = Choice::kAuto;  // kAuto: on InfiniBand
  std::uint32_t adaptive_routing_threshold = 8192;
  bool force_flush = false;
  bool may_fuse = true;
  Duration stall_timeout{0};
  // Of the socket by which two ends find each other.
  std::string interface_filter{};
  net::Family family = net::Family::kAny;

  explicit Settings(const Config& config)
      : stall_timeout(config.stall_timeout),
        interface_filter(config.socket_ifname),
        family(config.socket_family == "ipv4"   ? net::Family::kIpv4
               : config.socket_family == "ipv6" ? net::Family::kIpv6
                                                : net::Family::kAny) {}
};

}  // namespace clustar::transport::verbs
