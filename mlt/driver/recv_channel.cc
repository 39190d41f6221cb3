#include "mlt/driver/recv_channel.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "mlt/driver/identity.h"
#include "mlt/driver/last_words.h"
#include "transport/base/copies.h"
#include "transport/base/stream_copy.h"

namespace clustar::mlt::driver {

using transport::Progress;
using transport::RecvPart;
using transport::Request;

namespace {

// Receives from this size on are written past the caches: they are longer than what comes at a time is read.
constexpr std::size_t kStreamedBytes = 4096;

// For all connections of the device, a write to what is not in its Mr would be the end.
Result<void> check_device_parts(std::span<const RecvPart> parts) {
  for (const RecvPart& part : parts) {
    if (part.mr == nullptr || part.mr->memory().kind == gdr::MemoryKind::kHost) continue;
    const std::size_t room = part.mr->memory().length;
    if (part.offset <= room && part.length <= room - part.offset) continue;
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("mlt: {} bytes at offset {} of {} registered bytes of GPU memory; a part lies within them",
                            part.length, part.offset, room));
  }
  return {};
}

}  // namespace

MltRecvChannel::MltRecvChannel(std::shared_ptr<Engine> engine, net::Socket control, transport::PeerInfo peer,
                               std::string shown)
    : transport::RecvChannel(std::move(peer)),
      Connection(std::move(engine), std::move(control), "receiving from", std::move(shown)),
      groups_(this, kMaxGroups),
      flushes_(this, kMaxFlushes),
      part_of_(engine_.options().max_messages),
      staging_(engine_.options().max_staged),
      parity_(engine_.options().max_parity) {}

MltRecvChannel::~MltRecvChannel() {
  std::vector<std::byte> words;
  {
    const std::lock_guard lock(engine_.mutex());
    if (attached()) words = last_words();
    leave();
    count_copy(Copy::kPlaced, placed_);
  }
  net::write_last(control_, words, kLastWordsWait);
}

Result<std::unique_ptr<transport::Mr>> MltRecvChannel::reg_mr(const gdr::MemoryRef& memory) {
  return register_memory(memory);
}

Result<Request*> MltRecvChannel::recv(std::span<const RecvPart> parts) {
  if (const auto checked = transport::ReceiveGroups::check("mlt", parts); !checked) {
    return tl::unexpected(checked.error());
  }
  if (has_failed()) return tl::unexpected(error());
  if (const auto outside = check_device_parts(parts); !outside) return tl::unexpected(outside.error());
  if (!groups_.has_room()) return nullptr;
  Group& group = groups_.take();
  group.done.store(false, std::memory_order_relaxed);
  group.count = parts.size();
  group.missing.clear();
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const bool there = parts[i].mr != nullptr;
    std::byte* target = there ? parts[i].mr->memory().address + parts[i].offset : nullptr;
    const bool device = there && on_device(*parts[i].mr);
    group.parts[i] = {parts[i].mr, target, parts[i].offset, parts[i].length, parts[i].tag, device, {}};
    bytes += parts[i].length;
  }
  engine_.post(*this, group.index, bytes);
  return &group;
}

Result<bool> MltRecvChannel::poke(const std::atomic<bool>& done) {
  if (done.load(std::memory_order_acquire)) return true;
  engine_.poke(done);
  const bool failed = has_failed();  // before `done`: nothing becomes done after a failure
  if (done.load(std::memory_order_acquire)) return true;
  if (failed) return tl::unexpected(error());
  return false;
}

Result<Progress> MltRecvChannel::test(Group& group) {
  const auto done = poke(group.done);
  if (!done) return tl::unexpected(done.error());
  if (!*done) return Progress{};
  groups_.give_back(group);
  return Progress{true, std::span<const std::size_t>(group.sizes).first(group.count), group.missing,
                  std::span<const transport::ReceivedMessage>(group.messages).first(group.count)};
}

// Of host memory there is nothing to wait for: who wrote it was this process, or a device that is coherent with it.
Result<Request*> MltRecvChannel::flush(std::span<const RecvPart> parts) {
  const auto flushed = [](const RecvPart& part) {
    return part.mr != nullptr && part.length > 0 && on_device(*part.mr);
  };
  const auto count = std::ranges::count_if(parts, flushed);
  if (count == 0) return nullptr;
  if (has_failed()) return tl::unexpected(error());
  if (const auto outside = check_device_parts(parts); !outside) return tl::unexpected(outside.error());
  if (!flushes_.has_room() || static_cast<std::size_t>(count) > transport::kMaxRecvParts) {
    return fail(ErrorCode::kInvalidUsage,
                fmt::format("mlt: {} flushes of {} parts; {} of 1 to {} parts are allowed at a time on a channel, test "
                            "one until it is done",
                            flushes_.outstanding() + 1, count, kMaxFlushes, transport::kMaxRecvParts));
  }
  FlushRequest& flush = flushes_.take();
  flush.done.store(false, std::memory_order_relaxed);
  flush.count = static_cast<std::size_t>(count);
  std::ranges::copy_if(parts, flush.parts.begin(), flushed);
  engine_.post(*this, kFlush | flush.index, 0);
  return &flush;
}

