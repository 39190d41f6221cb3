#include "libfabric_shim/rdm/recv_channel.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "transport/base/copies.h"

namespace clustar::transport::ofi {
namespace {

using Kind = tcp::RecvMatcher::Placement::Kind;

}  // namespace

Result<std::unique_ptr<OfiRecvChannel>> OfiRecvChannel::open(Nic& nic, Rails rails, Facts facts, net::Socket control) {
  std::unique_ptr<OfiRecvChannel> made(new OfiRecvChannel(nic, std::move(rails), std::move(facts), std::move(control)));
  const std::lock_guard lock(nic.engine().mutex());
  for (std::size_t rail = 0; rail < made->rails_.size() && !made->failed_; ++rail) {
    const auto name = made->rails_[rail]->open_channel(*made);
    if (!name) {
      // Its destructor would wait for the lock.
      made->failed_ = name.error();
    } else {
      made->channels_[rail] = *name;
    }
  }
  return made;
}

OfiRecvChannel::OfiRecvChannel(Nic& nic, Rails rails, Facts facts, net::Socket control)
    : RecvChannel(facts.peer),
      nic_(nic),
      rails_(std::move(rails)),
      facts_(std::move(facts)),
      anchor_(std::make_shared<MemoryAnchor<OfiRecvChannel>>(nic.engine().mutex(), this)),
      control_(std::move(control)),
      channels_(rails_.size()),
      traffic_(nic.traffic().open(facts_.traffic_class, facts_.peer.host, facts_.peer.rank)),
      matcher_(nic.context().settings.receiving),
      clears_(nic.context().settings.receiving),
      most_ahead_(std::min<std::uint64_t>(nic.domain().info().ep_attr->max_msg_size, WasteMemory::kMost)),
      stall_("ofi", nic.context().settings.stall_timeout, nic.context().clock, nic.context().log) {
  ahead_.fill(kNone);
  for (std::uint32_t i = 0; i < requests_.size(); ++i) {
    requests_[i].channel = this;
    requests_[i].group = i;
  }
}

// The control connection closes last: the sender hears of the end when no payload of its is asked for any more.
OfiRecvChannel::~OfiRecvChannel() {
  const std::lock_guard lock(nic_.engine().mutex());
  anchor_->let_go();
  close_rails();
  check_control();
  for (const auto& exchange : rails_) exchange->leave_ahead(*this);
  nic_.settle(rails_, *this, peer_died());
  std::array<std::byte, Note::kSize> farewell;
  Note{Note::Kind::kFarewell, taken_}.serialize_to(farewell);
  if (control_open_) net::write_some(control_.fd(), std::span<const std::byte>(farewell));
}

void OfiRecvChannel::close_rails() {
  std::vector<Exchange::Way> ways;
  for (std::size_t rail = 0; rail < rails_.size(); ++rail) ways.push_back({rails_[rail], channels_[rail].number});
  for (std::size_t rail = 0; rail < rails_.size(); ++rail) rails_[rail]->close_channel(channels_[rail], ways);
}

Result<std::unique_ptr<Mr>> OfiRecvChannel::reg_mr(const gdr::MemoryRef& memory) {
  return Memory::make(nic_, memory, anchor_);
}

void OfiRecvChannel::on_deregister(const Mr& mr) {
  const auto uses = [&](const RecvRequest& request) {
    return request.open && std::ranges::find(request.memory, &mr) != request.memory.end();
  };
  if (std::ranges::none_of(requests_, uses)) return;
  check_control();  // whether the peer is gone
  fail_with("memory was deregistered while receives used it");
  for (const auto& exchange : rails_) exchange->leave_ahead(*this);
  nic_.settle(rails_, *this, peer_died());
}

// The driver's flush waits for writes on their way only, so it is over when it returns.
Result<Request*> OfiRecvChannel::flush(std::span<const RecvPart> parts) {
  for (const RecvPart& part : parts) {
    const int device = part.mr == nullptr ? -1 : Memory::device(*part.mr);
    if (device < 0) continue;
    if (const auto flushed = nic_.context().gpu_driver->flush(device); !flushed) {
      return fail(flushed.error().code,
                  fmt::format("ofi: {}; CLUSTAR_GDR=off keeps NCCL's buffers in host memory", flushed.error().message));
    }
  }
  return nullptr;
}

Result<bool> OfiRecvChannel::greeted() {
  const std::unique_lock lock(nic_.engine().mutex(), std::try_to_lock);
  if (!lock) return false;
  for (const auto& exchange : rails_) exchange->poll();
  if (++polls_ % kLivenessPolls == 0) check_control();
  if (failed_) return tl::unexpected(*failed_);
  const bool all_came = frames_ >= rails_.size();
  if (!control_open_ && !all_came) {
    return fail(ErrorCode::kRemote, fmt::format("ofi: {} gave its connection up before it was ready", facts_.shown));
  }
  return all_came;
}

Result<Request*> OfiRecvChannel::recv(std::span<const RecvPart> parts) {
  if (const auto checked = ReceiveGroups::check("ofi", parts); !checked) return tl::unexpected(checked.error());
  const std::unique_lock lock(nic_.engine().mutex(), std::try_to_lock);
  if (!lock) return nullptr;
  if (failed_) return tl::unexpected(*failed_);
  std::array<tcp::RecvMatcher::Part, kMaxRecvParts> wanted;
  for (std::size_t i = 0; i < parts.size(); ++i) wanted[i] = {parts[i].tag, parts[i].length};
  const auto posted = matcher_.post(std::span(wanted).first(parts.size()));
  if (!posted) return nullptr;
  RecvRequest& request = requests_[posted->group];
  request.open = true;
  request.ahead = 0;
  request.memory.fill(nullptr);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    request.memory[i] = parts[i].mr;
    request.targets[i] = parts[i].mr == nullptr ? nullptr : parts[i].mr->memory().address + parts[i].offset;
  }
  for (const auto& match : *posted->early) copy_early(posted->group, match);
  take_held();
  if (failed_) return &request;
  if (control_open_) {
    post_ahead(posted->group, *posted->clears);
    clears_.add(*posted->clears, small_run_, receives_ahead_, nic_.context().clock.now());
  }
  say();
  return &request;
}

