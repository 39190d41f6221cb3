#include "transport/staged/send_channel.h"

#include <mutex>
#include <utility>

namespace clustar::transport::staged {

StagedSendChannel::StagedSendChannel(Context& context, std::unique_ptr<SendChannel> inner)
    : SendChannel(inner->peer()),
      context_(context),
      stage_(context, Stage::Direction::kSend, kMaxRequests,
             [this](const gdr::MemoryRef& memory) { return inner_->reg_mr(memory); }),
      requests_(kMaxRequests),
      inner_(std::move(inner)) {
  for (SendRequest& request : requests_) request.channel = this;
}

StagedSendChannel::~StagedSendChannel() { stage_.stop(); }

Result<std::unique_ptr<Mr>> StagedSendChannel::reg_mr(const gdr::MemoryRef& memory) {
  return stage_.takes(memory.kind) ? stage_.reg_mr(memory) : inner_->reg_mr(memory);
}

Result<Request*> StagedSendChannel::send(const Mr& mr, std::size_t offset, std::size_t length, int tag,
                                         const FlowTag& flow) {
  if (!stage_.active()) return inner_->send(mr, offset, length, tag, flow);
  const std::unique_lock lock(stage_.mutex(), std::try_to_lock);
  if (!lock) return nullptr;
  progress(nullptr);
  if (stage_.error()) return tl::unexpected(*stage_.error());
  const bool device = Stage::is_device(mr);
  if (!device && !stage_.core().unhanded()) return inner_->send(mr, offset, length, tag, flow);
  const Stage::Part part{device ? &mr : nullptr, device ? mr.memory().address + offset : nullptr, device ? length : 0};
  if (const auto allowed = stage_.check(std::span(&part, 1)); !allowed) return tl::unexpected(allowed.error());
  // What the inner channel may refuse is not queued here, where that would end the channel: it is its own later.
  if (!device && length > context_.options.most_bytes) return nullptr;
  const auto id = stage_.open(std::span(&part, 1));
  if (!id) return nullptr;
  SendRequest& request = requests_[*id];
  request.id = *id;
  request.mr = &mr;
  request.offset = offset;
  request.length = length;
  request.tag = tag;
  request.flow = flow;
  request.missing.clear();
  request.tells_sent = false;
  if (device) {
    context_.counters.sent.fetch_add(1, std::memory_order_relaxed);
    context_.counters.sent_bytes.fetch_add(length, std::memory_order_relaxed);
  }
  progress(nullptr);
  return &request;
}

void StagedSendChannel::progress(SendRequest* request) {
  stage_.advance();
  hand_over();
  if (request != nullptr) look(*request);
  // A caller that waits for one request only must get on, too, when others have its slices, or its place in the inner
  // channel.
  if (stage_.core().waiting_for_slices() || inner_full_) {
    for (SendRequest& other : requests_) look(other);
  }
  stage_.advance();
  if (inner_full_) hand_over();
}

void StagedSendChannel::hand_over() {
  inner_full_ = false;
  while (const auto id = stage_.core().next_for_network()) {
    SendRequest& request = requests_[*id];
    const bool device = Stage::is_device(*request.mr);
    if (device && context_.options.importance != nullptr) {
      context_.options.importance->copied(request.mr->memory().address + request.offset,
                                          stage_.host_mr(*id, 0).memory().address + stage_.host_offset(*id, 0),
                                          request.length, context_.clock.now());
    }
    const auto sent =
        inner_->send(device ? stage_.host_mr(*id, 0) : *request.mr,
                     device ? stage_.host_offset(*id, 0) : request.offset, request.length, request.tag, request.flow);
    if (!sent) return stage_.inner_failed(std::nullopt, sent.error());
    inner_full_ = *sent == nullptr;
    if (inner_full_) return;
    request.inner = *sent;
    stage_.core().handed(*id);
  }
}

void StagedSendChannel::look(SendRequest& request) {
  if (request.inner == nullptr || stage_.core().failed()) return;
  const auto progress = request.inner->test();
  if (progress && !progress->done) return;
  request.inner = nullptr;
  if (!progress) return stage_.inner_failed(request.id, progress.error());
  request.size = progress->sizes.empty() ? request.length : progress->sizes[0];
  request.missing.assign(progress->missing.begin(), progress->missing.end());
  request.tells_sent = progress->sent != nullptr;
  stage_.core().network_done(request.id);
}

Result<Progress> StagedSendChannel::test(SendRequest& request) {
  const std::unique_lock lock(stage_.mutex(), std::try_to_lock);
  if (!lock) return Progress{};
  if (!stage_.core().complete(request.id)) progress(&request);
  if (stage_.core().complete(request.id)) {
    stage_.release(request.id);
    return Progress{true,
                    std::span<const std::size_t>(&request.size, 1),
                    request.missing,
                    {},
                    request.tells_sent ? &request.flow : nullptr};
  }
  if (stage_.core().broken(request.id)) return tl::unexpected(*stage_.error());
  return Progress{};
}

}  // namespace clustar::transport::staged
