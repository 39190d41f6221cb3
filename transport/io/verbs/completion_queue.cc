#include "transport/io/verbs/completion_queue.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

namespace clustar::transport::io::verbs {

int wait_readable(int fd, Duration timeout) {
  const auto deadline = std::chrono::steady_clock::now() + std::max(timeout, Duration::zero());
  for (;;) {
    const Duration left = std::max<Duration>(deadline - std::chrono::steady_clock::now(), Duration::zero());
    const timespec limit{left.count() / 1'000'000'000, left.count() % 1'000'000'000};
    pollfd waited{.fd = fd, .events = POLLIN, .revents = 0};
    const int ready = ::ppoll(&waited, 1, &limit, nullptr);
    if (ready == 0) return ETIMEDOUT;
    if (ready < 0 && errno == EINTR) continue;
    if (ready < 0) return errno;
    if ((waited.revents & POLLIN) != 0) return 0;
    return (waited.revents & POLLNVAL) != 0 ? EBADF : EIO;
  }
}

Result<CompletionQueue> CompletionQueue::make(const Device& device, int entries, bool with_channel) {
  CompletionQueue made;
  made.device_ = device.name();
  if (with_channel) {
    made.channel_.reset(ibv_create_comp_channel(device.context()));
    if (!made.channel_) {
      const int error = errno;
      return tl::unexpected(call_failed(Call::kCreateChannel, error, device.place()));
    }
    const int fd = made.channel_->fd;
    if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) != 0) {
      const int error = errno;
      return tl::unexpected(call_failed(Call::kCreateChannel, error, device.place()));
    }
  }
  made.queue_.reset(ibv_create_cq(device.context(), entries, nullptr, made.channel_.get(), 0));
  if (!made.queue_) {
    const int error = errno;
    return tl::unexpected(call_failed(Call::kCreateCq, error, device.place(),
                                      fmt::format("{} entries (max_cqe {})", entries, device.limits().max_cqe)));
  }
  return made;
}

CompletionQueue::~CompletionQueue() {
  // Destroying waits for all events to be acknowledged.
  if (queue_ && unacknowledged_ > 0) ibv_ack_cq_events(queue_.get(), unacknowledged_);
}

Result<std::size_t> CompletionQueue::poll(std::span<ibv_wc> out) const {
  const int taken = ibv_poll_cq(queue_.get(), static_cast<int>(out.size()), out.data());
  if (taken < 0) return tl::unexpected(call_failed(Call::kPollCq, EIO, {.device = device_}));
  return static_cast<std::size_t>(taken);
}

Result<void> CompletionQueue::arm() const {
  const int error = ibv_req_notify_cq(queue_.get(), 0);
  if (error != 0) return tl::unexpected(call_failed(Call::kArmCq, error, {.device = device_}));
  return {};
}

Result<bool> CompletionQueue::wait(Duration timeout) {
  if (!channel_) return fail(ErrorCode::kInvalidArgument, "verbs: wait() on a completion queue without a channel");
  if (const int error = wait_readable(fd(), timeout); error == ETIMEDOUT) {
    return false;
  } else if (error != 0) {
    return tl::unexpected(call_failed(Call::kCqEvent, error, {.device = device_}));
  }
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  bool any = false;
  errno = 0;
  while (ibv_get_cq_event(channel_.get(), &queue, &context) == 0) {
    any = true;
    ++unacknowledged_;
  }
  const int error = errno;
  // Acknowledging takes a lock: in bulk.
  constexpr unsigned kBulk = 64;
  if (unacknowledged_ >= kBulk) ibv_ack_cq_events(queue_.get(), std::exchange(unacknowledged_, 0));
  // What came before an error is reported first; the error is still there at the next call.
  if (any || error == EAGAIN || error == EINTR) return any;
  // The library sets no errno for a read that ends: the device was removed.
  return tl::unexpected(call_failed(Call::kCqEvent, error == 0 ? EIO : error, {.device = device_}));
}

}  // namespace clustar::transport::io::verbs
