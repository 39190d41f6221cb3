#include "mlt/driver/send_channel.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace clustar::mlt::driver {

using transport::Progress;
using transport::Request;

MltSendChannel::MltSendChannel(Engine& engine, net::Socket control, std::string peer)
    : Connection(engine, std::move(control), "sending to", std::move(peer)),
      requests_(kMaxRequests),
      request_of_(engine.options().max_messages) {
  for (std::uint32_t i = kMaxRequests; i-- > 0;) {
    requests_[i].channel = this;
    requests_[i].index = i;
    free_requests_.push_back(i);
  }
}

MltSendChannel::~MltSendChannel() {
  const std::lock_guard lock(engine_.mutex());
  leave();
}

Result<std::unique_ptr<transport::Mr>> MltSendChannel::reg_mr(const gdr::MemoryRef& memory) {
  return register_memory(memory);
}

Result<Request*> MltSendChannel::send(const transport::Mr& mr, std::size_t offset, std::size_t length, int tag,
                                      const transport::FlowTag& flow) {
  if (has_failed()) return tl::unexpected(error());
  if (length > kMaxMessageBytes) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("mlt: a message of {} bytes; at most {} bytes (1 GiB) are allowed", length, kMaxMessageBytes));
  }
  if (free_requests_.empty()) return nullptr;
  SendRequest& request = requests_[free_requests_.back()];
  free_requests_.pop_back();
  request.done.store(false, std::memory_order_relaxed);
  request.mr = &mr;
  request.memory = io_mr(mr);
  request.offset = offset;
  request.length = length;
  request.tag = tag;
  request.flow = flow;
  engine_.post(*this, request.index, length);
  return &request;
}

Result<Progress> MltSendChannel::test(SendRequest& request) {
  if (!request.done.load(std::memory_order_acquire)) {
    engine_.poke();
    const bool failed = has_failed();  // before `done`: nothing becomes done after a failure
    if (!request.done.load(std::memory_order_acquire)) {
      if (failed) return tl::unexpected(error());
      return Progress{};
    }
  }
  free_requests_.push_back(request.index);
  return Progress{true, std::span<const std::size_t>(&request.length, 1), {}};
}

void MltSendChannel::submit(std::uint32_t index, TimePoint now) {
  if (broken()) return;
  SendRequest& request = requests_[index];
  request.submitted = true;
  ++outstanding_;
  if (backlog_.empty() && !engine_.core().sender(id()).full()) {
    begin(request, now);
  } else {
    if (backlog_.empty()) engine_.want_retry(*this);
    backlog_.push_back(index);
  }
}

void MltSendChannel::begin(SendRequest& request, TimePoint now) {
  const auto message =
      engine_.core().send(id(), static_cast<std::uint32_t>(request.length), request.tag, SendTerms{}, now);
  if (!message) {
    fail_with(
        ErrorCode::kInvalidUsage,
        fmt::format("tag {} is one more than the {} different ones of a connection, or the message of {} bytes has "
                    "too many packets of {} bytes",
                    request.tag, engine_.options().max_tags, request.length, engine_.options().segment));
    return;
  }
  request_of_[*message % request_of_.size()] = request.index;
}

void MltSendChannel::retry(TimePoint now) {
  while (!broken() && !backlog_.empty()) {
    if (engine_.core().sender(id()).full()) {
      engine_.want_retry(*this);
      return;
    }
    begin(requests_[backlog_.pop_front()], now);
  }
}

io::MemorySlice MltSendChannel::payload(const Transmit& transmit) {
  const SendRequest& request = requests_[request_of_[transmit.message % request_of_.size()]];
  return {request.memory, request.offset + transmit.offset, transmit.length};
}

void MltSendChannel::on_event(const Endpoint::Event& event, TimePoint) {
  if (std::holds_alternative<Endpoint::PeerLost>(event.what)) {
    fail_with(ErrorCode::kRemote, "the peer does not answer");
    return;
  }
  const auto* sent = std::get_if<SendDone>(&event.what);
  if (sent == nullptr) return;
  SendRequest& request = requests_[request_of_[sent->message % request_of_.size()]];
  engine_.drop_pending(id(), sent->message);
  request.submitted = false;
  --outstanding_;
  ++finished_;
  ++engine_.count().messages_sent;
  engine_.count().bytes_sent += request.length;
  request.done.store(true, std::memory_order_release);
}

// A receiver says nothing here until it closes; then it repeats what the last packets may have failed to tell.
void MltSendChannel::read_control() {
  std::array<std::byte, 4096> in;
  while (!broken()) {
    const net::IoResult got = net::read_some(control_.fd(), std::span(in));
    switch (got.kind) {
      case net::IoResult::Kind::kWouldBlock: return;
      case net::IoResult::Kind::kBytes:
        control_in_.insert(control_in_.end(), in.begin(), in.begin() + static_cast<std::ptrdiff_t>(got.bytes));
        if (!take_last_words()) fail_with(ErrorCode::kRemote, "bytes of another protocol on the control connection");
        break;
      case net::IoResult::Kind::kClosed:
        fail_with(ErrorCode::kRemote, "the peer closed the connection or its process ended");
        return;
      case net::IoResult::Kind::kError:
        fail_with(ErrorCode::kRemote, "control connection: " + describe_errno(got.error));
        return;
    }
  }
}

// Frames of a length byte and a packet of the protocol.
bool MltSendChannel::take_last_words() {
  const TimePoint now = engine_.context().clock.now();
  std::size_t used = 0;
  while (control_in_.size() > used) {
    const auto length = std::to_integer<std::size_t>(control_in_[used]);
    if (length == 0 || length > kMaxHeader) return false;
    if (control_in_.size() - used - 1 < length) break;
    engine_.core().on_packet(std::span(control_in_).subspan(used + 1, length), 0, false, now);
    used += 1 + length;
  }
  control_in_.erase(control_in_.begin(), control_in_.begin() + static_cast<std::ptrdiff_t>(used));
  engine_.handle_events(now);
  return true;
}

// First transmissions only: what is repeated goes to a peer that may not hear it.
std::uint64_t MltSendChannel::progress() const {
  if (broken()) return finished_;
  const Sender::Counters& count = engine_.core().sender(id()).counters();
  return finished_ + count.packets - count.retransmitted;
}

std::string MltSendChannel::waiting() const { return fmt::format("{} sends wait for its receives", outstanding_); }

bool MltSendChannel::uses(const transport::Mr& mr) const {
  return std::any_of(requests_.begin(), requests_.end(),
                     [&](const SendRequest& request) { return request.submitted && request.mr == &mr; });
}

}  // namespace clustar::mlt::driver
