#include "bench/proxy/ring_program.h"

#include <algorithm>

namespace clustar::bench::proxy {
namespace {

// A channel is worth its fixed cost from here on.
constexpr std::size_t kMinChannelBytes = 32 * 1024;
constexpr std::size_t kAlignBytes = 16;

std::size_t aligned_share(std::size_t count, std::size_t parts, std::size_t element) {
  return round_up(div_up(count, parts), std::max<std::size_t>(1, kAlignBytes / element));
}

}  // namespace

StepShape step_shape(Collective collective, Protocol protocol) {
  if (protocol != Protocol::kSimple || collective == Collective::kBroadcast) return {1, 1};
  return {4, 2};
}

ChannelPart channel_part(int channel, int channels, std::size_t count, std::size_t total_bytes, std::size_t element) {
  const auto wanted = std::clamp<std::size_t>(total_bytes / kMinChannelBytes, 1, static_cast<std::size_t>(channels));
  const std::size_t share = aligned_share(count, wanted, element);
  const std::size_t begin = std::min(count, share * static_cast<std::size_t>(channel));
  return {begin, std::min(share, count - begin)};
}

RingProgram::RingProgram(Collective collective, Protocol protocol, const RingPosition& position,
                         const ChannelPart& part, std::size_t block, std::size_t element, std::size_t limit)
    : collective_(collective), position_(position), part_(part), block_(block), element_(element), limit_(limit) {
  const StepShape shape = step_shape(collective, protocol);
  const std::size_t payload = wire_shape(protocol).step_payload;
  const auto n = static_cast<std::size_t>(position.size);
  slices_ = static_cast<std::size_t>(shape.slices());
  chunk_ = payload * static_cast<std::size_t>(shape.chunk_steps) / element;
  min_slice_ = payload * static_cast<std::size_t>(shape.slice_steps) / element / 32;
  if (part.count == 0) return;
  switch (collective) {
    case Collective::kAllReduce:
      stages_ = 2 * n - 1;
      send_stages_ = receive_stages_ = 2 * (n - 1);
      break;
    case Collective::kReduceScatter:
    case Collective::kAllGather:
      stages_ = n;
      send_stages_ = receive_stages_ = n - 1;
      break;
    case Collective::kBroadcast:
      stages_ = 1;
      receive_stages_ = position.rank != position.root ? 1 : 0;
      send_stages_ = (position.rank + 1) % position.size != position.root ? 1 : 0;
      break;
  }
  const std::size_t per_loop = collective == Collective::kAllReduce ? chunk_ * n : chunk_;
  loops_ = div_up(part.count, per_loop);
}

int RingProgram::ring(int steps_back) const {
  return (position_.rank + position_.size - steps_back % position_.size) % position_.size;
}

RingProgram::Chunk RingProgram::chunk_of(std::size_t loop, int owner) const {
  if (collective_ != Collective::kAllReduce) {
    const std::size_t offset = loop * chunk_;
    return {offset, std::min(chunk_, part_.count - offset)};
  }
  const auto n = static_cast<std::size_t>(position_.size);
  const std::size_t base = loop * chunk_ * n;
  const std::size_t left = part_.count - base;
  const std::size_t chunk = left >= chunk_ * n ? chunk_ : aligned_share(left, n, element_);
  const std::size_t begin = std::min(left, chunk * static_cast<std::size_t>(owner));
  return {base + begin, std::min(chunk, left - begin)};
}

void RingProgram::fill_all_reduce(SliceAction& action, std::size_t stage, int& owner) const {
  const auto n = static_cast<std::size_t>(position_.size);
  action.receive = stage > 0;
  action.reduce = stage > 0 && stage < n;
  action.copy = stage >= n - 1;
  action.send = stage < 2 * n - 2;
  // The contribution of rank c + 1 starts chunk c on its way, so chunk c is complete at rank c.
  owner = ring(static_cast<int>(stage < n ? stage + 1 : stage - n + 1));
}

void RingProgram::fill_rooted(SliceAction& action) const {
  action.receive = receive_stages_ != 0;
  action.copy = action.receive;
  action.send = send_stages_ != 0;
}

SliceAction RingProgram::at(std::size_t index) const {
  const std::size_t slice = index % slices_;
  const std::size_t stage = index / slices_ % stages_;
  const std::size_t loop = index / slices_ / stages_;
  const auto n = static_cast<std::size_t>(position_.size);
  SliceAction action;
  int owner = 0;
  switch (collective_) {
    case Collective::kAllReduce: fill_all_reduce(action, stage, owner); break;
    case Collective::kReduceScatter:
      action.receive = action.reduce = stage > 0;
      action.copy = stage == n - 1;
      action.send = !action.copy;
      owner = ring(static_cast<int>(stage + 1));
      break;
    case Collective::kAllGather:
      action.receive = stage > 0;
      action.copy = true;
      action.send = stage < n - 1;
      owner = ring(static_cast<int>(stage));
      break;
    case Collective::kBroadcast: fill_rooted(action); break;
  }
  const Chunk chunk = chunk_of(loop, owner);
  const std::size_t slice_count = std::max(div_up(chunk.count, 16 * slices_) * 16, min_slice_);
  const std::size_t begin = std::min(chunk.count, slices_ == 1 ? 0 : slice * slice_count);
  action.count = slices_ == 1 ? chunk.count : std::min(slice_count, chunk.count - begin);
  const std::size_t offset = part_.begin + chunk.offset + begin;
  action.in = action.out = offset;
  if (collective_ == Collective::kReduceScatter) action.in += static_cast<std::size_t>(owner) * block_;
  if (collective_ == Collective::kAllGather) {
    action.out += static_cast<std::size_t>(owner) * block_;
    action.count = std::min(action.count, limit_ - std::min(limit_, action.out));
  }
  return action;
}

SliceAction RingProgram::receive(std::size_t index) const {
  const std::size_t per_loop = receive_stages_ * slices_;
  const std::size_t first = (stages_ - receive_stages_) * slices_;  // only the first stage may lack a receive
  return at(index / per_loop * stages_ * slices_ + first + index % per_loop);
}

}  // namespace clustar::bench::proxy
