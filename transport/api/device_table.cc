#include "transport/api/device_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace clustar::transport {

DeviceProperties fused_properties(std::span<const DeviceProperties> devices, std::span<const int> members) {
  DeviceProperties all = devices[static_cast<std::size_t>(members[0])];
  for (const int member : members.subspan(1)) {
    const DeviceProperties& one = devices[static_cast<std::size_t>(member)];
    all.name += "+" + one.name;
    all.speed_mbps += one.speed_mbps;
    all.latency_us = std::max(all.latency_us, one.latency_us);
    all.max_channels = std::min(all.max_channels, one.max_channels);
    all.max_recv_parts = std::min(all.max_recv_parts, one.max_recv_parts);
    all.memory_kinds &= one.memory_kinds;
    if (one.gdr != all.gdr) all.gdr += fmt::format("{}{}", all.gdr.empty() || one.gdr.empty() ? "" : "; ", one.gdr);
    all.global_registration = all.global_registration && one.global_registration;
    all.ordered_lines = all.ordered_lines && one.ordered_lines;
    all.may_lose = all.may_lose || one.may_lose;
    all.force_flush = all.force_flush || one.force_flush;
    if (one.rail_id != all.rail_id) all.rail_id = -1;
    if (one.plane_id != all.plane_id) all.plane_id = -1;
  }
  all.fused.assign(members.begin(), members.end());
  return all;
}

DeviceTable::DeviceTable(std::vector<DeviceProperties> plain)
    : plain_(plain.size()),
      table_(std::make_unique<DeviceProperties[]>(plain.size() + kMostFused)),
      count_(plain.size()) {
  std::move(plain.begin(), plain.end(), table_.get());
}

std::span<const DeviceProperties> DeviceTable::devices() const {
  return {table_.get(), count_.load(std::memory_order_acquire)};
}

Result<void> DeviceTable::check(std::span<const int> members) const {
  if (members.empty() || members.size() > kMaxFused) {
    return fail(ErrorCode::kInvalidUsage,
                fmt::format("{} devices to be fused; 1 to {} are allowed", members.size(), kMaxFused));
  }
  for (std::size_t i = 0; i < members.size(); ++i) {
    const int member = members[i];
    if (member < 0 || static_cast<std::size_t>(member) >= plain_) {
      return fail(ErrorCode::kInvalidUsage,
                  fmt::format("device {} cannot be fused: 0 to {} can, and what is fused already cannot be again",
                              member, static_cast<int>(plain_) - 1));
    }
    if (std::find(members.begin(), members.begin() + static_cast<std::ptrdiff_t>(i), member) !=
        members.begin() + static_cast<std::ptrdiff_t>(i)) {
      return fail(ErrorCode::kInvalidUsage, fmt::format("device {} is to be fused with itself", member));
    }
  }
  return {};
}

Result<std::optional<int>> DeviceTable::find(std::span<const int> members) const {
  if (const auto sound = check(members); !sound) return tl::unexpected(sound.error());
  if (members.size() == 1) return members[0];
  const auto known = devices();
  for (std::size_t i = plain_; i < known.size(); ++i) {
    if (std::equal(members.begin(), members.end(), known[i].fused.begin(), known[i].fused.end())) {
      return static_cast<int>(i);
    }
  }
  if (known.size() == plain_ + kMostFused) {
    return fail(ErrorCode::kInvalidUsage, fmt::format("{} fused devices exist already, which is the most", kMostFused));
  }
  return std::nullopt;
}

Result<int> DeviceTable::fuse(std::span<const int> members) {
  const auto known = find(members);
  if (!known) return tl::unexpected(known.error());
  if (*known) return **known;
  const auto all = devices();
  table_[all.size()] = fused_properties(all, members);
  count_.store(all.size() + 1, std::memory_order_release);
  return static_cast<int>(all.size());
}

}  // namespace clustar::transport
