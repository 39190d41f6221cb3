#include "transport/io/verbs/settings.h"

#include "transport/base/nccl_values.h"

namespace clustar {
namespace {

Setting<IbSettings> mtu() {
  return {{"ib_mtu", "0 (what the port has active) | 256 | 512 | 1024 | 2048 | 4096", {}, {}, false},
          [](IbSettings& settings, const std::string& text) {
            if (!setting::one_of(text, {"0", "256", "512", "1024", "2048", "4096"})) return false;
            settings.mtu = setting::number<std::uint32_t>(text, 0, 4096).value_or(0);
            return true;
          },
          [](const IbSettings& settings) { return std::to_string(settings.mtu); }};
}

std::vector<Setting<IbSettings>> which() {
  return {
      setting::make_switch("ib_disable", &IbSettings::disable)
          .help("1: no RDMA NIC is used. Where NCCL's own use is disabled to force a plugin, set ours to 0"),
      setting::make_text("ib_hca", &IbSettings::hca,
                         "devices in NCCL's syntax: prefix,prefix | =name:port,name | ^prefix")
          .otherwise("all")
          .help("devices and ports: `mlx5_0,mlx5_1` prefixes, `=mlx5_1` exact, `mlx5_0:1` a port, `^mlx5_3` all but; "
                "`mlx5_1` alone fits `mlx5_10`, too"),
      setting::make_number("ib_gid_index", &IbSettings::gid_index, -1, 255, " (-1: chosen)")
          .help("index in every port's GID table; -1: chosen ([verbs.md](verbs.md)). Not for InfiniBand ports, which "
                "take their own"),
      setting::make_choice("ib_addr_family", &IbSettings::addr_family, {"any", "ipv4", "ipv6"})
          .help("`any`, `ipv4`, `ipv6` of the chosen GID. NCCL means IPv4 when it is unset; `any` takes IPv6 where "
                "there is no IPv4"),
      setting::make_number("ib_pkey_index", &IbSettings::pkey_index, 0, 65535,
                           ", an index in the port's table, not a key")
          .help("index in the port's partition table: NCCL's variable, too, is an index, not a key"),
  };
}

std::vector<Setting<IbSettings>> marks_and_losses() {
  return {
      setting::make_number("ib_tc", &IbSettings::traffic_class, -1, 255, ", DSCP * 4 (-1: what the communicator says)")
          .help("traffic class byte of the IP header, DSCP * 4; -1: the communicator's `trafficClass`, otherwise 0"),
      setting::make_number("ib_sl", &IbSettings::service_level, -1, 15, " (-1: what the communicator says)")
          .help("service level. -1: the communicator's `trafficClass`, as in NCCL; one above 15 counts by the upper "
                "three bits of its byte"),
      setting::make_number("ib_timeout", &IbSettings::timeout, 1, 22, " (4.096 us * 2^n until a packet counts as lost)")
          .help("a packet counts as lost after 4.096 us * 2^n at least; 20 is 4.3 s"),
      setting::make_number("ib_retry_cnt", &IbSettings::retry_count, 0, 7)
          .help("repetitions until a silent peer is an error: with 20 and 6 that is 30 s at least. NCCL's default is "
                "7, which SoftRoCE takes for \"forever\""),
  };
}

std::vector<Setting<IbSettings>> data() {
  constexpr std::uint32_t kMost = 1u << 30;
  return {
      setting::make_number("ib_qps", &IbSettings::queue_pairs, 1, 8)
          .help("queue pairs per connection and port (NCCL: 1, and more are allowed): more give ECMP more flows to "
                "spread, and one takes over when another fails"),
      mtu().help("bytes of payload in a packet, 256 to 4096; 0: what the port has active"),
      setting::make_bytes("ib_eager_bytes", &IbSettings::eager_bytes, 0, 1 << 20)
          .help("largest message that may go ahead of its receive; 0: none"),
      setting::make_bytes("ib_stripe_bytes", &IbSettings::stripe_bytes, 4096, kMost)
          .help("a message is spread over queue pairs in parts of this size at least. NCCL gives each message to one "
                "queue pair, unless `NCCL_IB_SPLIT_DATA_ON_QPS=1`"),
      setting::make_choice("ib_relaxed_ordering", &IbSettings::relaxed_ordering, {"auto", "on", "off"})
          .help("PCI writes of data may be reordered: `auto` where library and NIC can"),
      setting::make_choice("ib_adaptive_routing", &IbSettings::adaptive_routing, {"auto", "on", "off"})
          .help("the fabric may reorder packets: long messages are announced apart. `auto`: on InfiniBand"),
      setting::make_bytes("ib_ar_threshold", &IbSettings::ar_threshold, 0, kMost)
          .help("messages longer than this are announced apart"),
      setting::make_switch("ib_force_flush", &IbSettings::force_flush)
          .help("1: ask NCCL to flush after every receive into GPU memory"),
      setting::make_switch("ib_merge_nics", &IbSettings::merge_nics)
          .help("NCCL may fuse the ports of one NIC into one device (`NCCL_NET_MERGE_LEVEL`, `NCCL_NET_FORCE_MERGE`)"),
  };
}

// Meanings and defaults: NCCL v2.28.9, src/transport/net_ib.cc.
std::vector<NcclVariable> ncclibs() {
  using namespace nccl_values;
  return {
      {"NCCL_IB_DISABLE", "ib_disable", "a number", yes_or_no("1", "0")},
      {"NCCL_IB_HCA", "ib_hca", "devices", as_it_is},
      {"NCCL_IB_GID_INDEX", "ib_gid_index", "a number from 0 to 255, or -1", number_in(0, 255, -1)},
      {"NCCL_IB_ADDR_FAMILY", "ib_addr_family", "AF_INET | AF_INET6",
       one_of_words({{"AF_INET", "ipv4"}, {"AF_INET6", "ipv6"}})},
      {"NCCL_IB_ROCE_VERSION_NUM", nullptr, "2: clustar speaks RoCE v2 only", one_of_words({{"2", ""}})},
      {"NCCL_IB_PKEY", "ib_pkey_index", "a number from 0 to 65535", number_in(0, 65535)},
      {"NCCL_IB_TC", "ib_tc", "a number from 0 to 255, or -1", number_in(0, 255, -1)},
      {"NCCL_IB_SL", "ib_sl", "a number from 0 to 15, or -1", number_in(0, 15, -1)},
      {"NCCL_IB_TIMEOUT", "ib_timeout", "a number from 1 to 22", number_in(1, 22)},
      {"NCCL_IB_RETRY_CNT", "ib_retry_cnt", "a number from 0 to 7", number_in(0, 7)},
      {"NCCL_IB_QPS_PER_CONNECTION", "ib_qps", "a number from 1 to 8", number_in(1, 8)},
      {"NCCL_IB_PCI_RELAXED_ORDERING", "ib_relaxed_ordering", "0 (off) | 1 (on) | 2 (auto)",
       one_of_words({{"0", "off"}, {"1", "on"}, {"2", "auto"}})},
      {"NCCL_IB_ADAPTIVE_ROUTING", "ib_adaptive_routing", "0 (off) | 1 (on), or -2", yes_or_no("on", "off", -2)},
      {"NCCL_IB_AR_THRESHOLD", "ib_ar_threshold", "bytes from 0 to 1073741824", number_in(0, 1 << 30)},
      {"NCCL_IB_MERGE_NICS", "ib_merge_nics", "a number", yes_or_no("1", "0")},
  };
}

}  // namespace

const TypedTable<IbSettings>& IbSettings::table() {
  static const TypedTable<IbSettings> all(
      [] {
        std::vector<Setting<IbSettings>> settings = which();
        for (auto& more : {marks_and_losses(), data()}) settings.insert(settings.end(), more.begin(), more.end());
        for (Setting<IbSettings>& one : settings) {
          for (const NcclVariable& theirs : ncclibs()) {
            if (theirs.setting != nullptr && one.info.name == theirs.setting && one.info.otherwise.empty())
              one.info.otherwise = std::string("`") + theirs.name + "`, otherwise `" + one.show(IbSettings{}) + "`";
          }
        }
        return settings;
      }(),
      {.nccl = ncclibs(), .nccl_prefix = "NCCL_IB_"});
  return all;
}

}  // namespace clustar
