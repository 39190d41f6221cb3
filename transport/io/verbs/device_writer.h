// MemoryWriter over verbs: RDMA WRITEs and READs on a queue pair that is connected to itself, so that the NIC fills
// memory that the processor must not touch.
//
// Bytes to be written are copied into a ring of host memory first, and zeroes come from a page of them that is never
// written, so neither packets nor kernels are waited for. Thread rule: any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "transport/base/system_clock.h"
#include "transport/io/packet_io.h"
#include "transport/io/verbs/loop.h"
#include "transport/io/verbs/memory.h"

namespace clustar::transport::io::verbs {

class Registered;

class DeviceWriter final : public MemoryWriter {
 public:
  static constexpr std::size_t kMostBytes = 16 * 1024;            // longer than any packet
  static constexpr std::uint32_t kDepth = 128;                    // operations at a time: 2 MiB of host memory
  static constexpr Duration kPatience = std::chrono::seconds(1);  // quiesce() stops a NIC that takes longer
  // What targets are registered for.
  static constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

  // The device and the domain outlive this. `path`: from the port to itself. Error: the device refuses.
  static Result<std::unique_ptr<DeviceWriter>> make(const Device& device, const ProtectionDomain& domain,
                                                    const Path& path, ibv_mtu mtu);

  // Targets are Registered of the domain, for kAccess.
  std::size_t most_bytes() const override { return kMostBytes; }
  Result<bool> write(const MemorySlice& target, std::span<const std::byte> bytes) override;
  Result<bool> zero(const MemorySlice& target) override;
  Result<bool> flush(const MemorySlice& target) override;
  Result<std::uint64_t> finished() override;
  void quiesce() override;

  struct Counters {
    std::uint64_t written = 0;  // bytes
    std::uint64_t zeroed = 0;
    std::uint64_t flushes = 0;
    std::uint64_t no_room = 0;  // operations that were refused for it
  };
  Counters counters();
  std::uint32_t queue_pair() const { return loop_.queue_pair(); }

 private:
  // Zeroes, where a flush's byte lands, then a slot per operation.
  static constexpr std::size_t kZeroes = 0;
  static constexpr std::size_t kLanded = kMostBytes;
  static constexpr std::size_t kSlots = 2 * kMostBytes;

  DeviceWriter(std::vector<std::byte> memory, MemoryRegion region, Loop loop)
      : memory_(std::move(memory)), region_(std::move(region)), loop_(std::move(loop)) {}
  // Null, and lost_ set: the target is not of this domain, or not within its memory.
  const Registered* registered(const MemorySlice& target);
  Result<bool> began(const Result<bool>& posted);
  Result<void> poll();

  const SystemClock clock_;
  std::mutex mutex_;
  std::vector<std::byte> memory_;
  MemoryRegion region_;  // of it
  Loop loop_;
  std::uint64_t begun_ = 0;  // operations
  std::uint64_t finished_ = 0;
  Counters counters_;
  std::optional<Error> lost_;
};

}  // namespace clustar::transport::io::verbs
