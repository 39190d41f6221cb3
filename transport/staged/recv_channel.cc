#include "transport/staged/recv_channel.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <utility>

namespace clustar::transport::staged {
namespace {

bool in_device(const RecvPart& part) { return part.mr != nullptr && Stage::is_device(*part.mr); }

}  // namespace

StagedRecvChannel::StagedRecvChannel(Context& context, std::unique_ptr<RecvChannel> inner)
    : RecvChannel(inner->peer()),
      context_(context),
      stage_(context, Stage::Direction::kReceive, kMaxRequests,
             [this](const gdr::MemoryRef& memory) { return inner_->reg_mr(memory); }),
      requests_(kMaxRequests),
      inner_(std::move(inner)) {
  for (RecvRequest& request : requests_) request.channel = this;
}

StagedRecvChannel::~StagedRecvChannel() { stage_.stop(); }

Result<std::unique_ptr<Mr>> StagedRecvChannel::reg_mr(const gdr::MemoryRef& memory) {
  return stage_.takes(memory.kind) ? stage_.reg_mr(memory) : inner_->reg_mr(memory);
}

Result<Request*> StagedRecvChannel::recv(std::span<const RecvPart> parts) {
  if (!stage_.active()) return inner_->recv(parts);
  if (parts.empty() || parts.size() > kMaxRecvParts) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("{}, staged: {} receives in one request; 1 to {} are allowed",
                                                         context_.name, parts.size(), kMaxRecvParts));
  }
  const std::unique_lock lock(stage_.mutex(), std::try_to_lock);
  if (!lock) return nullptr;
  progress(nullptr);
  if (stage_.error()) return tl::unexpected(*stage_.error());
  const bool device = std::any_of(parts.begin(), parts.end(), in_device);
  if (!device && !stage_.core().unhanded()) return inner_->recv(parts);
  std::array<Stage::Part, kMaxRecvParts> staged{};
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (in_device(parts[i])) {
      staged[i] = {parts[i].mr, parts[i].mr->memory().address + parts[i].offset, parts[i].length};
    }
  }
  const auto wanted = std::span<const Stage::Part>(staged).first(parts.size());
  if (const auto allowed = stage_.check(wanted); !allowed) return tl::unexpected(allowed.error());
  const auto id = stage_.open(wanted);
  if (!id) return nullptr;
  RecvRequest& request = requests_[*id];
  request.id = *id;
  request.count = parts.size();
  std::copy(parts.begin(), parts.end(), request.parts.begin());
  request.missing.clear();
  request.messages.clear();
  if (device) context_.counters.received.fetch_add(1, std::memory_order_relaxed);
  progress(nullptr);
  return &request;
}

void StagedRecvChannel::progress(RecvRequest* request) {
  stage_.advance();
  hand_over();
  if (request != nullptr) look(*request);
  // A caller that waits for one request only must get on, too, when others have its slices, or its place in the inner
  // channel.
  if (stage_.core().waiting_for_slices() || inner_full_) {
    for (RecvRequest& other : requests_) look(other);
  }
  stage_.advance();
  if (inner_full_) hand_over();
}

void StagedRecvChannel::hand_over() {
  inner_full_ = false;
  while (const auto id = stage_.core().next_for_network()) {
    RecvRequest& request = requests_[*id];
    std::array<RecvPart, kMaxRecvParts> parts = request.parts;
    for (std::uint32_t i = 0; i < request.count; ++i) {
      if (!in_device(parts[i])) continue;
      parts[i].mr = &stage_.host_mr(*id, i);
      parts[i].offset = stage_.host_offset(*id, i);
    }
    const auto posted = inner_->recv(std::span(parts).first(request.count));
    if (!posted) return stage_.inner_failed(std::nullopt, posted.error());
    inner_full_ = *posted == nullptr;
    if (inner_full_) return;
    request.inner = *posted;
    stage_.core().handed(*id);
  }
}

// What a loss-tolerant network lost reads as zero in host memory already, so the copy of all of a message brings the
// zeroes along.
void StagedRecvChannel::look(RecvRequest& request) {
  if (request.inner == nullptr || stage_.core().failed()) return;
  const auto progress = request.inner->test();
  if (progress && !progress->done) return;
  request.inner = nullptr;
  if (!progress) return stage_.inner_failed(request.id, progress.error());
  std::copy(progress->sizes.begin(), progress->sizes.end(), request.sizes.begin());
  request.missing.assign(progress->missing.begin(), progress->missing.end());
  request.messages.assign(progress->messages.begin(), progress->messages.end());
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < request.count; ++i) bytes += in_device(request.parts[i]) ? request.sizes[i] : 0;
  context_.counters.received_bytes.fetch_add(bytes, std::memory_order_relaxed);
  stage_.core().network_done(request.id, std::span(request.sizes).first(request.count));
}

Result<Progress> StagedRecvChannel::test(RecvRequest& request) {
  const std::unique_lock lock(stage_.mutex(), std::try_to_lock);
  if (!lock) return Progress{};
  if (!stage_.core().complete(request.id)) progress(&request);
  if (stage_.core().complete(request.id)) {
    stage_.release(request.id);
    return Progress{true, std::span<const std::size_t>(request.sizes).first(request.count), request.missing,
                    request.messages};
  }
  if (stage_.core().broken(request.id)) return tl::unexpected(*stage_.error());
  return Progress{};
}

Result<Request*> StagedRecvChannel::flush(std::span<const RecvPart> parts) {
  std::vector<RecvPart> host;
  std::copy_if(parts.begin(), parts.end(), std::back_inserter(host),
               [](const RecvPart& part) { return !in_device(part); });
  Request* inner = nullptr;
  if (!host.empty()) {
    const auto flushed = inner_->flush(host);
    if (!flushed) return tl::unexpected(flushed.error());
    inner = *flushed;
  }
  if (host.size() == parts.size() || !context_.options.emulated) return inner;
  const auto is_free = [](const std::unique_ptr<FlushRequest>& one) { return !one->used; };
  auto free = std::find_if(flushes_.begin(), flushes_.end(), is_free);
  if (free == flushes_.end()) free = flushes_.insert(free, std::make_unique<FlushRequest>());
  FlushRequest& request = **free;
  request.inner = inner;
  request.tests_left = kEmulatedFlushTests;
  request.used = true;
  return &request;
}

Result<Progress> StagedRecvChannel::FlushRequest::test() {
  if (inner != nullptr) {
    const auto progress = inner->test();
    if (!progress) used = false;
    if (!progress || !progress->done) return progress;
    inner = nullptr;
  }
  if (tests_left > 0 && --tests_left > 0) return Progress{};
  used = false;
  return Progress{true, {}, {}};
}

}  // namespace clustar::transport::staged
