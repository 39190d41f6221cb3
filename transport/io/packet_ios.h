// What CLUSTAR_IO may name, and what brings it: the one line that a new kind of packets adds to the product.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace clustar {

inline constexpr std::size_t kMostIoName = 15;

struct PacketIoKind {
  std::string_view name;
  std::string_view module;  // libclustar-<module>.so; empty: part of the plugin
  bool rdma = false;        // needs RDMA NICs, which CLUSTAR_IB_DISABLE forbids
};

inline constexpr std::array kPacketIos{
    PacketIoKind{"udp", ""},
    PacketIoKind{"verbs_ud", "verbs", true},
    PacketIoKind{"verbs_uc", "verbs", true},
    PacketIoKind{"ofi", "ofi"},
    PacketIoKind{"dpdk", "dpdk"},
};

// Null: no such.
constexpr const PacketIoKind* packet_io_kind(std::string_view name) {
  for (const PacketIoKind& kind : kPacketIos) {
    if (kind.name == name) return &kind;
  }
  return nullptr;
}

static_assert([] {
  for (const PacketIoKind& kind : kPacketIos) {
    if (kind.name.empty() || kind.name.size() > kMostIoName) return false;
  }
  return true;
}());

}  // namespace clustar
