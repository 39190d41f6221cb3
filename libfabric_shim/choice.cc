#include "libfabric_shim/choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace clustar::transport::ofi {
namespace {

struct Known {
  std::string_view name;  // whole, or the front
  const char* why;
};

// Best first. Only providers that reach other hosts at a NIC's or the kernel's speed.
constexpr std::array<Known, 5> kPreferred{{
    {"verbs;ofi_rxm", "RDMA NICs"},
    {"verbs", "RDMA NICs"},
    {"efa", "EFA of AWS"},
    {"cxi", "Slingshot"},
    {"tcp", "kernel TCP: there is no provider of an RDMA NIC, EFA or Slingshot"},
}};

constexpr std::array<Known, 7> kOthers{{
    {"shm", "reaches this host only"},
    {"udp", "has one thread's retransmissions over UDP, far slower than tcp"},
    {"net", "is another form of tcp, not finished in libfabric 1.17"},
    {"sockets", "is deprecated in favour of tcp"},
    {"psm3", "was never run with clustar"},
    {"opx", "was never run with clustar"},
    {"verbs;ofi_rxd", "resends by itself what the NIC does better"},
}};

std::string_view front_of(std::string_view provider) { return provider.substr(0, provider.find(';')); }

bool matches(std::string_view provider, std::string_view name) {
  return provider == name || front_of(provider) == name;
}

std::string why_not(std::string_view provider) {
  const auto exact = std::ranges::find_if(kOthers, [&](const Known& one) { return one.name == provider; });
  if (exact != kOthers.end()) return exact->why;
  const auto known = std::ranges::find_if(kOthers, [&](const Known& one) { return matches(provider, one.name); });
  return known == kOthers.end() ? "is not known to this version" : known->why;
}

}  // namespace

Result<Choice> choose(const std::vector<std::string>& all, const std::string& forced) {
  // A provider over us would ask us for a transport, and so on.
  std::vector<std::string> there = all;
  std::erase_if(there, [](const std::string& one) { return front_of(one) == "clustar"; });
  const auto take = [&](const std::string& provider, const std::string& why) {
    Choice choice{provider, why, {}};
    for (const std::string& other : there) {
      if (other == provider) continue;
      const bool preferred =
          std::ranges::any_of(kPreferred, [&](const Known& one) { return matches(other, one.name); });
      const bool slower = preferred && why_not(other) == "is not known to this version";
      choice.refused.push_back(other + ": " + (slower ? "comes after " + provider : why_not(other)));
    }
    return choice;
  };
  if (!forced.empty()) {
    // A whole name goes before a front of that name.
    auto found = std::ranges::find(there, forced);
    if (found == there.end())
      found = std::ranges::find_if(there, [&](const auto& one) { return matches(one, forced); });
    if (found != there.end()) return take(*found, "CLUSTAR_OFI_PROVIDER");
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("CLUSTAR_OFI_PROVIDER={}: no such provider here; there are {}", forced,
                            there.empty() ? "none" : fmt::format("{}", fmt::join(there, ", "))));
  }
  for (const Known& best : kPreferred) {
    const auto found =
        std::ranges::find_if(there, [&](const auto& one) { return matches(one, best.name) && one != "verbs;ofi_rxd"; });
    if (found != there.end()) return take(*found, best.why);
  }
  return fail(ErrorCode::kUnavailable,
              fmt::format("none of verbs, efa, cxi and tcp is here; CLUSTAR_OFI_PROVIDER takes another of {}",
                          there.empty() ? "none" : fmt::format("{}", fmt::join(there, ", "))));
}

std::string no_such_progress(const std::string& progress, const std::string& provider,
                             const std::vector<std::string>& with_it) {
  std::vector<std::string> others = with_it;
  std::erase_if(others, [](const std::string& one) { return front_of(one) == "clustar"; });
  return fmt::format(
      "CLUSTAR_OFI_PROGRESS={}: {} makes no such progress here; unset it{}", progress, provider,
      others.empty() ? "" : fmt::format(", or set CLUSTAR_OFI_PROVIDER to one that does: {}", fmt::join(others, ", ")));
}

}  // namespace clustar::transport::ofi
