#include "transport/verbs/recv_channel.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "transport/base/copies.h"
#include "transport/verbs/work_chain.h"

namespace clustar::transport::verbs {

VerbsRecvChannel::VerbsRecvChannel(Nic& nic, std::unique_ptr<Wiring> wiring, net::Socket control, const PeerInfo& peer,
                                   const std::string& shown, int traffic_class)
    : RecvChannel(peer),
      nic_(nic),
      traffic_(nic.traffic().open(traffic_class, peer.host, peer.rank)),
      peer_(wiring->peer()),
      landing_{nic.eager_bytes()},
      memory_(wiring->take_memory()),
      link_(nic, Side::kReceiver, wiring->take_pairs(), std::move(control), shown),
      stall_("verbs", nic.context().settings.stall_timeout, nic.context().clock, nic.context().log) {
  for (std::uint32_t i = 0; i < requests_.size(); ++i) {
    requests_[i].channel = this;
    requests_[i].group = i;
  }
}

Result<std::unique_ptr<VerbsRecvChannel>> VerbsRecvChannel::make(Nic& nic, std::unique_ptr<Wiring> wiring,
                                                                 net::Socket control, const PeerInfo& peer,
                                                                 const std::string& shown, int traffic_class) {
  std::unique_ptr<VerbsRecvChannel> made(
      new VerbsRecvChannel(nic, std::move(wiring), std::move(control), peer, shown, traffic_class));
  if (Flusher::needed(nic)) {
    auto flusher = Flusher::make(nic);
    if (!flusher) return tl::unexpected(flusher.error());
    made->flusher_ = std::move(*flusher);
  }
  if (nic.device_memory().any() && nic.eager_bytes() > 0) {
    auto writer = EagerWriter::make(nic, made->memory_.memory.regions());
    if (!writer) return tl::unexpected(writer.error());
    made->eager_writer_ = std::move(*writer);
  }
  return made;
}

Result<std::unique_ptr<Mr>> VerbsRecvChannel::reg_mr(const gdr::MemoryRef& memory) {
  const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | (flusher_ ? IBV_ACCESS_REMOTE_READ : 0);
  auto regions = nic_.reg(memory, access | nic_.relaxed());
  if (!regions) return tl::unexpected(regions.error());
  return std::make_unique<VerbsMr>(memory, std::move(*regions));
}

Result<Request*> VerbsRecvChannel::flush(std::span<const RecvPart> parts) {
  // Also when the peer has gone: what it sent came.
  return flusher_ ? flusher_->flush(parts) : nullptr;
}

Result<Request*> VerbsRecvChannel::recv(std::span<const RecvPart> parts) {
  if (const auto checked = ReceiveGroups::check("verbs", parts); !checked) return tl::unexpected(checked.error());
  if (link_.failed()) return tl::unexpected(*link_.failed());
  std::array<RecvMatcher::Part, kMaxRecvParts> wanted;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].length > kMaxMessageBytes) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("verbs: a receive of {} bytes; {} are allowed", parts[i].length, kMaxMessageBytes));
    }
    wanted[i] = {parts[i].tag, parts[i].length};
  }
  const auto posted = matcher_.post(std::span(wanted).first(parts.size()));
  if (!posted) {
    // Room may come by what the sender says of the ring.
    progress();
    return nullptr;
  }
  RecvRequest& request = requests_[posted->group];
  request.writes = 0;
  std::copy(parts.begin(), parts.end(), request.parts.begin());
  for (const auto& match : *posted->early) take_eager(match);
  for (const auto& receive : *posted->wanted) write_descriptor(posted->group, receive);
  describe();
  return &request;
}

void VerbsRecvChannel::take_eager(const RecvMatcher::EagerMatch& match) {
  const RecvPart& part = requests_[match.group].parts[match.part];
  nic_.counters().eager.fetch_add(1, std::memory_order_relaxed);
  const std::size_t at = landing_.place(match.place) + MessageHeader::kSize;
  if (match.bytes > 0 && part.mr->memory().kind != gdr::MemoryKind::kHost) {
    const auto posted =
        eager_writer_->write(match.place, match.group, at, match.bytes, regions_of(*part.mr), part.offset);
    if (!posted) link_.fail_with(posted.error().code, posted.error().message);
    ++requests_[match.group].writes;
    return;
  }
  if (match.bytes > 0) {
    std::memcpy(part.mr->memory().address + part.offset, memory_.memory.data() + at, match.bytes);
    count_copy(Copy::kEager, match.bytes);
  }
  matcher_.free_place(match.place);
}