Result<Progress> MltRecvChannel::test(FlushRequest& flush) {
  const auto done = poke(flush.done);
  if (!done) return tl::unexpected(done.error());
  if (!*done) return Progress{};
  flushes_.give_back(flush);
  return Progress{true, {}, {}};
}

void MltRecvChannel::submit_flush(FlushRequest& flush) {
  flush.submitted = true;
  for (const RecvPart& part : std::span(flush.parts).first(flush.count)) {
    engine_.writes()->flush(id(), {io_mr(*part.mr), part.offset, part.length});
  }
  engine_.writes()->wait(id(), kFlush | flush.index);
}

void MltRecvChannel::submit(std::uint32_t index, TimePoint now) {
  if (broken()) return;
  if ((index & kFlush) != 0) return submit_flush(flushes_[index & ~kFlush]);
  Group& group = groups_[index];
  group.submitted = true;
  group.open = static_cast<std::uint32_t>(group.count);
  ++outstanding_;
  for (std::uint32_t i = 0; i < group.count; ++i) {
    const auto length = static_cast<std::uint32_t>(std::min<std::size_t>(group.parts[i].length, kMaxMessageBytes));
    const auto receive = engine_.core().post(id(), group.parts[i].tag, length, now);
    if (!receive) {
      fail_with(ErrorCode::kInvalidUsage, fmt::format("tag {} is one more than the {} different ones of a connection",
                                                      group.parts[i].tag, engine_.options().max_tags));
      return;
    }
    part_of_[*receive] = {index, i};
    expect(*receive, group.parts[i]);
  }
  if (control_open_) return;
  offer_last_words(0);
  engine_.handle_events(now);  // a message of a peer that closed may be here already, whole
  fail_if_waiting();
}

void MltRecvChannel::expect(std::uint32_t receive, Part& part) {
  if (part.mr == nullptr) return;
  const std::uint32_t tag_seq = engine_.core().receiver(id()).tag_seq(receive);
  part.landing = engine_.expect(id(), part.tag, tag_seq, slice(part, 0, part.length));
}

io::MemorySlice MltRecvChannel::slice(const Part& part, std::size_t offset, std::size_t length) const {
  return {io_mr(*part.mr), part.offset + offset, length};
}

void MltRecvChannel::copy(std::uint32_t receive, std::size_t offset, std::span<const std::byte> bytes) {
  const PartRef where = part_of_[receive];
  const Part& part = groups_[where.group].parts[where.part];
  if (offset >= part.length || bytes.empty()) return;  // the message is longer than its receive
  if (bytes.data() == part.target + offset) return;
  const std::size_t length = std::min(bytes.size(), part.length - offset);
  if (part.device) {
    engine_.writes()->write(id(), slice(part, offset, length), bytes.first(length));
  } else if (part.length >= kStreamedBytes) {
    stream_copy(part.target + offset, bytes.data(), length);
  } else {
    std::memcpy(part.target + offset, bytes.data(), length);
  }
  placed_ += length;
}

std::span<std::byte> MltRecvChannel::staging(std::uint32_t buffer) {
  const std::size_t size = engine_.core().receiver(id()).staging_bytes();
  if (!staging_[buffer]) staging_[buffer] = std::make_unique_for_overwrite<std::byte[]>(size);
  return {staging_[buffer].get(), size};
}

bool MltRecvChannel::is_there(const Placement& placement, std::span<const std::byte> payload) const {
  if (placement.kind != Placement::Kind::kPlace) return false;
  const PartRef where = part_of_[placement.id];
  return payload.data() == groups_[where.group].parts[where.part].target + placement.offset;
}

void MltRecvChannel::place(const Placement& placement, std::span<const std::byte> payload, bool placed) {
  // A writer says twice where to: to the device, and to us. Memory of a GPU cannot be read to mend what differs.
  if (placed && engine_.writes() != nullptr && !is_there(placement, payload)) {
    fail_with(ErrorCode::kRemote, "the peer wrote a packet to another place than its header says");
    return;
  }
  if (placement.kind == Placement::Kind::kPlace) {
    copy(placement.id, placement.offset, payload.first(placement.length));
  } else if (placement.kind == Placement::Kind::kParity) {
    std::memcpy(parity(placement.id).data(), payload.data(), placement.length);
  } else if (placement.length > 0) {
    std::memcpy(staging(placement.id).subspan(placement.offset, placement.length).data(), payload.data(),
                placement.length);
    count_copy(Copy::kStaged, placement.length);
  }
}