// Before the peer hears of the receive, so that its message finds it. What fits a frame mostly comes in one, unasked.
void OfiRecvChannel::post_ahead(std::uint32_t group, std::vector<ClearToSend>& clears) {
  RecvRequest& request = requests_[group];
  for (std::size_t part = 0; part < clears.size(); ++part) {
    ClearToSend& clear = clears[part];
    if (clear.length <= nic_.context().settings.receiving.eager_bytes || clear.length > most_ahead_) continue;
    if (!matcher_.awaits(clear)) continue;
    if (not_ahead_ > 0) {
      --not_ahead_;
      continue;
    }
    const std::uint32_t cookie = take_cookie();
    Awaited& awaited = awaited_[cookie];
    awaited = {};
    awaited.ahead = true;
    awaited.placement.group = group;
    awaited.header.has_slot = true;
    awaited.header.tag = clear.tag;
    awaited.header.seq = clear.seq;
    awaited.header.slot = clear.slot;
    const std::size_t rail = rail_of(clear.seq, rails_.size());
    const auto posted =
        rails_[rail]->receive_ahead({direct_tag(channels_[rail].number, clear.slot), request.targets[part],
                                     clear.length, Memory::descriptor(*request.memory[part], rail)},
                                    *this, cookie);
    if (!posted) return on_failure(posted.error());
    if (!*posted) {
      free_awaited_.push_back(cookie);
      continue;
    }
    ++request.ahead;
    ++receives_ahead_;
    ahead_[clear.slot & 0xffff] = cookie;
    clear.slot |= kSlotPosted;
  }
}

void OfiRecvChannel::cancel_ahead(std::uint32_t slot) {
  const std::uint32_t cookie = std::exchange(ahead_[slot], kNone);
  if (cookie == kNone) return;
  not_ahead_ = kNotAhead;
  if (cancelling_++ == 0) cancels_since_ = nic_.context().clock.now();
  rails_[rail_of(awaited_[cookie].header.seq, rails_.size())]->cancel_receive(*this, cookie);
}

void OfiRecvChannel::on_cancelled(std::uint32_t cookie) {
  if (!awaited_[cookie].ahead) return;
  --requests_[awaited_[cookie].placement.group].ahead;
  --receives_ahead_;
  free_awaited_.push_back(cookie);
  if (ahead_[awaited_[cookie].header.slot & 0xffff] == cookie || cancelling_ == 0) return;  // the channel ends
  --cancelling_;
  cancels_since_ = nic_.context().clock.now();
}

// A request's memory is the provider's until it says otherwise.
void OfiRecvChannel::check_cancels() {
  if (cancelling_ == 0 || nic_.context().clock.now() - cancels_since_ < kCancels) return;
  fail_with(fmt::format("the provider did not end {} receives within {} s of being asked to", cancelling_,
                        std::chrono::duration_cast<std::chrono::seconds>(kCancels).count()));
}

bool OfiRecvChannel::on_reminder() {
  if (!failed_) say();
  return failed_ || !control_open_ || clears_.empty();
}

