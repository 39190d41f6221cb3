#include "transport/io/verbs/completion_queue.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>

namespace clustar::transport::io::verbs {

Result<CompletionQueue> CompletionQueue::make(const Device& device, int entries, bool with_channel) {
  CompletionQueue made;
  made.device_ = device.name();
  if (with_channel) {
    made.channel_.reset(ibv_create_comp_channel(device.context()));
    if (!made.channel_) return tl::unexpected(call_failed(Call::kCreateChannel, errno, device.place()));
    const int fd = made.channel_->fd;
    if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) != 0) {
      return tl::unexpected(call_failed(Call::kCreateChannel, errno, device.place()));
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
  pollfd waited{.fd = fd(), .events = POLLIN, .revents = 0};
  const auto nanoseconds = std::max<std::int64_t>(timeout.count(), 0);
  const timespec limit{nanoseconds / 1'000'000'000, nanoseconds % 1'000'000'000};
  const int ready = ::ppoll(&waited, 1, &limit, nullptr);
  if (ready < 0 && errno != EINTR) return tl::unexpected(call_failed(Call::kArmCq, errno, {.device = device_}));
  if (ready <= 0) return false;
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  bool any = false;
  while (ibv_get_cq_event(channel_.get(), &queue, &context) == 0) {
    any = true;
    ++unacknowledged_;
  }
  // Acknowledging takes a lock: in bulk.
  constexpr unsigned kBulk = 64;
  if (unacknowledged_ >= kBulk) ibv_ack_cq_events(queue_.get(), std::exchange(unacknowledged_, 0));
  return any;
}

}  // namespace clustar::transport::io::verbs
