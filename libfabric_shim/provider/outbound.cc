#include "libfabric_shim/provider/outbound.h"

#include <fmt/format.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace clustar::libfabric_shim::provider {

namespace net = transport::net;

int fi_error(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kInvalidUsage: return FI_EINVAL;
    case ErrorCode::kUnavailable: return FI_ENODEV;
    case ErrorCode::kSystem: return FI_EIO;
    case ErrorCode::kRemote: return FI_ECONNABORTED;
    case ErrorCode::kInternal: return FI_EOTHER;
  }
  return FI_EOTHER;
}

Outbound::Outbound(Setup& setup, const net::Address& peer)
    : setup_(setup), peer_(peer), silence_(setup.settings.stall_timeout) {
  dial();
}

Outbound::~Outbound() {
  for (Payload& payload : slots_) payload.mr.reset();
  mr_.reset();
}

void Outbound::submit(Outgoing message) {
  if (failed()) return report(message.operation, error_);
  // What is on its way finds out itself.
  if (suspect_ && stage_ == Stage::kReady && outstanding() == 0) dial_again();
  if (failed()) return report(message.operation, error_);
  queue_.push_back(std::move(message));
}

void Outbound::progress() {
  if (stage_ == Stage::kDials) {
    int error = 0;
    switch (net::connect_result(socket_, &error)) {
      case net::ConnectState::kPending: break;
      case net::ConnectState::kConnected: stage_ = Stage::kAsks; break;
      case net::ConnectState::kFailed: return fail_with(error, "nobody listens there: " + describe_errno(error));
    }
  }
  if (stage_ == Stage::kAsks) ask();
  if (stage_ == Stage::kHears) hear();
  if (stage_ == Stage::kConnects) connect();
  if (stage_ == Stage::kReady) return pump();
  if (stage_ != Stage::kFailed && setup_.clock.now() > deadline_) {
    fail_with(FI_ETIMEDOUT, "no answer in FI_CLUSTAR_CONNECT_TIMEOUT; its program may not read its completion queue");
  }
}

void Outbound::dial() {
  const Duration limit = setup_.settings.connect_timeout;
  deadline_ = limit == Duration::zero() ? TimePoint::max() : setup_.clock.now() + limit;
  auto socket = net::start_connect(setup_.self.with_port(0), peer_, {});
  if (!socket) return fail_with(FI_ECONNREFUSED, socket.error().message);
  socket_ = std::move(*socket);
}

// The channel is kept until the answer tells whether it leads to the endpoint that listens there.
void Outbound::dial_again() {
  suspect_ = false;
  stage_ = Stage::kDials;
  have_ = 0;
  dial();
}

void Outbound::ask() {
  std::array<std::byte, Question::kSize> question;
  Question::serialize_to(question);
  // It fits the socket's empty buffer.
  const auto written = net::write_some(socket_.fd(), std::span<const std::byte>(question));
  if (written.kind == net::IoResult::Kind::kWouldBlock) return;
  if (written.kind != net::IoResult::Kind::kBytes || written.bytes != question.size()) {
    return fail_with(FI_ECONNABORTED, "it closed the connection: " + describe_errno(written.error));
  }
  stage_ = Stage::kHears;
}

void Outbound::hear() {
  while (have_ < heard_.size()) {
    const auto got = net::read_some(socket_.fd(), std::span(heard_).subspan(have_));
    if (got.kind == net::IoResult::Kind::kWouldBlock) return;
    if (got.kind != net::IoResult::Kind::kBytes) return fail_with(FI_ECONNABORTED, "it gave no handle");
    have_ += got.bytes;
  }
  const auto answer = Answer::parse(heard_);
  if (!answer) return fail_with(FI_EOTHER, "it is no endpoint of this provider, or of another version");
  socket_.close();
  if (channel_ != nullptr && answer->handle == handle_) {
    stage_ = Stage::kReady;
    return;
  }
  mr_.reset();
  channel_.reset();
  handle_ = answer->handle;
  eager_bytes_ = std::min(setup_.settings.eager_bytes, answer->eager_bytes);
  auto pending = setup_.transport.connect(0, answer->handle, {});
  if (!pending) return fail_with(fi_error(pending.error().code), pending.error().message);
  pending_ = std::move(*pending);
  stage_ = Stage::kConnects;
}

void Outbound::connect() {
  auto channel = pending_->poll();
  if (!channel) return fail_with(fi_error(channel.error().code), channel.error().message);
  if (*channel == nullptr) return;
  channel_ = std::move(*channel);
  pending_.reset();
  memory_.resize(kBuffers * (Header::kSize + std::max({std::size_t{eager_bytes_}, kInjectBytes, Hello::kSize})));
  auto mr = channel_->reg_mr(gdr::MemoryRef::host(memory_.data(), memory_.size()));
  if (!mr) return fail_with(fi_error(mr.error().code), mr.error().message);
  mr_ = std::move(*mr);
  stage_ = Stage::kReady;
  std::array<std::byte, Hello::kSize> hello;
  Hello{setup_.self.endpoint()}.serialize_to(hello);
  const Header header{.kind = Kind::kHello, .length = Hello::kSize};
  if (!say(header, hello.data(), {}, false) && !failed()) fail_with(FI_EOTHER, "a new channel takes no message");
}