std::uint32_t OfiRecvChannel::take_cookie() {
  if (free_awaited_.empty()) {
    free_awaited_.push_back(static_cast<std::uint32_t>(awaited_.size()));
    awaited_.emplace_back();
  }
  const std::uint32_t cookie = free_awaited_.back();
  free_awaited_.pop_back();
  return cookie;
}

void OfiRecvChannel::copy_early(std::uint32_t group, const tcp::RecvMatcher::EarlyMatch& match) {
  if (match.bytes > 0) {
    std::memcpy(requests_[group].targets[match.part], early_[match.early].data(), match.bytes);
    count_copy(Copy::kEarly, match.bytes);
  }
  matcher_.release_early(match.early);
}

void OfiRecvChannel::on_frame(const FrameHead& head, std::span<const std::byte> bytes) {
  if (failed_) return;
  ++frames_;
  ++marks_;
  if (frames_ - told_ > kFrames) return fail_with("the peer sent more frames than it may");
  if (!held_.empty() || !take_frame(head, bytes)) held_.push_back({head, {bytes.begin(), bytes.end()}});
}

void OfiRecvChannel::take_held() {
  while (!held_.empty() && !failed_ && take_frame(held_.front().head, held_.front().bytes)) held_.pop_front();
}

bool OfiRecvChannel::take_frame(const FrameHead& head, std::span<const std::byte> bytes) {
  if (head.kind != FrameHead::Kind::kHello) {
    const auto frame = ChunkFrame::parse(head, bytes);
    if (!frame) {
      fail_with("a frame arrived that is none");
      return true;
    }
    if (!take_chunk(head, frame->header, frame->payload)) return false;
  }
  ++taken_;
  tell_taken();
  return true;
}

bool OfiRecvChannel::take_chunk(const FrameHead& head, const ChunkHeader& header, std::span<const std::byte> payload) {
  const tcp::RecvMatcher::Placement placement = matcher_.on_header(header);
  switch (placement.kind) {
    case Kind::kWait: return false;
    case Kind::kProtocolError: fail_with("a chunk arrived that fits no receive: " + header.to_string()); return true;
    case Kind::kEarly:
      if (placement.early >= early_.size()) early_.resize(placement.early + 1);
      early_[placement.early].assign(payload.begin(), payload.end());
      nic_.counters().early_messages.fetch_add(1, std::memory_order_relaxed);
      on_payload(placement, header);
      return true;
    case Kind::kPart: break;
  }
  cancel_ahead(placement.slot);
  const RecvRequest& request = requests_[placement.group];
  std::byte* const target = request.targets[placement.part];
  if (head.kind != FrameHead::Kind::kAnnounced) {
    const Mr* const memory = request.memory[placement.part];
    if (placement.keep > 0 && memory->memory().kind != gdr::MemoryKind::kHost) {
      fail_with("a frame brought bytes for GPU memory, which come by themselves only");
      return true;
    }
    if (placement.keep > 0) std::memcpy(target + placement.offset, payload.data(), placement.keep);
    on_payload(placement, header);
    return true;
  }
  const std::uint32_t cookie = take_cookie();
  awaited_[cookie] = {placement, header};
  ++announced_;
  const std::size_t rail = rail_of(head.number, rails_.size());
  const auto asked =
      rails_[rail]->receive_payload({payload_tag(channels_[rail].number, head.number), target + placement.offset,
                                     header.length, Memory::descriptor(*request.memory[placement.part], rail)},
                                    *this, cookie);
  if (!asked) on_failure(asked.error());
  return true;
}

void OfiRecvChannel::on_received(std::uint32_t cookie, std::size_t bytes) {
  const Awaited awaited = awaited_[cookie];
  free_awaited_.push_back(cookie);
  ++marks_;
  if (awaited.ahead) return take_whole(awaited, bytes);
  --announced_;
  if (failed_) return;
  if (bytes != awaited.header.length) return fail_with("a payload arrived that is shorter than it was announced");
  on_payload(awaited.placement, awaited.header);
}

void OfiRecvChannel::take_whole(const Awaited& awaited, std::size_t bytes) {
  const std::uint32_t index = awaited.header.slot & 0xffff;
  --requests_[awaited.placement.group].ahead;
  --receives_ahead_;
  ++directs_;
  if (failed_) return;
  if (ahead_[index] == kNone) return fail_with("a message came twice");
  ahead_[index] = kNone;
  ChunkHeader header = awaited.header;
  header.total = bytes;
  header.length = static_cast<std::uint32_t>(bytes);
  const tcp::RecvMatcher::Placement placement = matcher_.on_header(header);
  if (placement.kind != Kind::kPart) return fail_with("a message came that fits no receive: " + header.to_string());
  on_payload(placement, header);
}

