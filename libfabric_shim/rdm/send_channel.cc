#include "libfabric_shim/rdm/send_channel.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace clustar::transport::ofi {

OfiSendChannel::OfiSendChannel(Nic& nic, Rails rails, Facts facts, net::Socket control)
    : SendChannel(facts.peer),
      nic_(nic),
      rails_(std::move(rails)),
      facts_(std::move(facts)),
      anchor_(std::make_shared<MemoryAnchor<OfiSendChannel>>(nic.engine().mutex(), this)),
      control_(std::move(control)),
      traffic_(nic.traffic().open(facts_.traffic_class, facts_.peer.host, facts_.peer.rank)),
      matcher_(
          {std::min(nic.context().settings.eager_bytes, facts_.settings.eager_bytes), facts_.settings.window_bytes}),
      most_inline_(nic.domain().gpu() == GpuUse::kNone ? facts_.settings.eager_bytes : 0),
      requests_(this, kMaxRequests),
      frames_sent_(rails_.size()),
      stall_("ofi", nic.context().settings.stall_timeout, nic.context().clock, nic.context().log),
      connection_(nic_.engine().attach(*this, facts_.connection)) {}

OfiSendChannel::~OfiSendChannel() {
  {
    // Whether the peer is gone; what it says besides is too late.
    const std::lock_guard lock(nic_.engine().mutex());
    read_control();
  }
  nic_.engine().detach(connection_);
  const std::lock_guard lock(nic_.engine().mutex());
  anchor_->let_go();
  drain_injected();
  nic_.settle(rails_, *this, peer_died());
  // So the receiver knows what is still to come by the fabric. It always fits, and who is gone need not know.
  std::array<std::byte, Note::kSize> farewell;
  Note{Note::Kind::kFarewell, frames_sent_ + directs_sent_}.serialize_to(farewell);
  net::write_some(control_.fd(), std::span<const std::byte>(farewell));
}

Result<std::unique_ptr<Mr>> OfiSendChannel::reg_mr(const gdr::MemoryRef& memory) {
  return Memory::make(nic_, memory, anchor_);
}

void OfiSendChannel::on_deregister(const Mr& mr) {
  const auto uses = [&](const SendRequest& request) { return request.mr == &mr; };
  if (failed_ && under_way_ == 0) return;
  if (!requests_.any_of(uses)) return;
  read_control();  // whether the peer is gone
  fail_with(ErrorCode::kInvalidUsage, "memory was deregistered while sends used it");
  owed_.reset();
  nic_.settle(rails_, *this, peer_died());
  under_way_ = 0;
  bytes_under_way_ = 0;
}

Result<Request*> OfiSendChannel::send(const Mr& mr, std::size_t offset, std::size_t length, int tag,
                                      const FlowTag& flow) {
  const std::unique_lock lock(nic_.engine().mutex(), std::try_to_lock);
  if (!lock) return nullptr;
  if (failed_) return tl::unexpected(*failed_);  // first: requests that failed make no room
  if (!requests_.has_room()) return nullptr;
  if ((matcher_.needs_clear(length) && !matcher_.has_clear(tag)) || !has_credit() || ++polls_ % kLivenessPolls == 0 ||
      nic_.context().clock.now() - heard_ > kFresh) {
    read_control();
    if (failed_) return tl::unexpected(*failed_);
  }
  SendRequest& request = requests_.take();
  request.done.store(false, std::memory_order_relaxed);
  request.mr = &mr;
  request.data = mr.memory().address + offset;
  request.flow = flow;
  request.under_way = 0;
  if (const auto departure = matcher_.submit(request.index, tag, length)) {
    depart(*departure);
    nic_.engine().pump();
  } else {
    traffic_->waited();
  }
  return &request;
}

Result<Progress> OfiSendChannel::test(SendRequest& request) {
  if (!request.done.load(std::memory_order_acquire)) {
    const std::unique_lock lock(nic_.engine().mutex(), std::try_to_lock);
    if (!lock) return Progress{};
    progress();
    if (!request.done.load(std::memory_order_relaxed)) {
      if (failed_) return tl::unexpected(*failed_);
      if (const auto stalled = check_stall()) return tl::unexpected(*stalled);
      return Progress{};
    }
  }
  requests_.give_back(request);
  return Progress{true, std::span<const std::size_t>(&request.size, 1), {}};
}

void OfiSendChannel::progress() {
  if (failed_) return;
  ++polls_;
  if (matcher_.waiting() > 0 || !has_credit() || polls_ % kLivenessPolls == 0) read_control();
  for (const auto& exchange : rails_) exchange->poll();
  if (!control_lost_.empty()) check_lost_control();
  if (failed_) return;
  send_owed();
  nic_.engine().unblock(connection_);
  nic_.engine().pump();
}

