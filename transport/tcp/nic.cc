#include "transport/tcp/nic.h"

#include <memory>
#include <utility>

#include "transport/api/context.h"
#include "transport/tcp/send_channel.h"

namespace clustar::transport::tcp {

Nic::Nic(net::Interface interface, const Context& context, std::unique_ptr<SendPolicy> policy)
    : interface_(std::move(interface)),
      context_(context),
      queue_(std::move(policy)),
      ahead_(send_ahead_bytes(context.settings.send_ahead, interface_.bytes_per_second(), queue_.orders())) {}

SendQueue::LaneId Nic::attach(TcpSendChannel* channel, const SendQueue::LaneFacts& facts) {
  const std::lock_guard lock(mutex_);
  const SendQueue::LaneId lane = queue_.add_lane(facts);
  if (lane >= lanes_.size()) lanes_.resize(lane + 1);
  lanes_[lane] = channel;
  return lane;
}

void Nic::detach(SendQueue::LaneId lane) {
  const std::lock_guard lock(mutex_);
  queue_.remove_lane(lane, context_.clock.now());
  lanes_[lane] = nullptr;
  ahead_.forget(lane);
}

// What was handed on before has left meanwhile, or not.
bool Nic::has_room(TimePoint now) {
  if (!ahead_.bounded()) return true;
  for (std::size_t i = ahead_.lanes().size(); i-- > 0;) {
    const SendQueue::LaneId lane = ahead_.lanes()[i];
    ahead_.set(lane, lanes_[lane]->unsent_bytes(), now);
  }
  return ahead_.room(now);
}

void Nic::push(SendQueue::LaneId lane, std::uint64_t cookie, const FlowTag& flow, std::uint64_t bytes) {
  queue_.push(lane, cookie, flow, bytes, context_.clock.now());
}

void Nic::pump() {
  deferred_.store(false, std::memory_order_relaxed);
  deferred_bytes_ = deferred_messages_ = 0;
  std::uint64_t moved = 0;
  const TimePoint now = context_.clock.now();
  bool room = has_room(now);
  while (room && moved < kPumpBytes) {
    auto chunk = queue_.next(context_.settings.chunk_bytes, now);
    if (!chunk) break;
    TcpSendChannel* channel = lanes_[chunk->lane];
    chunk->shorten(channel->chunk_limit(chunk->cookie));
    if (channel->start_chunk(*chunk)) {
      queue_.commit(*chunk, now);
      if (ahead_.bounded()) {
        ahead_.add(chunk->lane, chunk->length, now);
        room = ahead_.room(now);
      }
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
