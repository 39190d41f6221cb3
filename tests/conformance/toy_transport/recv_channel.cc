#include "tests/conformance/toy_transport/recv_channel.h"

#include <algorithm>
#include <mutex>
#include <utility>

namespace clustar::transport::toy {

ToyRecvChannel::ToyRecvChannel(std::shared_ptr<Pipe> pipe, TrafficBook& traffic, int traffic_class)
    : RecvChannel({"here", pipe->dialled_by}),
      pipe_(std::move(pipe)),
      traffic_(traffic.open(traffic_class, peer().host, peer().rank)) {
  for (std::uint32_t i = 0; i < requests_.size(); ++i) {
    requests_[i].channel = this;
    requests_[i].group = i;
  }
}

ToyRecvChannel::~ToyRecvChannel() {
  const std::lock_guard lock(pipe_->mutex);
  pipe_->receiver_gone = true;
}

Result<std::unique_ptr<Mr>> ToyRecvChannel::reg_mr(const gdr::MemoryRef& memory) {
  if (memory.kind == gdr::MemoryKind::kHost) return std::make_unique<Mr>(memory);
  return fail(ErrorCode::kInvalidArgument, std::string("toy registers no ") + gdr::to_string(memory.kind));
}

Result<Request*> ToyRecvChannel::recv(std::span<const RecvPart> parts) {
  if (const auto checked = ReceiveGroups::check("toy", parts); !checked) return tl::unexpected(checked.error());
  if (failed_) return tl::unexpected(*failed_);
  const auto group = groups_.open(parts.size());
  if (!group) return nullptr;
  const std::lock_guard lock(pipe_->mutex);
  for (std::uint32_t i = 0; i < parts.size(); ++i) {
    const RecvPart& part = parts[i];
    const std::uint32_t slot = slots_.take(part.tag, slots_.next_seq(part.tag), part.length, *group, i);
    requests_[*group].targets[i] = part.mr == nullptr ? nullptr : part.mr->memory().address + part.offset;
    pipe_->clears.push_back({part.tag, slot, part.length});
  }
  return &requests_[*group];
}

Result<Progress> ToyRecvChannel::test(std::uint32_t group) {
  if (!groups_.complete(group)) take_chunks();
  if (groups_.complete(group)) {
    groups_.release(group);
    return Progress{true, groups_.sizes(group), {}, groups_.messages(group)};
  }
  if (failed_) return tl::unexpected(*failed_);
  return Progress{};
}

void ToyRecvChannel::take_chunks() {
  std::deque<Pipe::Chunk> chunks;
  {
    const std::lock_guard lock(pipe_->mutex);
    chunks.swap(pipe_->chunks);
    pipe_->bytes = 0;
    if (pipe_->sender_gone && !failed_) failed_ = Error{ErrorCode::kRemote, "toy: the sender closed"};
  }
  for (const Pipe::Chunk& chunk : chunks) place(chunk);
}

void ToyRecvChannel::place(const Pipe::Chunk& chunk) {
  auto& slot = slots_[chunk.slot];
  std::copy(chunk.bytes.begin(), chunk.bytes.end(), requests_[slot.group].targets[slot.part] + chunk.offset);
  if (chunk.identity.known) groups_.identify(slot.group, slot.part, chunk.identity);
  slot.bytes += chunk.bytes.size();
  if (slot.bytes < chunk.total) return;
  groups_.finish(slot.group, slot.part, chunk.total);
  traffic_->received(chunk.total);
  slots_.release(chunk.slot);
}

}  // namespace clustar::transport::toy