std::span<std::byte> MltRecvChannel::parity(std::uint32_t buffer) {
  const std::size_t size = engine_.options().segment;
  if (!parity_[buffer]) parity_[buffer] = std::make_unique_for_overwrite<std::byte[]>(size);
  return {parity_[buffer].get(), size};
}

void MltRecvChannel::on_event(const Endpoint::Event& event, TimePoint now) {
  if (std::holds_alternative<Endpoint::Rebuildable>(event.what)) on_rebuildable(now);
  if (const auto* unstage = std::get_if<Endpoint::Unstage>(&event.what)) on_unstage(unstage->receive);
  if (const auto* done = std::get_if<ReceiveDone>(&event.what)) on_done(*done);
}

void MltRecvChannel::on_unstage(std::uint32_t receive) {
  Receiver& receiver = engine_.core().receiver(id());
  for (auto part = receiver.staged(receive, 0); part; part = receiver.staged(receive, part->number + 1)) {
    copy(receive, part->offset, staging(part->buffer).subspan(part->buffer_offset, part->length));
  }
  receiver.unstaged(receive);
}

void MltRecvChannel::on_rebuildable(TimePoint now) {
  while (const auto what = engine_.core().receiver(id()).poll_rebuild()) {
    const PartRef where = part_of_[what->receive];
    std::array<const std::byte*, kMaxParity> rows{};
    for (std::uint32_t i = 0; i < what->count; ++i) rows[i] = parity(what->missing[i].buffer).data();
    engine_.parity()->rebuild(*what, groups_[where.group].parts[where.part].target, std::span(rows).first(what->count));
    engine_.core().rebuilt(id(), *what, now);
  }
}

// The device writes no more, and what is missing reads as zero, before the request is done.
void MltRecvChannel::on_done(const ReceiveDone& done) {
  const PartRef where = part_of_[done.receive];
  Group& group = groups_[where.group];
  const Part& part = group.parts[where.part];
  const Receiver& receiver = engine_.core().receiver(id());
  engine_.cancel(id(), part.landing);
  std::size_t missing = 0;
  if (done.missing > 0) {
    std::uint32_t from = 0;
    while (const auto range = receiver.missing(done.receive, from)) {
      from = range->offset + range->length;
      if (range->offset >= part.length) break;
      const std::size_t length = std::min<std::size_t>(range->length, part.length - range->offset);
      if (part.device) {
        engine_.writes()->zero(id(), slice(part, range->offset, length));
      } else {
        std::memset(part.target + range->offset, 0, length);
      }
      group.missing.push_back({where.part, range->offset, length});
      missing += length;
    }
    engine_.traffic(id())->missing(missing);
  }
  group.sizes[where.part] = std::min<std::size_t>(done.bytes, part.length);
  group.messages[where.part] = received_message(receiver.opened(done.receive), receiver.tolerates(done.receive));
  engine_.core().release(id(), done.receive);
  ++finished_;
  engine_.traffic(id())->received(group.sizes[where.part] - missing);
  if (--group.open > 0) return;
  --outstanding_;  // of the peer nothing more is needed
  const auto parts = std::span(group.parts).first(group.count);
  if (std::ranges::any_of(parts, [](const Part& each) { return each.device; })) {
    engine_.writes()->wait(id(), where.group);
  } else {
    end(group);
  }
}

void MltRecvChannel::end(Group& group) {
  count_copy(Copy::kPlaced, std::exchange(placed_, 0));
  order_streamed();
  group.submitted = false;
  group.done.store(true, std::memory_order_release);
}

void MltRecvChannel::on_written(std::uint32_t request) {
  if ((request & kFlush) == 0) return end(groups_[request]);
  FlushRequest& flush = flushes_[request & ~kFlush];
  flush.submitted = false;
  flush.done.store(true, std::memory_order_release);
}

// The acknowledgement of the last messages may have been lost, and nobody is here to answer probes any more: over TCP
// it arrives even if this process ends.
std::vector<std::byte> MltRecvChannel::last_words() {
  if (!control_open_) return {};
  Receiver& receiver = engine_.core().receiver(id());
  const TimePoint now = engine_.context().clock.now();
  receiver.repeat_ends();
  std::vector<std::byte> words;
  while (const auto packet = receiver.poll_control(now)) {
    std::array<std::byte, kMaxHeader + kSealBytes> bytes;
    std::size_t size = serialize(*packet, bytes);
    if (engine_.sealing() != nullptr) size = engine_.sealing()->seal_control(id(), bytes, size, {}, nullptr);
    if (size == 0) break;
    LastWord::append(words, std::span<const std::byte>(bytes).first(size), {});
  }
  return words;
}

