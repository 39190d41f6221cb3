#include "tests/conformance/toy_transport/send_channel.h"

#include <algorithm>
#include <mutex>
#include <utility>

namespace clustar::transport::toy {

ToySendChannel::ToySendChannel(SendEngine& engine, std::shared_ptr<Pipe> pipe, const SendQueue::ConnectionFacts& facts,
                               TrafficBook::Entry traffic, int peer_rank)
    : SendChannel({"here", peer_rank}),
      engine_(engine),
      pipe_(std::move(pipe)),
      anchor_(std::make_shared<MemoryAnchor<ToySendChannel>>(engine.mutex(), this)),
      traffic_(std::move(traffic)),
      requests_(this, 256),
      connection_(engine.attach(*this, facts)) {}

ToySendChannel::~ToySendChannel() {
  engine_.detach(connection_);
  const std::lock_guard lock(engine_.mutex());
  anchor_->let_go();
  const std::lock_guard ours(pipe_->mutex);
  pipe_->sender_gone = true;
}

class ToySendChannel::SendMr final : public Mr {
 public:
  SendMr(const gdr::MemoryRef& memory, std::shared_ptr<MemoryAnchor<ToySendChannel>> anchor)
      : Mr(memory), anchor_(std::move(anchor)) {}
  ~SendMr() override { anchor_->deregister(*this); }

 private:
  std::shared_ptr<MemoryAnchor<ToySendChannel>> anchor_;
};

Result<std::unique_ptr<Mr>> ToySendChannel::reg_mr(const gdr::MemoryRef& memory) {
  if (memory.kind == gdr::MemoryKind::kHost) return std::make_unique<SendMr>(memory, anchor_);
  return fail(ErrorCode::kInvalidArgument, std::string("toy registers no ") + gdr::to_string(memory.kind));
}

void ToySendChannel::on_deregister(const Mr& mr) {
  if (!requests_.any_of([&](const SendRequest& request) { return request.mr == &mr; })) return;
  failed_ = Error{ErrorCode::kInvalidUsage, "toy: memory was deregistered while sends used it"};
}

Result<Request*> ToySendChannel::send(const Mr& mr, std::size_t offset, std::size_t length, int tag,
                                      const FlowTag& flow) {
  if (!requests_.has_room()) return nullptr;
  const std::unique_lock lock(engine_.mutex(), std::try_to_lock);
  if (!lock) return nullptr;
  if (failed_) return tl::unexpected(*failed_);
  SendRequest& request = requests_.take();
  request.done = false;
  request.mr = &mr;
  request.offset = offset;
  request.flow = flow;
  request.size = length;
  Tag& queue = tags_[tag];
  if (queue.known.empty()) {
    queue.waiting.push_back(request.index);
    traffic_->waited();
  } else {
    depart(request, queue.known.pop_front());
  }
  engine_.pump();
  return &request;
}

Result<Progress> ToySendChannel::test(SendRequest& request) {
  if (!request.done) {
    const std::unique_lock lock(engine_.mutex(), std::try_to_lock);
    if (!lock) return Progress{};
    take_clears();
    engine_.unblock(connection_);
    if (!failed_) engine_.pump();
    if (!request.done) return failed_ ? Result<Progress>(tl::unexpected(*failed_)) : Progress{};
  }
  requests_.give_back(request);
  return Progress{true, std::span<const std::size_t>(&request.size, 1), {}};
}

void ToySendChannel::take_clears() {
  std::deque<Pipe::Clear> clears;
  {
    const std::lock_guard lock(pipe_->mutex);
    clears.swap(pipe_->clears);
    if (pipe_->receiver_gone && !failed_) failed_ = Error{ErrorCode::kRemote, "toy: the receiver closed"};
  }
  for (const Pipe::Clear& clear : clears) {
    Tag& queue = tags_[clear.tag];
    if (queue.waiting.empty()) {
      queue.known.push_back(clear);
    } else {
      depart(requests_[queue.waiting.pop_front()], clear);
    }
  }
}

void ToySendChannel::depart(SendRequest& request, const Pipe::Clear& clear) {
  request.slot = clear.slot;
  request.size = std::min<std::size_t>(request.size, clear.length);
  request.unsent = request.size;
  engine_.push(connection_, request.index, request.flow, request.size);
}

bool ToySendChannel::start_chunk(const SendQueue::Chunk& chunk) {
  if (failed_) return false;
  SendRequest& request = requests_[chunk.cookie];
  const std::lock_guard lock(pipe_->mutex);
  if (pipe_->bytes > 0 && pipe_->bytes + chunk.length > Pipe::kRoom) return false;
  const std::byte* from = request.mr->memory().address + request.offset + chunk.offset;
  pipe_->chunks.push_back({request.slot, chunk.offset, request.size, request.flow.identity, {}});
  pipe_->chunks.back().bytes.assign(from, from + chunk.length);
  pipe_->bytes += chunk.length;
  request.unsent -= chunk.length;
  if (request.unsent > 0) return true;
  traffic_->sent(request.size);
  request.mr = nullptr;
  request.done = true;
  return true;
}

std::uint64_t ToySendChannel::ahead_bytes() {
  const std::lock_guard lock(pipe_->mutex);
  return pipe_->bytes;
}

}  // namespace clustar::transport::toy