void OfiSendChannel::read_control() {
  heard_ = nic_.context().clock.now();
  while (!failed_ && control_lost_.empty()) {
    const net::IoResult got = net::read_some(control_.fd(), std::span(control_in_).subspan(control_have_));
    if (got.kind == net::IoResult::Kind::kWouldBlock) return;
    if (got.kind == net::IoResult::Kind::kClosed)
      return on_control_lost("the peer closed the connection or its process ended");
    if (got.kind == net::IoResult::Kind::kError)
      return on_control_lost("control connection: " + describe_errno(got.error));
    control_have_ += got.bytes;
    ++progress_marks_;
    std::size_t used = 0;
    for (; control_have_ - used >= ClearToSend::kSize && !failed_; used += ClearToSend::kSize) {
      on_words(std::span(control_in_).subspan(used).first<ClearToSend::kSize>());
    }
    std::memmove(control_in_.data(), control_in_.data() + used, control_have_ - used);
    control_have_ -= used;
  }
}

void OfiSendChannel::on_words(std::span<const std::byte, ClearToSend::kSize> words) {
  if (const auto note = Note::parse(words)) {
    if (note->kind == Note::Kind::kFarewell) {
      peer_left_ = true;
      return;
    }
    const bool sound = note->kind == Note::Kind::kTaken && note->count >= frames_taken_ && note->count <= frames_sent_;
    if (!sound) return fail_with(ErrorCode::kRemote, "the peer took frames that were not sent");
    frames_taken_ = note->count;
    return;
  }
  const auto clear = ClearToSend::parse(words);
  using tcp::SendMatcher;
  const auto result =
      clear ? matcher_.on_clear_to_send(*clear) : SendMatcher::ClearResult{SendMatcher::Verdict::kProtocolError};
  if (result.verdict == SendMatcher::Verdict::kProtocolError) {
    fail_with(ErrorCode::kRemote, "the peer sent a clear-to-send that fits no receive");
  } else if (result.verdict == SendMatcher::Verdict::kDeparture) {
    depart(result.departure);
  }
}

void OfiSendChannel::on_control_lost(const std::string& why) {
  control_lost_ = why;
  lost_since_ = nic_.context().clock.now();
  marks_at_loss_ = progress_marks_;
  if (under_way_ == 0) fail_with(ErrorCode::kRemote, why);
}

void OfiSendChannel::check_lost_control() {
  if (failed_) return;
  const TimePoint now = nic_.context().clock.now();
  if (progress_marks_ != marks_at_loss_) {
    marks_at_loss_ = progress_marks_;
    lost_since_ = now;
  }
  if (under_way_ == 0 || now - lost_since_ > kLastWords) fail_with(ErrorCode::kRemote, control_lost_);
}

void OfiSendChannel::depart(const tcp::SendMatcher::Departure& departure) {
  SendRequest& request = requests_[departure.cookie];
  request.header = departure.header;
  request.posted = request.header.has_slot && (request.header.slot & kSlotPosted) != 0;
  request.header.slot &= ~(request.header.has_slot ? kSlotPosted : 0);
  request.unsent = departure.header.total;
  request.size = departure.header.total;
  nic_.engine().push(connection_, departure.cookie, request.flow, departure.header.total);
}

std::uint64_t OfiSendChannel::chunk_limit(std::uint64_t cookie) const {
  const std::uint64_t allowed = nic_.context().settings.chunk_bytes;
  // What goes ahead of its receive is one chunk on the wire.
  if (!requests_[cookie].header.has_slot) return std::max<std::uint64_t>(facts_.settings.eager_bytes, 1);
  return nic_.engine().strict() ? std::min(allowed, kOrderedChunk) : allowed;
}

bool OfiSendChannel::start_chunk(const SendQueue::Chunk& chunk) {
  if (failed_ || !control_lost_.empty() || !send_owed() || under_way_ >= 2 * kMaxPayloads) return false;
  SendRequest& request = requests_[chunk.cookie];
  const bool whole = chunk.offset == 0 && chunk.length == request.header.total && chunk.length > 0;
  if (request.posted && whole && !facts_.identify) {
    return start_direct(request, static_cast<std::uint32_t>(chunk.cookie));
  }
  if (!has_credit()) return false;
  ChunkHeader header = request.header;
  header.offset = chunk.offset;
  header.length = static_cast<std::uint32_t>(chunk.length);
  // The wire cannot say larger numbers.
  const bool sayable = request.flow.identity.number < MessageIdentity::kNumbers;
  if (chunk.offset == 0 && sayable && facts_.identify) header.identity = request.flow.identity;
  const bool is_inline = chunk.length <= most_inline_;
  std::array<std::byte, ChunkFrame::kMost> front;
  const std::size_t front_bytes = serialize_front(
      facts_.ends.front().channel, header, is_inline ? std::nullopt : std::optional(payloads_sent_), std::span(front));
  std::byte* const data = request.data + chunk.offset;
  const std::span<const std::byte> behind(data, is_inline ? chunk.length : 0);
  const auto cookie = static_cast<std::uint32_t>(chunk.cookie);
  const auto sent = rails_.front()->send_frame(facts_.ends.front().address, std::span(front).first(front_bytes), behind,
                                               *this, cookie);
  if (!sent) on_failure(sent.error());
  if (!sent || *sent == Exchange::Sent::kNoRoom) return false;
  ++frames_sent_;
  injected_ = *sent == Exchange::Sent::kDone;
  nic_.counters().frames.fetch_add(1, std::memory_order_relaxed);
  request.unsent -= chunk.length;
  bytes_under_way_ += chunk.length;
  ++request.under_way;
  ++under_way_;
  if (!is_inline) {
    const std::size_t rail = rail_of(payloads_sent_, rails_.size());
    const std::uint64_t tag = payload_tag(facts_.ends[rail].channel.number, payloads_sent_++);
    owed_ = Owed{{tag, data, chunk.length, Memory::descriptor(*request.mr, rail)}, cookie, rail};
    ++request.under_way;
    ++under_way_;
    nic_.counters().payloads.fetch_add(1, std::memory_order_relaxed);
    send_owed();
  }
  if (*sent == Exchange::Sent::kDone) on_sent(cookie, behind.size());
  return true;
}