// A sender says nothing here until it closes; then it repeats the messages whose sends are done and that may not have
// arrived. Only receives that are not filled then must fail.
void MltRecvChannel::read_control() {
  std::array<std::byte, 4096> in;
  net::IoResult got = net::read_some(control_.fd(), std::span(in));
  bool more = false;
  for (; got.kind == net::IoResult::Kind::kBytes; got = net::read_some(control_.fd(), std::span(in))) {
    control_in_.insert(control_in_.end(), in.begin(), in.begin() + static_cast<std::ptrdiff_t>(got.bytes));
    more = true;
    if (control_in_.size() > kMaxLastWords) break;
  }
  if (more && !hear_last_words()) {
    fail_with(ErrorCode::kRemote, "bytes of another protocol on the control connection");
    return;
  }
  if (more) engine_.handle_events(engine_.context().clock.now());
  if (broken() || got.kind == net::IoResult::Kind::kWouldBlock) return;
  control_open_ = false;
  const bool gone = got.kind == net::IoResult::Kind::kClosed || got.error == ECONNRESET || got.error == EPIPE;
  if (!gone) {
    fail_with(ErrorCode::kRemote, "the peer's host does not answer: " + describe_errno(got.error));
    return;
  }
  // Some came before their receive was posted, while more was still to come.
  offer_last_words(0);
  if (!broken()) engine_.handle_events(engine_.context().clock.now());
  fail_if_waiting();
}

// False: this is not the protocol.
bool MltRecvChannel::hear_last_words() {
  const std::size_t before = words_.size();
  const std::span<std::byte> in(control_in_);
  std::size_t used = 0;
  while (in.size() - used >= LastWord::kPrefix) {
    const auto word = LastWord::parse(in.subspan(used));
    if (!word) return false;
    const std::size_t length = LastWord::kPrefix + word->header + word->payload;
    if (in.size() - used < length) break;
    std::optional<std::span<const std::byte>> header = in.subspan(used + LastWord::kPrefix, word->header);
    const auto payload = in.subspan(used + LastWord::kPrefix + word->header, word->payload);
    if (engine_.sealing() != nullptr) {
      header = engine_.sealing()->open_control(id(), *header, payload, payload.data());
    }
    if (header) LastWord::append(words_, *header, payload);
    used += length;
  }
  control_in_.erase(control_in_.begin(), control_in_.begin() + static_cast<std::ptrdiff_t>(used));
  return words_.size() + control_in_.size() <= kMaxLastWords && offer_last_words(before);
}

// What finds no room now is offered again when a receive was posted.
bool MltRecvChannel::offer_last_words(std::size_t from) {
  const TimePoint now = engine_.context().clock.now();
  std::span<const std::byte> rest = std::span(words_).subspan(from);
  while (!broken() && !rest.empty()) {
    const LastWord word = *LastWord::parse(rest);
    const auto header = rest.subspan(LastWord::kPrefix, word.header);
    const auto payload = rest.subspan(LastWord::kPrefix + word.header, word.payload);
    rest = rest.subspan(LastWord::kPrefix + word.header + word.payload);
    if (engine_.core().find(header) != id()) return false;  // before the core believes it: it has the seal of this one
    const auto arrival = engine_.core().on_packet(header, word.payload, false, now);
    if (arrival.placement.kind == Placement::Kind::kDrop) continue;
    place(arrival.placement, payload, false);
  }
  return true;
}

void MltRecvChannel::fail_if_waiting() {
  if (broken() || outstanding_ == 0) return;
  fail_with(ErrorCode::kRemote, fmt::format("the peer closed the connection or its process ended, with {} receives "
                                            "outstanding",
                                            outstanding_));
}

std::uint64_t MltRecvChannel::progress() const {
  return broken() ? finished_ : finished_ + engine_.core().receiver(id()).counters().placed_bytes;
}

std::string MltRecvChannel::waiting() const { return fmt::format("{} receives outstanding", outstanding_); }

bool MltRecvChannel::uses(const transport::Mr& mr) const {
  const auto uses_it = [&](const auto& request) {
    const auto parts = std::span(request.parts).first(request.submitted ? request.count : 0);
    return std::ranges::any_of(parts, [&](const auto& part) { return part.mr == &mr; });
  };
  return flushes_.any_of(uses_it) || groups_.any_of(uses_it);
}

}  // namespace clustar::mlt::driver
