#include "transport/tcp/recv_channel.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "transport/base/copies.h"
#include "transport/tcp/host_memory.h"

namespace clustar::transport::tcp {

TcpRecvChannel::TcpRecvChannel(Nic& nic, const SharedSettings& sender, net::Socket control,
                               std::vector<net::Socket> data, PeerInfo peer, std::string shown, int traffic_class)
    : RecvChannel(peer),
      nic_(nic),
      sender_(sender),
      control_(std::move(control)),
      peer_(std::move(shown)),
      traffic_(nic.traffic().open(traffic_class, peer.host, peer.rank)),
      matcher_(sender),
      placements_(data.size()),
      held_(data.size(), false),
      stall_("tcp", nic.context().settings.stall_timeout, nic.context().clock, nic.context().log) {
  for (net::Socket& socket : data) readers_.emplace_back(std::move(socket));
  for (std::uint32_t i = 0; i < requests_.size(); ++i) {
    requests_[i].channel = this;
    requests_[i].group = i;
  }
}

Result<std::unique_ptr<Mr>> TcpRecvChannel::reg_mr(const gdr::MemoryRef& memory) {
  if (const auto allowed = check_host(memory); !allowed) return tl::unexpected(allowed.error());
  return std::make_unique<Mr>(memory);
}

Result<Request*> TcpRecvChannel::flush(std::span<const RecvPart>) { return nullptr; }

Result<Request*> TcpRecvChannel::recv(std::span<const RecvPart> parts) {
  if (const auto checked = ReceiveGroups::check("tcp", parts); !checked) return tl::unexpected(checked.error());
  if (failed_) return tl::unexpected(*failed_);
  std::array<RecvMatcher::Part, kMaxRecvParts> wanted;
  for (std::size_t i = 0; i < parts.size(); ++i) wanted[i] = {parts[i].tag, parts[i].length};
  const auto posted = matcher_.post(std::span(wanted).first(parts.size()));
  if (!posted) return nullptr;
  RecvRequest& request = requests_[posted->group];
  for (std::size_t i = 0; i < parts.size(); ++i) {
    request.targets[i] = parts[i].mr == nullptr ? nullptr : parts[i].mr->memory().address + parts[i].offset;
  }
  for (const auto& match : *posted->early) copy_early(posted->group, match);
  announce(*posted->clears);
  return &request;
}

void TcpRecvChannel::copy_early(std::uint32_t group, const RecvMatcher::EarlyMatch& match) {
  if (match.bytes > 0) {
    std::memcpy(requests_[group].targets[match.part], early_[match.early].data(), match.bytes);
    count_copy(Copy::kEarly, match.bytes);
  }
  matcher_.release_early(match.early);
}

// A sender with a long message waits for this. A small message needs no permission until the window is used up, so what
// a small message is likely to fill waits for company, for a bounded time: otherwise each small message would cost a
// system call here and a packet on the way. NCCL posts receives as long as a message may get, so what came last tells
// more about the next message than its receive's length.
void TcpRecvChannel::announce(const std::vector<ClearToSend>& clears) {
  if (!control_open_) return;
  if (control_out_.empty()) {
    clears_due_ = TimePoint::max();
    held_bytes_ = 0;
  }
  bool now = sender_.eager_bytes == 0;
  bool maybe_long = false;
  for (const ClearToSend& clear : clears) {
    const std::size_t at = control_out_.size();
    control_out_.resize(at + ClearToSend::kSize);
    clear.serialize_to(std::span(control_out_).subspan(at).first<ClearToSend::kSize>());
    held_bytes_ += std::min<std::uint64_t>(clear.length, sender_.eager_bytes);
    maybe_long = maybe_long || clear.length > sender_.eager_bytes;
  }
  now = now || (maybe_long && eager_run_ < kEagerRun);
  clears_due_ = std::min(clears_due_, nic_.context().clock.now() + (maybe_long ? kLazyTime : kLazySmallTime));
  // Of the sender's window, this much it may believe to be in use although it is not.
  const bool room = control_out_.size() < kLazyCount * ClearToSend::kSize && held_bytes_ < sender_.window_bytes / 4;
  if (!now && room) return;
  clears_due_ = TimePoint::min();
  flush_clears();
}

void TcpRecvChannel::flush_clears() {
  if (control_out_.empty() || !control_open_) return;
  if (clears_due_ != TimePoint::min() && nic_.context().clock.now() < clears_due_) return;
  const net::IoResult sent = net::write_some(control_.fd(), std::span<const std::byte>(control_out_));
  if (sent.kind == net::IoResult::Kind::kBytes) {
    control_out_.erase(control_out_.begin(), control_out_.begin() + static_cast<std::ptrdiff_t>(sent.bytes));
  } else if (sent.kind == net::IoResult::Kind::kError) {
    on_control_error(sent.error);
  }
}

// A reset is how a sender that closed looks like from here; its last bytes are still ours to read. Anything else is the
// kernel's one and only report that the host does not answer.
void TcpRecvChannel::on_control_error(int error) {
  control_open_ = false;
  if (error != ECONNRESET && error != EPIPE) fail_with("the peer's host does not answer: " + describe_errno(error));
}

Result<Progress> TcpRecvChannel::test(std::uint32_t group) {
  nic_.pump_deferred();
  if (!matcher_.complete(group)) progress();
  if (matcher_.complete(group)) {
    matcher_.release(group);
    return Progress{true, matcher_.sizes(group), {}, matcher_.messages(group)};
  }
  if (failed_) return tl::unexpected(*failed_);
  if (const auto stalled = check_stall()) return tl::unexpected(*stalled);
  return Progress{};
}

void TcpRecvChannel::progress() {
  if (failed_) return;
  ++polls_;
  drain(0);
  const bool look_everywhere = matcher_.partial() > 0 || polls_ < hot_until_ || polls_ % kIdleSocketPolls == 0;
  for (std::size_t i = 1; i < readers_.size() && look_everywhere; ++i) drain(i);
  flush_clears();
  if (failed_) return;
  if (polls_ % kLivenessPolls == 0) check_control();
  if (failed_) return;
  const bool all_closed =
      std::all_of(readers_.begin(), readers_.end(), [](const ChunkReader& r) { return r.closed(); });
  if (all_closed && matcher_.outstanding() > 0) {
    fail_with(fmt::format("the peer closed the connection or its process ended, with {} receives outstanding",
                          matcher_.outstanding()));
  }
}

void TcpRecvChannel::drain(std::size_t socket) {
  ChunkReader& reader = readers_[socket];
  if (held_[socket] && !on_header(socket)) return;
  for (int chunks = 0; chunks < kChunksPerPoll && !failed_;) {
    switch (reader.step()) {
      case ChunkReader::Step::kHeader:
        if (!on_header(socket)) return;
        break;
      case ChunkReader::Step::kChunk:
        on_chunk(socket);
        ++chunks;
        break;
      case ChunkReader::Step::kWouldBlock:
      case ChunkReader::Step::kClosed: return;
      case ChunkReader::Step::kBroken: fail_with(reader.error()); return;
    }
  }
}

// False: nothing can be done with this socket now.
bool TcpRecvChannel::on_header(std::size_t socket) {
  if (socket > 0) hot_until_ = polls_ + kHotPolls;
  ChunkReader& reader = readers_[socket];
  const RecvMatcher::Placement placement = matcher_.on_header(reader.header());
  placements_[socket] = placement;
  held_[socket] = placement.kind == RecvMatcher::Placement::Kind::kWait;
  switch (placement.kind) {
    case RecvMatcher::Placement::Kind::kPart: {
      std::byte* target = requests_[placement.group].targets[placement.part];
      reader.set_target(target == nullptr ? nullptr : target + placement.offset, placement.keep);
      return true;
    }
    case RecvMatcher::Placement::Kind::kEarly:
      if (placement.early >= early_.size()) early_.resize(placement.early + 1);
      early_[placement.early].resize(reader.header().length);
      reader.set_target(early_[placement.early].data(), placement.keep);
      nic_.counters().early_messages.fetch_add(1, std::memory_order_relaxed);
      return true;
    case RecvMatcher::Placement::Kind::kWait: return false;
    case RecvMatcher::Placement::Kind::kProtocolError:
      fail_with("a chunk arrived that fits no receive: " + reader.header().to_string());
      return false;
  }
  return false;
}

void TcpRecvChannel::on_chunk(std::size_t socket) {
  const ChunkHeader& header = readers_[socket].header();
  matcher_.on_payload(placements_[socket], header);
  std::uint32_t group = 0;
  while (const auto match = matcher_.take_late_match(&group)) copy_early(group, *match);
  eager_run_ = header.total > sender_.eager_bytes ? 0 : eager_run_ + 1;
  header.offset + header.length == header.total ? traffic_->received(header.length)
                                                : traffic_->received_part(header.length);
}

// Nothing is expected here; what there is to learn is that the peer's host is gone.
void TcpRecvChannel::check_control() {
  if (!control_open_) {
    check_lost_control(nic_.context().clock.now());
    return;
  }
  std::array<std::byte, 16> unexpected;
  const net::IoResult got = net::read_some(control_.fd(), unexpected);
  if (got.kind == net::IoResult::Kind::kBytes) {
    fail_with("the peer sent bytes on the control connection, which is not part of the protocol");
  } else if (got.kind == net::IoResult::Kind::kClosed) {
    control_open_ = false;
  } else if (got.kind == net::IoResult::Kind::kError) {
    on_control_error(got.error);
  }
}

// Control gone, data connections open, and nothing coming: the peer rebooted, or something between dropped the
// connection. The data connections would never tell, since nothing is written to them here.
void TcpRecvChannel::check_lost_control(TimePoint now) {
  const std::uint64_t bytes = bytes_read();
  if (!mark_ || bytes != bytes_at_mark_) {
    mark_ = now;
    bytes_at_mark_ = bytes;
  } else if (now - *mark_ > kLostControlTimeout) {
    fail_with("the control connection was reset or closed, and nothing comes on the others");
  }
}

std::uint64_t TcpRecvChannel::bytes_read() const {
  std::uint64_t sum = 0;
  for (const ChunkReader& reader : readers_) sum += reader.bytes_read();
  return sum;
}

void TcpRecvChannel::fail_with(const std::string& what) {
  if (failed_) return;
  failed_ = Error{ErrorCode::kRemote, fmt::format("tcp: receiving from {}: {}", peer_, what)};
  nic_.context().log.warn(failed_->message);
}

std::optional<Error> TcpRecvChannel::check_stall() {
  if (polls_ % kLivenessPolls != 0) return std::nullopt;
  const auto over = stall_.check(true, bytes_read(), [this] {
    return Stall{peer_, "has sent nothing", fmt::format("{} receives outstanding", matcher_.outstanding())};
  });
  if (over) fail_with(*over);
  return failed_;
}

}  // namespace clustar::transport::tcp
