// The devices of a transport that can fuse some of them into one, as NCCL asks for the ports of one NIC.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "transport/api/transport.h"

namespace clustar::transport {

// Grows only, by one thread at a time, while any thread may read it: NCCL fuses while other communicators connect.
class DeviceTable {
 public:
  static constexpr std::size_t kMostFused = 64;

  explicit DeviceTable(std::vector<DeviceProperties> plain);

  // The plain ones, then the fused; the span and its strings stay as long as the table.
  std::span<const DeviceProperties> devices() const;
  std::size_t plain_count() const { return plain_; }

  // Index of the device that sends over all of `members`; the same members in the same order give the same one. One
  // member is that device itself. Error kInvalidUsage: none or too many, one twice, one that is none or is fused
  // itself.
  Result<int> fuse(std::span<const int> members);
  // The device that fuse() would give without making one; nothing if it would make it. Errors: as fuse().
  Result<std::optional<int>> find(std::span<const int> members) const;

 private:
  Result<void> check(std::span<const int> members) const;

  const std::size_t plain_;
  std::unique_ptr<DeviceProperties[]> table_;
  std::atomic<std::size_t> count_;
};

// What the fusion of `members`, indices in `devices`, is to NCCL: the name is theirs joined by '+', speeds add up,
// limits and abilities are those that all have; place, port and GUID are the first one's.
DeviceProperties fused_properties(std::span<const DeviceProperties> devices, std::span<const int> members);

}  // namespace clustar::transport
