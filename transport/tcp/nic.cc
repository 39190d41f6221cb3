#include "transport/tcp/nic.h"

#include <memory>
#include <utility>

#include "transport/tcp/send_channel.h"

namespace clustar::transport::tcp {

Nic::Nic(net::Interface interface, const Context& context)
    : interface_(std::move(interface)), context_(context), queue_(std::make_unique<FifoOrder>()) {}

SendQueue::LaneId Nic::attach(TcpSendChannel* channel) {
  const std::lock_guard lock(mutex_);
  const SendQueue::LaneId lane = queue_.add_lane();
  if (lane >= lanes_.size()) lanes_.resize(lane + 1);
  lanes_[lane] = channel;
  return lane;
}

void Nic::detach(SendQueue::LaneId lane) {
  const std::lock_guard lock(mutex_);
  queue_.remove_lane(lane);
  lanes_[lane] = nullptr;
}

void Nic::push(SendQueue::LaneId lane, std::uint64_t cookie, const FlowTag& flow, std::uint64_t bytes) {
  queue_.push(lane, cookie, flow, bytes);
}

void Nic::pump() {
  deferred_.store(false, std::memory_order_relaxed);
  deferred_bytes_ = deferred_messages_ = 0;
  std::uint64_t moved = 0;
  while (moved < kPumpBytes) {
    const auto first = queue_.next(context_.settings.chunk_bytes);
    if (!first) break;
    TcpSendChannel* channel = lanes_[first->lane];
    const auto chunk = queue_.next(channel->chunk_limit(first->cookie));
    if (channel->start_chunk(*chunk)) {
      queue_.commit(*chunk);
      moved += chunk->length;
      if (touched_.empty() || touched_.back() != channel) touched_.push_back(channel);
    } else {
      queue_.block(chunk->lane);
    }
  }
  for (TcpSendChannel* channel : touched_) channel->flush_gathered();
  touched_.clear();
}

void Nic::pump_deferred() {
  if (!deferred_.load(std::memory_order_relaxed)) return;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock) pump();
}

}  // namespace clustar::transport::tcp