void OfiRecvChannel::on_payload(const tcp::RecvMatcher::Placement& placement, const ChunkHeader& header) {
  matcher_.on_payload(placement, header);
  std::uint32_t group = 0;
  while (const auto match = matcher_.take_late_match(&group)) copy_early(group, *match);
  small_run_ = header.total > nic_.context().settings.receiving.eager_bytes ? 0 : small_run_ + 1;
  header.offset + header.length == header.total ? traffic_->received(header.length)
                                                : traffic_->received_part(header.length);
}

void OfiRecvChannel::tell_taken() {
  if (taken_ - told_ < kTellTaken || !control_open_) return;
  told_ = taken_;
  clears_.add(Note{Note::Kind::kTaken, taken_});
  rails_.front()->remind(*this);
}

void OfiRecvChannel::say() {
  if (clears_.empty() || !control_open_) return;
  const net::IoResult sent = clears_.flush(control_, nic_.context().clock.now());
  if (sent.kind == net::IoResult::Kind::kError) on_control_lost(sent.error);
  if (!clears_.empty()) rails_.front()->remind(*this);
}

Result<Progress> OfiRecvChannel::test(std::uint32_t group) {
  const std::unique_lock lock(nic_.engine().mutex(), std::try_to_lock);
  if (!lock) return Progress{};
  const auto complete = [&] { return matcher_.complete(group) && requests_[group].ahead == 0; };
  if (!complete()) progress();
  if (complete()) {
    requests_[group].open = false;
    matcher_.release(group);
    return Progress{true, matcher_.sizes(group), {}, matcher_.messages(group)};
  }
  if (failed_) return tl::unexpected(*failed_);
  if (const auto stalled = check_stall()) return tl::unexpected(*stalled);
  return Progress{};
}

void OfiRecvChannel::progress() {
  if (failed_) return;
  ++polls_;
  for (const auto& exchange : rails_) exchange->poll();
  take_held();
  say();
  if (polls_ % kLivenessPolls == 0) {
    check_control();
    check_cancels();
  }
  if (!failed_ && !control_open_) check_lost_control();
}

// A farewell, or the end.
void OfiRecvChannel::check_control() {
  while (control_open_ && !failed_) {
    const net::IoResult got = net::read_some(control_.fd(), std::span(words_).subspan(words_have_));
    if (got.kind == net::IoResult::Kind::kWouldBlock) return;
    if (got.kind == net::IoResult::Kind::kClosed) control_open_ = false;
    if (got.kind == net::IoResult::Kind::kError) on_control_lost(got.error);
    if (got.kind != net::IoResult::Kind::kBytes) return;
    words_have_ += got.bytes;
    if (words_have_ < words_.size()) continue;
    words_have_ = 0;
    const auto note = Note::parse(words_);
    if (!note || note->kind != Note::Kind::kFarewell || farewell_) {
      return fail_with("the peer sent bytes on the control connection that are not part of the protocol");
    }
    farewell_ = note->count;
  }
}

// A reset is how a sender that closed or died looks like from here; what it sent may still come. Anything else is the
// kernel's one and only report that the host does not answer.
void OfiRecvChannel::on_control_lost(int error) {
  control_open_ = false;
  if (error != ECONNRESET && error != EPIPE) fail_with("the peer's host does not answer: " + describe_errno(error));
}

// The fabric never tells that a peer is gone.
void OfiRecvChannel::check_lost_control() {
  const bool all_came =
      farewell_ && frames_ + directs_ >= *farewell_ && held_.empty() && announced_ == 0 && cancelling_ == 0;
  const TimePoint now = nic_.context().clock.now();
  if (!quiet_since_ || marks_ != marks_at_quiet_) {
    quiet_since_ = now;
    marks_at_quiet_ = marks_;
  }
  if (!all_came && now - *quiet_since_ < (farewell_ ? kLastFrames : kLastOfTheDead)) return;
  fail_with(fmt::format("the peer closed the connection or its process ended, with {} receives outstanding",
                        matcher_.outstanding()));
}

void OfiRecvChannel::on_failure(const Error& error) {
  if (failed_) return;
  failed_ = Error{error.code, fmt::format("ofi: receiving from {}: {}", facts_.shown, error.message)};
  nic_.context().log.warn(failed_->message);
}

void OfiRecvChannel::fail_with(const std::string& what) { on_failure({ErrorCode::kRemote, what}); }

std::optional<Error> OfiRecvChannel::check_stall() {
  if (polls_ % kLivenessPolls != 0) return std::nullopt;
  const auto over = stall_.check(true, marks_, [this] {
    return Stall{facts_.shown, "has sent nothing", fmt::format("{} receives outstanding", matcher_.outstanding())};
  });
  if (over) fail_with(*over);
  return failed_;
}

}  // namespace clustar::transport::ofi
