#include "transport/io/verbs/device_writer.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <utility>

#include "transport/io/verbs/registered.h"

namespace clustar::transport::io::verbs {

Result<std::unique_ptr<DeviceWriter>> DeviceWriter::make(const Device& device, const ProtectionDomain& domain,
                                                         const Path& path, ibv_mtu mtu) {
  std::vector<std::byte> memory(kSlots + kDepth * kMostBytes);
  auto region = MemoryRegion::make(domain, gdr::MemoryRef::host(memory.data(), memory.size()), IBV_ACCESS_LOCAL_WRITE);
  if (!region) return tl::unexpected(region.error());
  auto loop = Loop::make(device, domain, {.path = path, .mtu = mtu, .depth = kDepth});
  if (!loop) return tl::unexpected(loop.error());
  return std::unique_ptr<DeviceWriter>(new DeviceWriter(std::move(memory), std::move(*region), std::move(*loop)));
}

// A request with another domain's memory, or beyond it, would end the loop for everybody.
const Registered* DeviceWriter::registered(const MemorySlice& target) {
  const Registered* ours = registered_in(region_.get()->pd, target.mr);
  if (ours != nullptr && target.length > 0 && target.length <= kMostBytes &&
      target.length <= target.mr->memory().length && target.offset <= target.mr->memory().length - target.length) {
    return ours;
  }
  lost_ = Error{ErrorCode::kInvalidArgument,
                fmt::format("verbs: {} bytes at offset {} are outside of their memory, or that is not registered with "
                            "this device; 1 to {} bytes of its own memory are allowed",
                            target.length, target.offset, kMostBytes)};
  return nullptr;
}

Result<bool> DeviceWriter::began(const Result<bool>& posted) {
  if (!posted) {
    lost_ = posted.error();
  } else if (*posted) {
    ++begun_;
  } else {
    ++counters_.no_room;
  }
  return posted;
}

Result<bool> DeviceWriter::write(const MemorySlice& target, std::span<const std::byte> bytes) {
  const std::lock_guard lock(mutex_);
  if (const auto polled = poll(); !polled) return tl::unexpected(polled.error());
  if (loop_.room() == 0) return began(false);
  const Registered* memory = registered(target);
  if (memory == nullptr) return tl::unexpected(*lost_);
  // Operations end in order, so the slot of the one that ended kDepth ago, or earlier, is free.
  const std::size_t slot = kSlots + begun_ % kDepth * kMostBytes;
  std::memcpy(memory_.data() + slot, bytes.data(), target.length);
  counters_.written += target.length;
  return began(
      loop_.post_write(region_.slice(slot, target.length), memory->address(target.offset), memory->rkey(), begun_));
}

Result<bool> DeviceWriter::zero(const MemorySlice& target) {
  const std::lock_guard lock(mutex_);
  if (const auto polled = poll(); !polled) return tl::unexpected(polled.error());
  if (loop_.room() == 0) return began(false);
  const Registered* memory = registered(target);
  if (memory == nullptr) return tl::unexpected(*lost_);
  counters_.zeroed += target.length;
  return began(
      loop_.post_write(region_.slice(kZeroes, target.length), memory->address(target.offset), memory->rkey(), begun_));
}

Result<bool> DeviceWriter::flush(const MemorySlice& target) {
  const std::lock_guard lock(mutex_);
  if (const auto polled = poll(); !polled) return tl::unexpected(polled.error());
  if (loop_.room() == 0) return began(false);
  const Registered* memory = registered(target);
  if (memory == nullptr) return tl::unexpected(*lost_);
  ++counters_.flushes;
  return began(loop_.post_read(region_.slice(kLanded, 1), memory->address(target.offset), memory->rkey(), begun_));
}

Result<void> DeviceWriter::poll() {
  std::array<std::uint64_t, 16> done;
  std::size_t count = done.size();
  while (count == done.size() && !lost_) {
    const auto polled = loop_.poll(done);
    if (!polled) lost_ = polled.error();
    count = polled.value_or(0);
    finished_ += count;
  }
  if (lost_) return tl::unexpected(*lost_);
  return {};
}

Result<std::uint64_t> DeviceWriter::finished() {
  const std::lock_guard lock(mutex_);
  if (const auto polled = poll(); !polled) return tl::unexpected(polled.error());
  return finished_;
}

void DeviceWriter::quiesce() {
  const std::lock_guard lock(mutex_);
  const TimePoint end = clock_.now() + kPatience;
  while (!lost_ && finished_ < begun_) {
    if (!poll() || clock_.now() < end) continue;
    lost_ =
        Error{ErrorCode::kSystem, fmt::format("verbs: {} of {} writes into memory of a GPU did not end within {} s, "
                                              "so their queue pair was stopped; look for PFC storms and a NIC reset",
                                              begun_ - finished_, begun_, kPatience / std::chrono::seconds(1))};
  }
  // One that failed has stopped already, but this is certain.
  if (lost_ && finished_ < begun_) loop_.stop();
}

DeviceWriter::Counters DeviceWriter::counters() {
  const std::lock_guard lock(mutex_);
  return counters_;
}

}  // namespace clustar::transport::io::verbs
