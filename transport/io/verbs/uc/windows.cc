#include "transport/io/verbs/uc/windows.h"

#include <fmt/format.h>

#include <cerrno>
#include <chrono>
#include <utility>

namespace clustar::transport::io::verbs::uc {
namespace {

constexpr std::uint32_t kRequests = 256;

}  // namespace

Result<std::unique_ptr<Windows>> Windows::make(const Device& device, const ProtectionDomain& domain,
                                               const GidEntry& gid, std::uint8_t port, std::uint32_t most) {
  if ((device.limits().device_cap_flags & IBV_DEVICE_MEM_WINDOW) == 0) {
    return fail(
        ErrorCode::kUnavailable,
        fmt::format("verbs: {} has no memory windows (of type 1), so nothing is placed by writes", device.name()));
  }
  const auto attributes = device.port(port);
  if (!attributes) return tl::unexpected(attributes.error());
  auto queue = CompletionQueue::make(device, static_cast<int>(kRequests));
  if (!queue) return tl::unexpected(queue.error());
  auto pair = QueuePair::make(domain, {.type = IBV_QPT_RC,
                                       .send_queue = &*queue,
                                       .recv_queue = &*queue,
                                       .send_requests = kRequests,
                                       .recv_requests = 1});
  if (!pair) return tl::unexpected(pair.error());
  auto done = pair->to_init({.port = port});
  if (done) {
    done = pair->to_rtr(
        {.path = {.peer = gid.gid, .port = port, .gid_index = static_cast<int>(gid.index), .lid = attributes->lid},
         .peer_queue_pair = pair->number(),
         .mtu = attributes->active_mtu});
  }
  if (done) done = pair->to_rts({});
  if (!done) return tl::unexpected(done.error());
  return std::unique_ptr<Windows>(new Windows(device, domain, std::move(*queue), std::move(*pair), most));
}

Windows::Windows(const Device& device, const ProtectionDomain& domain, CompletionQueue queue, QueuePair pair,
                 std::uint32_t most)
    : device_(device.name()), domain_(domain), queue_(std::move(queue)), windows_(most), pair_(std::move(pair)) {
  free_.reserve(most);
  for (std::uint32_t i = most; i-- > 0;) free_.push_back(i);
}

void Windows::give_up(const std::string& why) {
  if (problem_.empty()) problem_ = why;
}

bool Windows::fresh(Window& window) {
  if (window.handle && window.keys_used < kMostKeys) return true;
  window.handle.reset();
  window.handle.reset(ibv_alloc_mw(domain_.get(), IBV_MW_TYPE_1));
  window.keys_used = 0;
  if (window.handle) return true;
  const int error = errno;
  give_up(call_failed(Call::kAllocMw, error, {.device = device_}, "type 1").message);
  return false;
}

bool Windows::post(std::uint32_t window, const MemoryRegion& region, std::size_t offset, std::size_t length) {
  ibv_mw_bind request{};
  request.wr_id = window;
  request.send_flags = IBV_SEND_SIGNALED;
  request.bind_info.mr = region.get();
  if (length > 0) {
    request.bind_info.addr = region.address(offset);
    request.bind_info.length = length;
    request.bind_info.mw_access_flags = IBV_ACCESS_REMOTE_WRITE;
  }
  // The queue holds what can be outstanding: each window's bind and unbind would be too many.
  int error = ibv_bind_mw(pair_.get(), windows_[window].handle.get(), &request);
  if (error == ENOMEM) {
    const auto deadline = std::chrono::steady_clock::now() + kLongestUnbind;
    while (error == ENOMEM && problem_.empty() && std::chrono::steady_clock::now() < deadline) {
      drain();
      error = ibv_bind_mw(pair_.get(), windows_[window].handle.get(), &request);
    }
  }
  if (error != 0) {
    give_up(call_failed(Call::kPostSend, error, {.device = device_}, "binding a memory window").message);
    return false;
  }
  ++windows_[window].keys_used;
  ++bind_count_;
  return true;
}

std::optional<std::uint32_t> Windows::bind(const MemoryRegion& region, std::size_t offset, std::size_t length,
                                           std::uint64_t tag) {
  if (free_.empty() || !problem_.empty()) return std::nullopt;
  const std::uint32_t index = free_.back();
  Window& window = windows_[index];
  if (!fresh(window) || !post(index, region, offset, length)) return std::nullopt;
  free_.pop_back();
  window.tag = tag;
  ++pending_;
  window.open = true;
  window.unbinding = false;
  return index;
}

// Requests complete in order, so the first completion of a window after its bind is the bind's.
void Windows::drain() {
  ibv_wc completions[16];
  for (;;) {
    const auto taken = queue_.poll(completions);
    if (!taken) give_up(taken.error().message);
    if (!taken || *taken == 0) return;
    for (const ibv_wc& completion : std::span(completions).first(*taken)) {
      if (completion.status != IBV_WC_SUCCESS) {
        give_up(pair_.explain(completion).message);
        continue;
      }
      Window& window = windows_[completion.wr_id];
      if (window.open) {
        window.open = false;
        --pending_;
        if (!window.unbinding) bound_.push_back({window.tag, window.handle->rkey});
      } else {
        window.unbinding = false;
      }
    }
  }
}

std::optional<Windows::Bound> Windows::poll() {
  drain();
  if (bound_.empty()) return std::nullopt;
  return bound_.pop_front();
}

bool Windows::free_window(Window& window) {
  ibv_mw* raw = window.handle.release();
  return raw == nullptr || ibv_dealloc_mw(raw) == 0;
}

bool Windows::unbind(std::uint32_t index, const MemoryRegion& region) {
  Window& window = windows_[index];
  window.unbinding = true;
  bool certain = problem_.empty() && post(index, region, 0, 0);
  const auto deadline = std::chrono::steady_clock::now() + kLongestUnbind;
  while (certain && window.unbinding) {
    drain();
    certain = problem_.empty();
    if (std::chrono::steady_clock::now() > deadline) {
      give_up("verbs: " + device_ + ": a memory window was not unbound within 2 s");
    }
  }
  if (!certain) certain = free_window(window);
  window.open = window.unbinding = false;
  free_.push_back(index);
  return certain;
}

}  // namespace clustar::transport::io::verbs::uc
