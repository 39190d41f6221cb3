#include "transport/base/config_ib.h"

#include "transport/base/packet_ios.h"

namespace clustar::config_keys {
namespace {

Key io_key() {
  std::vector<std::string> names;
  for (const PacketIoKind& kind : kPacketIos) names.emplace_back(kind.name);
  Key key = choice_key("io", &Config::io, names);
  key.allowed += " (dpdk is not there yet)";
  return key;
}

Key mtu_key() {
  return {"ib_mtu", "0 (what the port has active) | 256 | 512 | 1024 | 2048 | 4096",
          [](Config& config, const std::string& text) {
            if (!one_of(text, {"0", "256", "512", "1024", "2048", "4096"})) return false;
            config.ib_mtu = number<std::uint32_t>(text, 0, 4096).value_or(0);
            return true;
          },
          [](const Config& config) { return std::to_string(config.ib_mtu); }};
}

}  // namespace

std::vector<Key> ib_keys() {
  constexpr std::uint32_t kMost = 1u << 30;
  return {
      io_key(),
      switch_key("ib_disable", &Config::ib_disable),
      text_key("ib_hca", &Config::ib_hca, "devices in NCCL's syntax: prefix,prefix | =name:port,name | ^prefix"),
      number_key("ib_gid_index", &Config::ib_gid_index, -1, 255, " (-1: chosen)"),
      choice_key("ib_addr_family", &Config::ib_addr_family, {"any", "ipv4", "ipv6"}),
      number_key("ib_pkey_index", &Config::ib_pkey_index, 0, 65535, ", an index in the port's table, not a key"),
      number_key("ib_tc", &Config::ib_traffic_class, -1, 255, ", DSCP * 4 (-1: what the communicator says)"),
      number_key("ib_sl", &Config::ib_service_level, -1, 15, " (-1: what the communicator says)"),
      number_key("ib_timeout", &Config::ib_timeout, 1, 22, " (4.096 us * 2^n until a packet counts as lost)"),
      number_key("ib_retry_cnt", &Config::ib_retry_count, 0, 7),
      number_key("ib_qps", &Config::ib_queue_pairs, 1, 8),
      mtu_key(),
      bytes_key("ib_eager_bytes", &Config::ib_eager_bytes, 0, 1 << 20),
      bytes_key("ib_stripe_bytes", &Config::ib_stripe_bytes, 4096, kMost),
      choice_key("ib_relaxed_ordering", &Config::ib_relaxed_ordering, {"auto", "on", "off"}),
      choice_key("ib_adaptive_routing", &Config::ib_adaptive_routing, {"auto", "on", "off"}),
      bytes_key("ib_ar_threshold", &Config::ib_ar_threshold, 0, kMost),
      switch_key("ib_force_flush", &Config::ib_force_flush),
      switch_key("ib_merge_nics", &Config::ib_merge_nics),
  };
}

}  // namespace clustar::config_keys
