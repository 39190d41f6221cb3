#include "libfabric_shim/dgram/choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <span>
#include <string_view>

namespace clustar::transport::ofi {
namespace {

struct Known {
  std::string_view name;
  const char* why;
};

// Best first.
constexpr std::array<Known, 2> kPreferred{{
    {"verbs", "datagrams of RDMA NICs"},
    {"udp", "kernel UDP: no provider has datagrams of an RDMA NIC"},
}};

constexpr std::array<Known, 4> kOthers{{
    {"sockets", "is deprecated, and moves datagrams over TCP connections"},
    {"efa", "was never run with clustar"},
    {"usnic", "was never run with clustar"},
    {"psm3", "was never run with clustar"},
}};

const Known* find(std::string_view provider, std::span<const Known> among) {
  const auto found = std::ranges::find(among, provider, &Known::name);
  return found == among.end() ? nullptr : &*found;
}

std::string list(const std::vector<std::string>& names) {
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

Result<Choice> choose_datagrams(const std::vector<std::string>& there, const std::string& forced,
                                const std::string& no_rdma) {
  const auto forbidden = [&](std::string_view provider) { return provider == "verbs" && !no_rdma.empty(); };
  const auto why_not = [&](const std::string& provider, const std::string& taken) -> std::string {
    if (forbidden(provider)) return no_rdma + " forbids RDMA NICs";
    if (find(provider, kPreferred) != nullptr) return "comes after " + taken;
    const Known* const known = find(provider, kOthers);
    return known == nullptr ? "is not known to this version" : known->why;
  };
  const auto take = [&](const std::string& provider, const std::string& why) {
    Choice choice{provider, why, {}};
    for (const std::string& other : there) {
      if (other != provider) choice.refused.push_back(other + ": " + why_not(other, provider));
    }
    return choice;
  };
  if (!forced.empty()) {
    if (std::ranges::find(there, forced) == there.end()) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("CLUSTAR_OFI_PROVIDER={}: no provider of that name has datagrams here; there are {}",
                              forced, list(there)));
    }
    if (forbidden(forced)) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("CLUSTAR_OFI_PROVIDER={}, and {} forbids RDMA NICs; unset one of them", forced, no_rdma));
    }
    return take(forced, "CLUSTAR_OFI_PROVIDER");
  }
  for (const Known& best : kPreferred) {
    if (std::ranges::find(there, best.name) == there.end() || forbidden(best.name)) continue;
    return take(std::string(best.name), best.why);
  }
  return fail(
      ErrorCode::kUnavailable,
      fmt::format("neither verbs nor udp can be taken for datagrams{}; CLUSTAR_OFI_PROVIDER takes another of {}",
                  no_rdma.empty() ? "" : ", for " + no_rdma + " forbids RDMA NICs", list(there)));
}

}  // namespace clustar::transport::ofi
