// GPU memory that NCCL registered, and pinned host memory of the same size, in which the engine works in its place.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "gdr/device_copy.h"
#include "gdr/memory.h"
#include "transport/base/result.h"

namespace clustar::nccl_plugin {

// Each has its own copies: memory is pinned and freed, which may wait for the GPU, while others' copies go on.
// Thread rule: one thread at a time.
class HostTwin {
 public:
  // May wait for the GPU: for registrations only. Errors: there are no copies for this memory, or no host memory.
  static Result<std::unique_ptr<HostTwin>> make(const gdr::MakeCopy& make_copy, const gdr::MemoryRef& memory);
  // May wait for the GPU, and for copies under way, a second at most.
  ~HostTwin() = default;

  std::span<std::byte> host() const { return host_->bytes(); }
  // The place of what is there in GPU memory.
  std::byte* at(const std::byte* device) const { return host().data() + (device - device_); }
  gdr::DeviceCopy& copies() { return *copies_; }

 private:
  HostTwin(const std::byte* device, std::unique_ptr<gdr::DeviceCopy> copies, std::unique_ptr<gdr::HostBuffer> host)
      : device_(device), copies_(std::move(copies)), host_(std::move(host)) {}

  const std::byte* const device_;
  const std::unique_ptr<gdr::DeviceCopy> copies_;
  const std::unique_ptr<gdr::HostBuffer> host_;  // goes first
};

// One copy between GPU memory and its twin, of more than no bytes.
class TwinCopy {
 public:
  enum class Direction : std::uint8_t { kToHost, kToDevice };
  // The twin outlives its use, not this.
  TwinCopy(HostTwin& twin, Direction direction, std::byte* device, std::byte* host, std::size_t bytes)
      : twin_(twin), direction_(direction), device_(device), host_(host), bytes_(bytes) {}

  // Begins it, when there is room, and asks. True: it has ended.
  Result<bool> advance();
  // It has been under way for long enough to tell the user. Once.
  bool stands_still();

 private:
  static constexpr auto kLong = std::chrono::seconds(10);

  HostTwin& twin_;
  const Direction direction_;
  std::byte* const device_;
  std::byte* const host_;
  const std::size_t bytes_;
  std::optional<gdr::DeviceCopy::Ticket> ticket_{};
  std::optional<std::chrono::steady_clock::time_point> since_{};
  bool ended_ = false, told_ = false;
};

}  // namespace clustar::nccl_plugin
