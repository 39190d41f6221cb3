#include "gdr/emulated_copy.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <utility>

namespace clustar::gdr {

class EmulatedCopy::Buffer final : public HostBuffer {
 public:
  Buffer(EmulatedCopy& owner, std::size_t bytes)
      : owner_(owner), memory_(std::make_unique_for_overwrite<std::byte[]>(bytes)), bytes_(memory_.get(), bytes) {
    owner_.buffers_.push_back({bytes_, memory_});
    owner_.host_bytes_ += bytes;
  }
  ~Buffer() override {
    std::erase_if(owner_.buffers_, [&](const Memory& one) { return one.owner == memory_; });
    owner_.host_bytes_ -= bytes_.size();
  }
  std::span<std::byte> bytes() const override { return bytes_; }

 private:
  EmulatedCopy& owner_;
  std::shared_ptr<std::byte[]> memory_;
  std::span<std::byte> bytes_;
};

Result<std::unique_ptr<HostBuffer>> EmulatedCopy::host_buffer(std::size_t bytes) {
  if (bytes > options_.most_host_bytes - host_bytes_) {
    return fail(ErrorCode::kSystem, "emulated: a host buffer of " + std::to_string(bytes) + " bytes; " +
                                        std::to_string(options_.most_host_bytes - host_bytes_) + " are left");
  }
  return std::make_unique<Buffer>(*this, bytes);
}

Result<std::shared_ptr<std::byte[]>> EmulatedCopy::owner_of(const std::byte* host, std::size_t bytes) const {
  const auto holds = [&](const Memory& one) {
    const std::less_equal<const std::byte*> at_most;
    return at_most(one.bytes.data(), host) && at_most(host + bytes, one.bytes.data() + one.bytes.size());
  };
  const auto found = std::find_if(buffers_.begin(), buffers_.end(), holds);
  if (found != buffers_.end()) return found->owner;
  return fail(ErrorCode::kInvalidArgument, "emulated: the host side of a copy is in no host buffer of this object");
}

Result<std::optional<DeviceCopy::Ticket>> EmulatedCopy::begin(std::byte* to, const std::byte* from, std::size_t bytes,
                                                              std::shared_ptr<std::byte[]> host) {
  if (bytes == 0) return fail(ErrorCode::kInvalidArgument, "emulated: a copy of no bytes; 1 or more are allowed");
  if (copies_.size() >= options_.most_outstanding) return std::nullopt;
  const auto polls = static_cast<std::uint32_t>(1 + random_.below(options_.most_polls));
  copies_.push_back({next_, polls, to, from, bytes, std::move(host)});
  return next_++;
}

Result<std::optional<DeviceCopy::Ticket>> EmulatedCopy::to_device(std::byte* device, const std::byte* host,
                                                                  std::size_t bytes) {
  auto owner = owner_of(host, bytes);
  if (!owner) return tl::unexpected(owner.error());
  return begin(device, host, bytes, std::move(*owner));
}

Result<std::optional<DeviceCopy::Ticket>> EmulatedCopy::to_host(std::byte* host, const std::byte* device,
                                                                std::size_t bytes) {
  auto owner = owner_of(host, bytes);
  if (!owner) return tl::unexpected(owner.error());
  return begin(host, device, bytes, std::move(*owner));
}

Result<bool> EmulatedCopy::done(Ticket ticket) {
  const auto copy = std::find_if(copies_.begin(), copies_.end(), [&](const Copy& one) { return one.ticket == ticket; });
  if (copy == copies_.end()) {
    if (ticket > 0 && ticket < next_) return true;
    return fail(ErrorCode::kInvalidArgument, "emulated: no copy has had ticket " + std::to_string(ticket));
  }
  if (--copy->polls > 0) return false;
  std::memcpy(copy->to, copy->from, copy->bytes);
  copies_.erase(copy);
  return true;
}

}  // namespace clustar::gdr
