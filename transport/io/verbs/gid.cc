#include "transport/io/verbs/gid.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <tuple>

namespace clustar::transport::io::verbs {
namespace {

std::string name_of(const GidEntry& entry) {
  return fmt::format("GID index {} ({}, {})", entry.index, entry.gid.to_string(), to_string(entry.type));
}

// Why an entry of RoCE cannot be used; empty if it can.
std::string unfit(const GidEntry& entry, const GidWish& wish) {
  if (entry.type == GidType::kRoceV1)
    return "RoCE v1: stays within one Ethernet segment, and no v2 peer understands it";
  if (entry.gid.link_local()) return "link-local: reaches no other subnet";
  if (entry.interface.empty()) {
    return "no interface of this network namespace has its address: it is another container's or the host's";
  }
  if (wish.interface && !wish.interface(entry.interface)) {
    return fmt::format("interface {} is not one of those asked for", entry.interface);
  }
  if (wish.family == GidFamily::kIpv4 && !entry.gid.ipv4()) return "IPv6, and IPv4 was asked for";
  if (wish.family == GidFamily::kIpv6 && entry.gid.ipv4()) return "IPv4, and IPv6 was asked for";
  return {};
}

auto rank(const GidEntry& entry) { return std::tuple(entry.gid.self_assigned(), !entry.gid.ipv4(), entry.index); }

void refuse(GidChoice& choice, const GidEntry& entry, std::string reason) {
  choice.refused.push_back({entry.index, fmt::format("{}: {}", name_of(entry), reason)});
}

GidChoice take_wished(std::span<const GidEntry> table, const GidWish& wish) {
  GidChoice choice;
  for (const GidEntry& entry : table) {
    if (entry.index != static_cast<std::uint32_t>(wish.index)) {
      refuse(choice, entry, fmt::format("index {} was asked for", wish.index));
      continue;
    }
    choice.chosen = entry;
    if (entry.type != GidType::kInfiniBand) choice.warning = unfit(entry, wish);
  }
  if (!choice.chosen) {
    choice.warning = fmt::format("index {} was asked for, and is empty in this port's table", wish.index);
    // mlx5 lists v1 and v2 of two addresses, so that 3 is its IPv4 address as v2; other drivers and pods differ.
    if (wish.index == 3) choice.warning += " (3 is right on many mlx5 ports only: do not ask for an index)";
  }
  return choice;
}

GidChoice take_first(std::span<const GidEntry> table) {
  GidChoice choice;
  for (const GidEntry& entry : table) {
    if (choice.chosen) {
      refuse(choice, entry, "an earlier one does");
    } else {
      choice.chosen = entry;
    }
  }
  return choice;
}

}  // namespace

bool Gid::ipv4() const {
  constexpr std::array<std::uint8_t, 12> kMapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::equal(kMapped.begin(), kMapped.end(), bytes.begin());
}

Gid gid_of(const net::Endpoint& address) {
  Gid gid;
  const std::size_t length = address.ipv6 ? 16 : 4;
  const std::size_t at = gid.bytes.size() - length;
  if (!address.ipv6) gid.bytes[10] = gid.bytes[11] = 0xff;
  for (std::size_t i = 0; i < length; ++i) gid.bytes[at + i] = std::to_integer<std::uint8_t>(address.address[i]);
  return gid;
}

net::Endpoint endpoint_of(const Gid& gid) {
  net::Endpoint endpoint;
  endpoint.ipv6 = !gid.ipv4();
  const std::size_t at = endpoint.ipv6 ? 0 : 12;
  for (std::size_t i = at; i < gid.bytes.size(); ++i) endpoint.address[i - at] = std::byte{gid.bytes[i]};
  return endpoint;
}

std::string Gid::to_string() const {
  char text[INET6_ADDRSTRLEN];
  const bool v4 = ipv4();
  return inet_ntop(v4 ? AF_INET : AF_INET6, bytes.data() + (v4 ? 12 : 0), text, sizeof text);
}

const char* to_string(GidType type) {
  switch (type) {
    case GidType::kInfiniBand: return "InfiniBand";
    case GidType::kRoceV1: return "RoCE v1";
    case GidType::kRoceV2: return "RoCE v2";
  }
  return "?";
}

std::string owner_of(std::span<const AddressOwner> owners, const Gid& gid, std::uint32_t ifindex) {
  const AddressOwner* found = nullptr;
  for (const AddressOwner& owner : owners) {
    if (owner.gid == gid && (found == nullptr || owner.ifindex == ifindex)) found = &owner;
  }
  return found == nullptr ? std::string() : found->interface;
}

std::string GidChoice::summary() const {
  if (chosen) {
    const std::string interface = chosen->interface.empty() ? "" : " on " + chosen->interface;
    return name_of(*chosen) + interface + (warning.empty() ? "" : "; " + warning);
  }
  std::string text = "no usable GID: " + (warning.empty() ? "none of its table will do" : warning);
  for (const GidRefusal& refusal : refused) text += "; " + refusal.reason;
  if (refused.empty()) text += "; the table is empty: give the port's network interface an IP address and set it up";
  return text;
}

GidChoice choose_gid(std::span<const GidEntry> table, const GidWish& wish) {
  std::vector<GidEntry> entries;
  std::copy_if(table.begin(), table.end(), std::back_inserter(entries),
               [](const GidEntry& entry) { return !entry.gid.empty(); });
  std::sort(entries.begin(), entries.end(), [](const GidEntry& a, const GidEntry& b) { return a.index < b.index; });
  if (wish.index >= 0) return take_wished(entries, wish);
  if (!entries.empty() && entries.front().type == GidType::kInfiniBand) return take_first(entries);

  const GidEntry* best = nullptr;
  for (const GidEntry& entry : entries) {
    if (unfit(entry, wish).empty() && (best == nullptr || rank(entry) < rank(*best))) best = &entry;
  }
  GidChoice choice;
  if (best != nullptr) choice.chosen = *best;
  for (const GidEntry& entry : entries) {
    if (&entry == best) continue;
    const std::string reason = unfit(entry, wish);
    refuse(choice, entry, reason.empty() ? fmt::format("would do, but index {} comes first", best->index) : reason);
  }
  return choice;
}

}  // namespace clustar::transport::io::verbs
