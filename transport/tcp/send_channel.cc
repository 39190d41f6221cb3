#include "transport/tcp/send_channel.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "transport/api/context.h"
#include "transport/tcp/host_memory.h"

namespace clustar::transport::tcp {

TcpSendChannel::TcpSendChannel(Nic& nic, Facts facts, net::Socket control, std::vector<net::Socket> data)
    : SendChannel(facts.peer),
      nic_(nic),
      anchor_(std::make_shared<MemoryAnchor<TcpSendChannel>>(nic.engine().mutex(), this)),
      control_(std::move(control)),
      peer_(std::move(facts.shown)),
      identify_(facts.identify),
      has_class_(facts.traffic_class >= 0),
      traffic_(nic.traffic().open(facts.traffic_class, facts.peer.host, facts.peer.rank)),
      matcher_(nic.context().settings.sending()),
      requests_(this, kMaxRequests),
      stall_("tcp", nic.context().settings.stall_timeout, nic.context().clock, nic.context().log) {
  if (!has_class_) net::set_traffic_class(control_, nic.context().settings.classes.traffic_class(0));
  for (net::Socket& socket : data) data_.emplace_back(std::move(socket));
  connection_ = nic_.engine().attach(*this, facts.connection);
}

TcpSendChannel::~TcpSendChannel() {
  ask_kernel();
  nic_.engine().detach(connection_);
  const std::lock_guard lock(nic_.engine().mutex());
  anchor_->let_go();
}

class TcpSendChannel::SendMr final : public Mr {
 public:
  SendMr(const gdr::MemoryRef& memory, std::shared_ptr<MemoryAnchor<TcpSendChannel>> anchor)
      : Mr(memory), anchor_(std::move(anchor)) {}
  ~SendMr() override { anchor_->deregister(*this); }