void VerbsRecvChannel::take_written() {
  if (!eager_writer_ || eager_writer_->outstanding() == 0) return;
  written_eager_.clear();
  if (const auto taken = eager_writer_->take(&written_eager_); !taken) {
    link_.fail_with(taken.error().code, taken.error().message);
  }
  for (const EagerWriter::Written& one : written_eager_) {
    --requests_[one.group].writes;
    matcher_.free_place(one.place);
  }
}

void VerbsRecvChannel::write_descriptor(std::uint32_t group, const RecvMatcher::Wanted& wanted) {
  const RecvPart& part = requests_[group].parts[wanted.part];
  Descriptor descriptor{.number = wanted.number,
                        .tag = part.tag,
                        .seq = wanted.seq,
                        .slot = wanted.slot,
                        .length = part.length,
                        .eager_freed = matcher_.freed()};
  if (part.mr != nullptr) {
    descriptor.address = regions_of(*part.mr).address(part.offset);
    descriptor.keys = regions_of(*part.mr).rkeys();
  }
  descriptor.serialize_to(
      memory_.memory.at<Descriptor::kSize>(memory_.staging + RingLayout::descriptor(wanted.number)));
}

void VerbsRecvChannel::describe() {
  const std::size_t pair = link_.usable_from(0);
  if (link_.closed()) return;
  while (!link_.failed() && link_.usable(pair) && described_ != matcher_.posted()) {
    if (!describe_some(pair)) return;
  }
  if (matcher_.freed() - told_freed_ >= kEagerSlots / 4 && !link_.failed() && link_.usable(pair)) tell_freed(pair);
}

bool VerbsRecvChannel::describe_some(std::size_t pair) {
  const std::uint32_t to_end = kRing - described_ % kRing;
  const std::uint32_t count = std::min(matcher_.posted() - described_, to_end);
  const std::size_t at = RingLayout::descriptor(described_);
  if (!post(pair, memory_.staging + at, at, count * Descriptor::kSize)) return false;
  described_ += count;
  if (described_ == matcher_.posted()) told_freed_ = matcher_.freed();
  return true;
}

bool VerbsRecvChannel::tell_freed(std::size_t pair, bool signaled) {
  const std::uint32_t freed = network_order(matcher_.freed());
  std::memcpy(memory_.memory.data() + memory_.staging + RingLayout::kFreedAt, &freed, sizeof freed);
  if (!post(pair, memory_.staging + RingLayout::kFreedAt, RingLayout::kFreedAt, sizeof freed, signaled)) return false;
  told_freed_ = matcher_.freed();
  return true;
}

void VerbsRecvChannel::remind() {
  for (std::size_t pair = 0; pair < link_.pairs().size() && !link_.failed() && !link_.closed(); ++pair) {
    const bool open = writes_[pair] != written_[pair];
    if (link_.remind(pair, open, written_[pair]) && tell_freed(pair, true)) link_.reminded(pair, writes_[pair]);
  }
}

// False: no room, or the pair has ended; a pair that ends makes drain() begin again.
bool VerbsRecvChannel::post(std::size_t pair, std::size_t staged, std::size_t target, std::size_t length,
                            bool signaled) {
  if (writes_[pair] - written_[pair] >= QueuePairs::kDescribeDepth) return false;
  WorkChain chain;
  const std::uint32_t number = ++writes_[pair];
  const WorkChain::Target ring{peer_.address + target, peer_.keys[link_.pairs().peer_port(pair)]};
  ibv_send_wr& made =
      chain.add(IBV_WR_RDMA_WRITE, ring, memory_.memory.regions().slice(link_.pairs().port(pair), staged, length));
  if (length <= link_.pairs().inline_bytes()) made.send_flags |= IBV_SEND_INLINE;
  made.wr_id = WorkId{static_cast<std::uint32_t>(pair), number, false}.id();
  // Nobody waits for them; a completion now and then makes room.
  if (signaled || number % 16 == 0) made.send_flags |= IBV_SEND_SIGNALED;
  if (const auto posted = link_.post(pair, made); !posted) {
    link_.end_pair(pair, posted.error());
    return false;
  }
  return true;
}

