#include "mlt/driver/send_channel.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "mlt/driver/identity.h"
#include "transport/base/copies.h"

namespace clustar::mlt::driver {

using transport::Progress;
using transport::Request;

MltSendChannel::MltSendChannel(std::shared_ptr<Engine> engine, net::Socket control, transport::PeerInfo peer,
                               std::string shown)
    : transport::SendChannel(std::move(peer)),
      Connection(std::move(engine), std::move(control), "sending to", std::move(shown)),
      requests_(this, kMaxRequests),
      outgoing_(engine_.options().max_messages),
      copies_(engine_),
      marks_(engine_.context().important_ppm, engine_.context().importance.get()) {}

MltSendChannel::~MltSendChannel() {
  std::vector<std::byte> words;
  {
    const std::lock_guard lock(engine_.mutex());
    if (!broken()) {
      words = last_words();
      count_copies();
    }
    leave();
  }
  net::write_last(control_, words, kLastWordsWait);
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
  if (!requests_.has_room()) return nullptr;
  SendRequest& request = requests_.take();
  request.done.store(false, std::memory_order_relaxed);
  request.mr = &mr;
  request.memory = io_mr(mr);
  request.offset = offset;
  request.length = length;
  request.tag = tag;
  request.flow = flow;
  request.missing.clear();
  engine_.post(*this, request.index, length);
  return &request;
}

Result<Progress> MltSendChannel::test(SendRequest& request) {
  if (!request.done.load(std::memory_order_acquire)) {
    engine_.poke(request.done);
    const bool failed = has_failed();  // before `done`: nothing becomes done after a failure
    if (!request.done.load(std::memory_order_acquire)) {
      if (failed) return tl::unexpected(error());
      return Progress{};
    }
  }
  requests_.give_back(request);
  return Progress{true, std::span<const std::size_t>(&request.length, 1), request.missing, {}, &request.flow};
}

void MltSendChannel::submit(std::uint32_t index, TimePoint now) {
  if (broken()) return;
  SendRequest& request = requests_[index];
  request.submitted = true;
  request.waited = false;
  ++outstanding_;
  waiting_.push_back(index);
  begin_waiting(now);
  if (!broken() && !waiting_.empty()) count_wait(request);
}

void MltSendChannel::count_wait(SendRequest& request) {
  if (!std::exchange(request.waited, true)) engine_.traffic(id())->waited();
}

// In the order of posting, which numbers the messages of a tag. What the core has, it sends in the turns of the
// device's policy.
void MltSendChannel::begin_waiting(TimePoint now) {
  while (!broken() && !waiting_.empty()) {
    SendRequest& request = requests_[waiting_.front()];
    if (!may_begin(request)) {
      engine_.wait_for_room(id());
      return;
    }
    waiting_.pop_front();
    begin(request, now);
  }
}

// A short message waits for a place for its copy, which comes before its own acknowledgement would; unless it comes
// only after receives that may themselves wait for this message.
bool MltSendChannel::may_begin(const SendRequest& request) const {
  const Sender& sender = engine_.core().sender(id());
  return !sender.full() && !(is_short(request) && copies_.full() && sender.unposted() == 0);
}

// What the receiver would not lose anyway, the sender need not offer.
SendTerms MltSendChannel::terms_of(const SendRequest& request) {
  const transport::LossTerms& loss = request.flow.loss;
  const transport::MessageIdentity& identity = request.flow.identity;
  const bool asks = loss.tolerance_ppm > 0 && request.length >= transport::FlowTag::kMinTolerantBytes;
  if (!asks || loss.tolerance_ppm > channel_.max_tolerance_ppm) return send_terms(nullptr, identity);
  if (channel_.comm_id != 0 && loss.communicator != channel_.comm_id) {
    if (!warned_) {
      warn_reliable(
          fmt::format("the loss terms name the communicator {:x}, the channel belongs to {:x}; give FlowTag::loss the "
                      "ChannelOptions::comm_id",
                      loss.communicator, channel_.comm_id));
    }
    return send_terms(nullptr, identity);
  }
  if (!agrees(loss, identity)) {
    if (!warned_) {
      warn_reliable(fmt::format(
          "the loss terms name the communicator {:x} and {} bytes, the message's identity {:x} and {}; give "
          "FlowTag::loss and FlowTag::identity the same",
          loss.communicator, loss.collective_bytes, identity.communicator, identity.total_bytes));
    }
    return send_terms(nullptr, identity);
  }
  return send_terms(&loss, identity);
}

// What the program marked, or else by the values. These are read here, so only of memory that the processor reads at
// full speed.
const PacketBitmap* MltSendChannel::important_of(const SendRequest& request, TimePoint now) {
  const std::uint16_t segment = engine_.core().sender(id()).segment();
  const std::byte* const begin = request.mr->memory().address + request.offset;
  if (const PacketBitmap* told = marks_.told(begin, request.length, segment, now)) return told;
  if (!marks_.wanted()) return nullptr;
  const bool reads = !on_device(*request.mr);
  const PacketBitmap* marks =
      reads ? marks_.of({begin, request.length}, request.flow.identity.datatype, segment) : nullptr;
  if (marks == nullptr && !std::exchange(told_unmarked_, true)) {
    engine_.context().log.warn(
        fmt::format("mlt: CLUSTAR_LOSS_IMPORTANT marks nothing of what goes to {}: {}", peer_,
                    reads ? "NCCL did not say that it is float, half or bfloat16" : "it lies in a GPU's memory"));
  }
  return marks;
}

void MltSendChannel::warn_reliable(const std::string& why) {
  warned_ = true;
  engine_.context().log.warn(fmt::format("mlt: sending to {} reliably: {}", peer_, why));
}

void MltSendChannel::begin(SendRequest& request, TimePoint now) {
  OutboundMessage message{request.memory, request.offset, static_cast<std::uint32_t>(request.length), request.tag,
                          &request.flow};
  Outgoing outgoing{message.length, request.index, std::nullopt};
  std::atomic<bool>* offered = nullptr;
  SendTerms terms = terms_of(request);
  if (terms.tolerant) terms.important = important_of(request, now);
  if (may_copy(request, terms.tolerant)) outgoing.copy = copy_of(request);
  if (outgoing.copy) {
    outgoing.request.reset();
    message.memory = outgoing.copy->memory;
    message.offset = outgoing.copy->offset;
    request.mr = nullptr;
    request.submitted = false;
    offered = &request.done;
  }
  const Sender& sender = engine_.core().sender(id());
  const std::uint32_t without_receive = sender.unposted();
  const auto number = engine_.send(id(), message, terms, offered, now);
  if (!number) {
    fail_with(
        ErrorCode::kInvalidUsage,
        fmt::format("tag {} is one more than the {} different ones of a connection, or the message of {} bytes has "
                    "too many packets of {} bytes",
                    request.tag, engine_.options().max_tags, request.length, engine_.options().segment));
    return;
  }
  const std::uint32_t goes_ahead = std::max<std::uint32_t>(engine_.options(id()).unscheduled_bytes, sender.segment());
  if (message.length > goes_ahead && sender.unposted() > without_receive) count_wait(request);
  next_ = *number + 1;
  outgoing_[*number % outgoing_.size()] = outgoing;
}

bool MltSendChannel::is_short(const SendRequest& request) {
  return SendCopies::is_short(request.length) && (request.length == 0 || !on_device(*request.mr));
}

// Sends of copies need not wait for an acknowledgement, as those of kernel TCP do not. They are done when the device
// was offered the message, so that a caller that posts and waits has it sent. A sender that may lose learns from the
// acknowledgement what is missing.
bool MltSendChannel::may_copy(const SendRequest& request, bool tolerant) const {
  constexpr Duration kFar = std::chrono::milliseconds(1);
  if (is_short(request)) return true;
  const Options& options = engine_.options(id());
  return !tolerant && options.recovery == nullptr && options.base_rtt >= kFar && SendCopies::is_long(request.length) &&
         !on_device(*request.mr);
}

std::optional<SendCopies::Copy> MltSendChannel::copy_of(const SendRequest& request) {
  const auto copy = copies_.take(request.length);
  if (copy && request.length > 0) {
    std::memcpy(copy->at, request.mr->memory().address + request.offset, request.length);
    count_copy(Copy::kSendBuffer, request.length);
  }
  return copy;
}

void MltSendChannel::on_event(const Endpoint::Event& event, TimePoint) {
  if (std::holds_alternative<Endpoint::PeerLost>(event.what)) {
    fail_with(ErrorCode::kRemote, "the peer does not answer");
    return;
  }
  const auto* sent = std::get_if<SendDone>(&event.what);
  if (sent == nullptr) return;
  Outgoing& outgoing = outgoing_[sent->message % outgoing_.size()];
  --outstanding_;
  ++finished_;
  if (outgoing.copy) copies_.give_back(*std::exchange(outgoing.copy, std::nullopt));
  if (!outgoing.request) return;
  if (sent->missing_packets > 0) note_missing(sent->message, outgoing);
  SendRequest& request = requests_[*outgoing.request];
  request.submitted = false;
  request.done.store(true, std::memory_order_release);
}

// A message ends with packets missing only when every window of the receiver's STOP has come, so this is what that end
// zeroed, packet by packet. A send that was done when its payload was copied may lose nothing.
void MltSendChannel::note_missing(std::uint32_t message, const Outgoing& outgoing) {
  const Sender& sender = engine_.core().sender(id());
  const PacketBitmap& delivered = sender.delivered(message);
  const std::uint64_t segment = sender.segment();
  std::vector<transport::MissingRange>& missing = requests_[*outgoing.request].missing;
  for (std::uint32_t from = delivered.first_clear(0); from < delivered.size();) {
    const std::uint32_t to = delivered.first_set(from);
    missing.push_back({0, from * segment, std::min<std::uint64_t>(to * segment, outgoing.length) - from * segment});
    from = delivered.first_clear(to);
  }
}

// Sends of copies are done before their messages have arrived: over TCP these do so even if this process ends.
std::vector<std::byte> MltSendChannel::last_words() {
  if (!control_open_ || !copies_.in_use()) return {};
  engine_.handle_events(engine_.context().clock.now());
  if (broken()) return {};
  const Sender& sender = engine_.core().sender(id());
  const std::uint16_t segment = sender.segment();
  std::vector<std::byte> words;
  for (std::uint32_t back = static_cast<std::uint32_t>(outgoing_.size()); back > 0; --back) {
    const std::uint32_t message = next_ - back;
    const Outgoing& outgoing = outgoing_[message % outgoing_.size()];
    if (!outgoing.copy) continue;
    for (std::uint32_t index = 0; index < packet_count(outgoing.length, segment); ++index) {
      const auto header = sender.repeat(message, index);
      if (!header) continue;
      std::array<std::byte, kMaxHeader + kSealBytes> bytes;
      std::size_t size = serialize(*header, bytes);
      const std::span payload(outgoing.copy->at + index * std::size_t{segment},
                              packet_bytes(index, outgoing.length, segment));
      // Nothing reads the copy any more, so it may be encrypted where it is.
      if (engine_.sealing() != nullptr) {
        size = engine_.sealing()->seal_control(id(), bytes, size, payload, payload.data());
      }
      if (size > 0) LastWord::append(words, std::span<const std::byte>(bytes).first(size), payload);
    }
  }
  return words;
}

// Their requests are done, and the last words bring what has not arrived: they count as sent, though no acknowledgement
// of theirs will be read.
void MltSendChannel::count_copies() {
  if (broken() || !copies_.in_use()) return;
  for (const Outgoing& outgoing : outgoing_) {
    if (outgoing.copy) engine_.traffic(id())->sent(outgoing.length);
  }
}

// A receiver says nothing here until it closes; then it repeats what the last packets may have failed to tell.
void MltSendChannel::read_control() {
  constexpr std::size_t kMostHeard = 256 * 1024;
  std::array<std::byte, 4096> in;
  // A bounded part at a time: a peer that never stops must not keep the engine from its other connections.
  for (std::size_t heard = 0; heard < kMostHeard && !broken();) {
    const net::IoResult got = net::read_some(control_.fd(), std::span(in));
    switch (got.kind) {
      case net::IoResult::Kind::kWouldBlock: return;
      case net::IoResult::Kind::kBytes:
        heard += got.bytes;
        control_in_.insert(control_in_.end(), in.begin(), in.begin() + static_cast<std::ptrdiff_t>(got.bytes));
        if (!take_last_words()) fail_with(ErrorCode::kRemote, "bytes of another protocol on the control connection");
        break;
      case net::IoResult::Kind::kClosed: on_peer_gone("the peer closed the connection or its process ended"); return;
      case net::IoResult::Kind::kError: on_peer_gone("control connection: " + describe_errno(got.error)); return;
    }
  }
}

// A receiver that has all that was sent may leave: that is how connections end.
void MltSendChannel::on_peer_gone(const std::string& what) {
  outstanding_ > 0 ? fail_with(ErrorCode::kRemote, what) : fail_quietly(ErrorCode::kRemote, what);
}

bool MltSendChannel::take_last_words() {
  const TimePoint now = engine_.context().clock.now();
  const std::span<const std::byte> in(control_in_);
  std::size_t used = 0;
  while (in.size() - used >= LastWord::kPrefix) {
    const auto word = LastWord::parse(in.subspan(used));
    if (!word || word->payload > 0) return false;
    if (in.size() - used < LastWord::kPrefix + word->header) break;
    std::optional<std::span<const std::byte>> packet = in.subspan(used + LastWord::kPrefix, word->header);
    if (engine_.sealing() != nullptr) packet = engine_.sealing()->open_control(id(), *packet, {}, nullptr);
    if (packet && engine_.core().find(*packet) == id()) engine_.core().on_packet(*packet, 0, false, now);
    used += LastWord::kPrefix + word->header;
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
  return requests_.any_of([&](const SendRequest& request) { return request.submitted && request.mr == &mr; });
}

}  // namespace clustar::mlt::driver