 private:
  std::shared_ptr<MemoryAnchor<TcpSendChannel>> anchor_;
};

Result<std::unique_ptr<Mr>> TcpSendChannel::reg_mr(const gdr::MemoryRef& memory) {
  if (const auto allowed = check_host(memory); !allowed) return tl::unexpected(allowed.error());
  return std::make_unique<SendMr>(memory, anchor_);
}

void TcpSendChannel::on_deregister(const Mr& mr) {
  const auto uses = [&](const SendRequest& request) { return request.mr == &mr; };
  if (failed_ || !requests_.any_of(uses)) return;
  failed_ = Error{ErrorCode::kInvalidUsage,
                  fmt::format("tcp: sending to {}: memory was deregistered while sends used it", peer_)};
  nic_.context().log.warn(failed_->message);
}

Result<Request*> TcpSendChannel::send(const Mr& mr, std::size_t offset, std::size_t length, int tag,
                                      const FlowTag& flow) {
  const std::unique_lock lock(nic_.engine().mutex(), std::try_to_lock);
  if (!lock) return nullptr;
  if (failed_) return tl::unexpected(*failed_);  // first: requests that failed make no room
  if (!requests_.has_room()) return nullptr;
  // Looked at before it is needed, too: thousands of unread clear-to-sends at once would hold up one message.
  if (matcher_.needs_clear(length) || ++sends_ % kControlSends == 0) {
    read_control();
    if (failed_) return tl::unexpected(*failed_);
  }
  SendRequest& request = requests_.take();
  request.done.store(false, std::memory_order_relaxed);
  request.mr = &mr;
  request.data = mr.memory().address + offset;
  request.flow = flow;
  if (const auto departure = matcher_.submit(request.index, tag, length)) {
    depart(*departure);
  } else {
    traffic_->waited();
  }
  if (length <= kGatherMessage && nic_.deferred_bytes() < kGatherBytes && nic_.deferred_messages() < kGatherCount) {
    nic_.defer(length);
  } else {
    nic_.pump();
  }
  return &request;
}

Result<Progress> TcpSendChannel::test(SendRequest& request) {
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

void TcpSendChannel::progress() {
  if (failed_) return;
  ++polls_;
  if (polls_ % kKernelPolls == 0) ask_kernel();
  if (matcher_.waiting() > 0 || polls_ % kLivenessPolls == 0) read_control();
  end_of_pump();
  if (failed_) return;
  nic_.engine().unblock(connection_);
  nic_.pump();
}

void TcpSendChannel::read_control() {
  while (!failed_) {
    const net::IoResult got = net::read_some(control_.fd(), std::span(control_in_).subspan(control_have_));
    if (got.kind == net::IoResult::Kind::kWouldBlock) return;
    if (got.kind == net::IoResult::Kind::kClosed) {
      fail_with(ErrorCode::kRemote, "the peer closed the connection or its process ended");
      return;
    }
    if (got.kind == net::IoResult::Kind::kError) {
      fail_with(ErrorCode::kRemote, "control connection: " + describe_errno(got.error));
      return;
    }
    control_have_ += got.bytes;
    ++progress_marks_;
    std::size_t used = 0;
    for (; control_have_ - used >= ClearToSend::kSize; used += ClearToSend::kSize) {
      const auto clear = ClearToSend::parse(std::span(control_in_).subspan(used).first<ClearToSend::kSize>());
      const auto result =
          clear ? matcher_.on_clear_to_send(*clear) : SendMatcher::ClearResult{SendMatcher::Verdict::kProtocolError};
      if (result.verdict == SendMatcher::Verdict::kProtocolError) {
        fail_with(ErrorCode::kRemote, "the peer sent a clear-to-send that fits no receive");
        return;
      }
      if (result.verdict == SendMatcher::Verdict::kDeparture) depart(result.departure);
    }
    std::memmove(control_in_.data(), control_in_.data() + used, control_have_ - used);
    control_have_ -= used;
  }
}

void TcpSendChannel::depart(const SendMatcher::Departure& departure) {
  SendRequest& request = requests_[departure.cookie];
  request.header = departure.header;
  request.unsent = departure.header.total;
  request.size = departure.header.total;
  nic_.engine().push(connection_, departure.cookie, request.flow, departure.header.total);
}

// Small messages keep to the first socket, which the receiver looks at first; long ones take turns. A chunk that has
// begun to leave must leave whole before another may use its socket.
ChunkWriter* TcpSendChannel::writer_for(bool small) {
  const std::size_t start = small ? 0 : next_socket_;
  for (std::size_t i = 0; i < data_.size(); ++i) {
    const std::size_t at = (start + i) % data_.size();
    ChunkWriter& writer = data_[at];
    if (!writer.takes_more()) continue;
    if (!small) next_socket_ = (at + 1) % data_.size();
    return &writer;
  }
  return nullptr;
}

// A message spreads over all sockets, so that the first is complete first; a message per socket would have several
// share the line and all arrive late.
std::uint64_t TcpSendChannel::chunk_limit(std::uint64_t cookie) const {
  const std::uint64_t allowed = nic_.context().settings.chunk_bytes;
  const ChunkHeader& header = requests_[cookie].header;
  // What goes ahead of its receive is one chunk on the wire.
  if (!header.has_slot) return allowed;
  const std::uint64_t most = nic_.engine().strict() ? std::min(allowed, nic_.engine().chunk()) : allowed;
  if (data_.size() == 1) return most;
  const std::uint64_t share = (header.total + data_.size() - 1) / data_.size();
  return std::clamp(share, std::min(kSmall, most), most);
}

bool TcpSendChannel::give_class(ChunkWriter& writer, std::uint8_t level) {
  if (has_class_) return true;
  // A flow whose first turn is a floor's has waited behind all others: it is last for switches, too.
  const bool first_is_floor = level == LevelClasses::kFloorLevel && writer.traffic_class() < 0;
  const std::size_t its_level = first_is_floor ? LevelClasses::kLevels - 1 : level;
  const int traffic_class = nic_.context().settings.classes.traffic_class(its_level);
  if (traffic_class < 0 || traffic_class == writer.traffic_class()) return true;
  if (!writer.empty()) flush(writer);
  if (failed_ || !writer.empty()) return false;
  writer.set_traffic_class(traffic_class);
  return true;
}

bool TcpSendChannel::start_chunk(const SendQueue::Chunk& chunk) {
  if (failed_) return false;
  const SendRequest& request = requests_[chunk.cookie];
  ChunkWriter* writer = writer_for(request.header.total <= kSmall);
  if (writer == nullptr || !give_class(*writer, chunk.level)) return false;
  ChunkHeader header = request.header;
  header.offset = chunk.offset;
  header.length = static_cast<std::uint32_t>(chunk.length);
  // The wire cannot say larger numbers.
  const bool sayable = request.flow.identity.number < MessageIdentity::kNumbers;
  if (chunk.offset == 0 && sayable && identify_) header.identity = request.flow.identity;
  writer->add(header, request.data + chunk.offset, static_cast<std::uint32_t>(chunk.cookie));
  // Short chunks of a long message share a system call, too: the pump's end flushes them.
  const bool gathers = request.header.total <= kGatherMessage || nic_.engine().strict();
  if (!gathers || !writer->takes_more()) flush(*writer);
  return true;
}

std::uint64_t TcpSendChannel::ahead_bytes() {
  std::uint64_t sum = 0;
  for (const ChunkWriter& writer : data_) sum += writer.unsent_bytes();
  return sum;
}

void TcpSendChannel::end_of_pump() {
  for (ChunkWriter& writer : data_) {
    if (!writer.empty() && !failed_) flush(writer);
  }
}

void TcpSendChannel::flush(ChunkWriter& writer) {
  const net::IoResult written = writer.flush();
  if (written.kind == net::IoResult::Kind::kError) {
    fail_with(ErrorCode::kRemote, "data connection: " + describe_errno(written.error));
    return;
  }
  if (written.bytes > 0) ++progress_marks_;
  while (const auto sent = writer.take_sent()) finish_chunk(*sent);
}

void TcpSendChannel::finish_chunk(const ChunkWriter::Sent& sent) {
  SendRequest& request = requests_[sent.cookie];
  request.unsent -= sent.bytes;
  if (request.unsent > 0) return;
  traffic_->sent(request.size);
  request.mr = nullptr;
  request.done.store(true, std::memory_order_release);
}

void TcpSendChannel::fail_with(ErrorCode code, const std::string& what) {
  if (failed_) return;
  failed_ = Error{code, fmt::format("tcp: sending to {}: {}", peer_, what)};
  nic_.context().log.warn(failed_->message);
}

// What the kernel sent again, and what came with CE, by the peer's word: now and then, and in the end.
void TcpSendChannel::ask_kernel() {
  std::uint64_t retransmitted = 0, marked = 0;
  for (const ChunkWriter& writer : data_) {
    const net::TcpCounts counts = net::tcp_counts(writer.socket());
    retransmitted += counts.retransmitted;
    marked += counts.marked;
  }
  traffic_->kernel(retransmitted, marked);
}

std::optional<Error> TcpSendChannel::check_stall() {
  if (polls_ % kLivenessPolls != 0) return std::nullopt;
  const auto over = stall_.check(true, progress_marks_, [this] {
    return Stall{peer_, "has taken no data", fmt::format("{} sends wait for its receives", matcher_.waiting())};
  });
  if (over) fail_with(ErrorCode::kRemote, *over);
  return failed_;
}

}  // namespace clustar::transport::tcp