Result<Progress> VerbsRecvChannel::test(std::uint32_t group) {
  // Also when the peer has gone: what it sent came.
  take_written();
  if (!complete(group)) progress();
  if (complete(group)) {
    const auto sizes = matcher_.sizes(group);
    for (const std::size_t size : sizes) traffic_->received(size);
    matcher_.release(group);
    return Progress{true, sizes, {}, matcher_.messages(group)};
  }
  if (link_.failed()) return tl::unexpected(*link_.failed());
  if (const auto stalled = check_stall()) return tl::unexpected(*stalled);
  return Progress{};
}

void VerbsRecvChannel::progress() {
  if (link_.failed()) return;
  ++polls_;
  bool arrived = false;
  for (int batch = 0; batch < kBatchesPerPoll; ++batch) {
    for (const Link::Arrival& arrival : link_.poll()) {
      arrived = true;
      if (arrival.id.receive) {
        on_immediate(arrival.immediate);
      } else {
        written_[arrival.id.pair] = arrival.id.number;
      }
    }
    if (!link_.more()) break;
  }
  if (link_.failed()) return;
  describe();
  if (polls_ % kWatchPolls == 0 || link_.usable_pairs() < link_.pairs().size()) watch(arrived);
}

void VerbsRecvChannel::watch(bool arrived) {
  if (link_.watch()) remind();
  bool drained = false;
  while (link_.take_drained()) drained = true;
  if (drained) {
    // What was on its way by that pair may not have come: the rest of the ring is written again. What the sender has
    // read meanwhile does no harm, since its places are not used again before it said so.
    described_ = matcher_.consumed();
    told_freed_ = matcher_.freed() - kEagerSlots;
    describe();
  }
  if (!link_.closed() || link_.failed()) return;
  const TimePoint now = nic_.context().clock.now();
  if (arrived || !closed_since_) closed_since_ = now;
  if (now - *closed_since_ < kLastArrivals || matcher_.outstanding() == 0) return;
  link_.fail_with(ErrorCode::kRemote,
                  fmt::format("{}, with {} receives outstanding", link_.why_closed(), matcher_.outstanding()));
}

std::optional<MessageHeader> VerbsRecvChannel::header_at(std::size_t offset) const {
  return MessageHeader::parse(memory_.memory.at<MessageHeader::kSize>(offset));
}

void VerbsRecvChannel::on_immediate(std::uint32_t word) {
  const auto immediate = Immediate::parse(word);
  bool fits = immediate.has_value();
  if (fits && immediate->kind == Immediate::Kind::kStripe) {
    std::optional<MessageHeader> header;
    if (immediate->has_header) header = header_at(landing_.header(slot_index(immediate->slot)));
    fits = matcher_.on_stripe(*immediate, header);
  } else if (fits && immediate->kind == Immediate::Kind::kEager) {
    fits = immediate->number < kEagerSlots;
    auto header = fits ? header_at(landing_.place(immediate->number)) : std::nullopt;
    if (header && header->total > landing_.eager_bytes) header.reset();
    const RecvMatcher::Arrival arrival = matcher_.on_eager(immediate->number, header);
    fits = arrival.fate != RecvMatcher::Fate::kProtocolError;
    if (arrival.fate == RecvMatcher::Fate::kMatched) take_eager(arrival.match);
  } else if (fits) {
    matcher_.on_consumed(immediate->number);
  }
  if (!fits) {
    link_.fail_with(ErrorCode::kRemote,
                    fmt::format("something arrived that fits no receive (immediate 0x{:08x})", word));
  }
}

std::optional<Error> VerbsRecvChannel::check_stall() {
  if (polls_ % kWatchPolls != 0) return std::nullopt;
  const auto over = stall_.check(true, link_.marks(), [this] {
    return Stall{link_.peer(), "has sent nothing", fmt::format("{} receives outstanding", matcher_.outstanding())};
  });
  if (over) link_.fail_with(ErrorCode::kRemote, *over);
  return link_.failed();
}

}  // namespace clustar::transport::verbs