// Until the channel takes no more, so that a program that reads its queue once in a while keeps it busy.
void Outbound::pump() {
  const auto start_queued = [this] { return !queue_.empty() && start(); };
  bool any = outstanding() == 0;
  for (bool moved = true; moved && !failed(); any = any || moved) {
    moved = finish_sent();
    if (!failed()) moved = finish_payloads() || moved;
    while (!failed() && start_queued()) moved = true;
  }
  if (!failed() && silence_.watches() && silence_.over(any, setup_.clock.now())) {
    fail_with(FI_ETIMEDOUT, fmt::format("it took none of {} messages for CLUSTAR_STALL_TIMEOUT", outstanding()));
  }
}

bool Outbound::finish_sent() {
  bool moved = false;
  while (!sent_.empty()) {
    const auto tested = sent_.front().request->test();
    if (!tested) {
      // The channel owns the request again.
      fail_with(fi_error(tested.error().code), tested.error().message);
      return true;
    }
    if (!tested->done) break;
    const Sent over = sent_.front();
    sent_.pop_front();
    if (over.completes) report(over.operation, 0);
    moved = true;
  }
  return moved;
}

bool Outbound::finish_payloads() {
  bool moved = false;
  for (std::size_t i = 0; payloads_ > 0 && i < slots_.size(); ++i) {
    Payload& payload = slots_[i];
    if (!payload.used) continue;
    if (payload.request == nullptr && !hand_on(payload, static_cast<int>(i) + 1)) {
      if (failed()) return true;
      continue;
    }
    const auto tested = payload.request->test();
    if (!tested) {
      fail_with(fi_error(tested.error().code), tested.error().message);
      return true;
    }
    if (!tested->done) continue;
    const Operation over = payload.message.operation;
    payload = {};
    --payloads_;
    report(over, 0);
    moved = true;
  }
  return moved;
}

// Whatever fails from where the message has left the queue on, it is reported once: by what was said, or by its slot.
bool Outbound::start() {
  Outgoing& message = queue_.front();
  const std::byte* const bytes = message.copy.empty() ? message.operation.buffer : message.copy.data();
  // What was injected is done for the program: it is not to wait here for a receive, which may be posted after this end
  // has closed.
  if (message.header.length <= eager_bytes_ || !message.copy.empty()) {
    message.header.kind = Kind::kEager;
    if (!say(message.header, bytes, message.operation, true)) return false;
    queue_.pop_front();
    return true;
  }
  const auto free = std::find_if(slots_.begin(), slots_.end(), [](const Payload& payload) { return !payload.used; });
  if (free == slots_.end()) return false;
  message.header.kind = Kind::kRendezvous;
  message.header.slot = static_cast<std::uint16_t>(free - slots_.begin());
  if (!say(message.header, nullptr, message.operation, false)) return false;
  free->used = true;
  free->message = std::move(message);
  queue_.pop_front();
  ++payloads_;
  (void)hand_on(*free, free->message.header.slot + 1);
  return true;
}

bool Outbound::say(const Header& header, const std::byte* payload, const Operation& operation, bool completes) {
  if (sent_.size() == kBuffers) return false;
  const std::size_t room = memory_.size() / kBuffers;
  const std::size_t at = next_buffer_ * room;
  const std::size_t behind = payload == nullptr ? 0 : header.length;
  header.serialize_to(std::span(memory_).subspan(at).first<Header::kSize>());
  if (behind > 0) std::memcpy(memory_.data() + at + Header::kSize, payload, behind);
  auto request = channel_->send(*mr_, at, Header::kSize + behind, 0, {});
  if (!request) {
    fail_with(fi_error(request.error().code), request.error().message);
    return false;
  }
  if (*request == nullptr) return false;
  next_buffer_ = (next_buffer_ + 1) % kBuffers;
  sent_.push_back({*request, operation, completes});
  return true;
}

// The channel keeps it until the peer has posted the receive of this tag: that is the rendezvous.
bool Outbound::hand_on(Payload& payload, int tag) {
  Outgoing& message = payload.message;
  if (payload.mr == nullptr) {
    auto mr = channel_->reg_mr(gdr::MemoryRef::host(message.operation.buffer, message.header.length));
    if (!mr) {
      fail_with(fi_error(mr.error().code), mr.error().message);
      return false;
    }
    payload.mr = std::move(*mr);
  }
  auto request = channel_->send(*payload.mr, 0, message.header.length, tag, {});
  if (!request) {
    fail_with(fi_error(request.error().code), request.error().message);
    return false;
  }
  payload.request = *request;
  return payload.request != nullptr;
}

// The channel goes first, so that nothing reads the memory of an operation that has completed.
void Outbound::fail_with(int error, const std::string& why) {
  if (failed()) return;
  stage_ = Stage::kFailed;
  error_ = error;
  setup_.log.warn(fmt::format("clustar: sending to {}: {}", peer_.to_string(), why));
  pending_.reset();
  socket_.close();
  for (Payload& payload : slots_) payload.mr.reset();
  mr_.reset();
  channel_.reset();
  const auto sent = std::exchange(sent_, {});
  const auto queue = std::exchange(queue_, {});
  for (const Sent& each : sent) {
    if (each.completes) report(each.operation, error);
  }
  for (Payload& payload : slots_) {
    if (payload.used) report(payload.message.operation, error);
    payload = {};
  }
  payloads_ = 0;
  for (const Outgoing& each : queue) report(each.operation, error);
}

// All of them: who wants no entry of a success counts it all the same, and hears of an error.
void Outbound::report(const Operation& operation, int error) {
  setup_.completions.complete({.operation = operation, .bytes = operation.length, .error = error});
}

}  // namespace clustar::libfabric_shim::provider
