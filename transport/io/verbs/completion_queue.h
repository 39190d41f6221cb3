// Completion queue, with a channel to sleep on if wanted.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <span>
#include <string>

#include "transport/base/result.h"
#include "transport/base/time.h"
#include "transport/io/verbs/device.h"
#include "transport/io/verbs/handle.h"

namespace clustar::transport::io::verbs {

class CompletionQueue {
 public:
  // Room for at least `entries`, the most that can be outstanding: one that overflows is lost for good.
  static Result<CompletionQueue> make(const Device& device, int entries, bool with_channel = false);
  ~CompletionQueue();
  CompletionQueue(CompletionQueue&&) = default;
  CompletionQueue& operator=(CompletionQueue&&) = delete;

  ibv_cq* get() const { return queue_.get(); }
  int entries() const { return queue_->cqe; }

  // Takes up to out.size() completions; their statuses are the caller's to look at.
  Result<std::size_t> poll(std::span<ibv_wc> out) const;

  // To sleep (with a channel): arm(), poll() until empty, wait(). What came between arm() and wait() ends the wait.
  Result<void> arm() const;
  // False when `timeout` passed without a completion; signals do not shorten it. Error: no channel, the device failed
  // or was removed.
  Result<bool> wait(Duration timeout);
  int fd() const { return channel_ ? channel_->fd : -1; }  // readable when an armed queue has a completion

 private:
  CompletionQueue() = default;

  std::string device_;
  Handle<ibv_comp_channel> channel_;
  Handle<ibv_cq> queue_;
  unsigned unacknowledged_ = 0;
};

// 0 when there is something to read, ETIMEDOUT when `timeout` passed, another errno when nothing will come any more.
int wait_readable(int fd, Duration timeout);

}  // namespace clustar::transport::io::verbs