// One message of the fabric's, straight to where it belongs: that it came says all that a frame would.
bool OfiSendChannel::start_direct(SendRequest& request, std::uint32_t cookie) {
  const std::size_t rail = rail_of(request.header.seq, rails_.size());
  const Facts::End& end = facts_.ends[rail];
  const std::uint64_t tag = direct_tag(end.channel.number, request.header.slot);
  const Exchange::Payload payload{tag, request.data, request.header.total, Memory::descriptor(*request.mr, rail)};
  const auto sent = rails_[rail]->send_payload(end.address, payload, *this, cookie);
  if (!sent) on_failure(sent.error());
  if (!sent || !*sent) return false;
  ++directs_sent_;
  request.unsent = 0;
  ++request.under_way;
  ++under_way_;
  bytes_under_way_ += request.header.total;
  nic_.counters().direct.fetch_add(1, std::memory_order_relaxed);
  return true;
}

// A provider keeps the order, so a frame behind the injected ones tells of them. It is for no channel: nobody takes it.
void OfiSendChannel::drain_injected() {
  if (!injected_ || failed_ || !control_lost_.empty() || peer_left_) return;
  Exchange& exchange = *rails_.front();
  std::array<std::byte, FrameHead::kSize> head;
  FrameHead{FrameHead::Kind::kHello, {}, 0}.serialize_to(head);
  const TimePoint start = nic_.context().clock.now();
  const auto in_time = [&] { return nic_.context().clock.now() - start < kDrain; };
  const auto waits = [&] { return !failed_ && in_time(); };
  while (!draining_ && waits()) {
    const auto posted = exchange.post_frame(facts_.ends.front().address, head, {}, *this, kDrained);
    if (!posted) return;
    draining_ = *posted;
    exchange.poll();
  }
  while (draining_ && waits()) exchange.poll();
}

// False: there is still one.
bool OfiSendChannel::send_owed() {
  if (!owed_) return true;
  const std::size_t rail = owed_->rail;
  const auto sent = rails_[rail]->send_payload(facts_.ends[rail].address, owed_->payload, *this, owed_->cookie);
  if (!sent) on_failure(sent.error());
  if (!sent || !*sent) return false;
  owed_.reset();
  return true;
}

std::uint64_t OfiSendChannel::ahead_bytes() { return bytes_under_way_; }

void OfiSendChannel::on_sent(std::uint32_t cookie, std::size_t bytes) {
  if (cookie == kDrained) {
    draining_ = false;
    return;
  }
  ++progress_marks_;
  --under_way_;
  bytes_under_way_ -= bytes;
  SendRequest& request = requests_[cookie];
  if (--request.under_way == 0 && request.unsent == 0) finish(request);
}

void OfiSendChannel::finish(SendRequest& request) {
  traffic_->sent(request.size);
  request.mr = nullptr;
  request.done.store(true, std::memory_order_release);
}

void OfiSendChannel::on_failure(const Error& error) {
  if (failed_) return;
  failed_ = Error{error.code, fmt::format("ofi: sending to {}: {}", facts_.shown, error.message)};
  nic_.context().log.warn(failed_->message);
}

void OfiSendChannel::fail_with(ErrorCode code, const std::string& what) {
  if (failed_) return;
  failed_ = Error{code, fmt::format("ofi: sending to {}: {}", facts_.shown, what)};
  nic_.context().log.warn(failed_->message);
}

std::optional<Error> OfiSendChannel::check_stall() {
  if (polls_ % kLivenessPolls != 0) return std::nullopt;
  const auto over = stall_.check(true, progress_marks_, [this] {
    return Stall{facts_.shown, "has taken no data", fmt::format("{} sends wait for its receives", matcher_.waiting())};
  });
  if (over) fail_with(ErrorCode::kRemote, *over);
  return failed_;
}

}  // namespace clustar::transport::ofi
