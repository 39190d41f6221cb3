#include "transport/verbs/send_channel.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "transport/api/context.h"
#include "transport/base/bytes.h"

namespace clustar::transport::verbs {
namespace {

// What a NIC writes meanwhile, word by word and each once.
std::array<std::byte, Descriptor::kSize> snapshot(const std::byte* memory) {
  std::array<std::byte, Descriptor::kSize> copy;
  for (std::size_t at = 0; at < copy.size(); at += 8) {
    const std::uint64_t word = *reinterpret_cast<const volatile std::uint64_t*>(memory + at);
    std::memcpy(copy.data() + at, &word, sizeof word);
  }
  return copy;
}

std::uint32_t peek(const std::byte* memory) {
  const std::uint32_t word = *reinterpret_cast<const volatile std::uint32_t*>(memory);
  return network_order(word);
}

}  // namespace

VerbsSendChannel::VerbsSendChannel(Nic& nic, const Facts& facts, std::unique_ptr<Wiring> wiring, net::Socket control)
    : SendChannel(facts.peer),
      nic_(nic),
      identify_(facts.identify),
      traffic_(nic.traffic().open(facts.traffic_class, facts.peer.host, facts.peer.rank)),
      anchor_(std::make_shared<MemoryAnchor<VerbsSendChannel>>(nic.engine().mutex(), this)),
      peer_(wiring->peer()),
      landing_{peer_.eager_bytes},
      memory_(wiring->take_memory()),
      link_(nic, Side::kSender, wiring->take_pairs(), std::move(control), facts.shown),
      matcher_(peer_.eager_bytes),
      requests_(this, kMaxRequests),
      stall_("verbs", nic.context().settings.stall_timeout, nic.context().clock, nic.context().log) {
  connection_ = nic_.engine().attach(*this, facts.connection);
}

VerbsSendChannel::~VerbsSendChannel() {
  nic_.engine().detach(connection_);
  const std::lock_guard lock(nic_.engine().mutex());
  anchor_->let_go();
}

class VerbsSendChannel::SendMr final : public VerbsMr {
 public:
  SendMr(const gdr::MemoryRef& memory, Regions regions, std::shared_ptr<MemoryAnchor<VerbsSendChannel>> anchor)
      : VerbsMr(memory, std::move(regions)), anchor_(std::move(anchor)) {}
  ~SendMr() override { anchor_->deregister(*this); }

 private:
  std::shared_ptr<MemoryAnchor<VerbsSendChannel>> anchor_;
};

Result<std::unique_ptr<Mr>> VerbsSendChannel::reg_mr(const gdr::MemoryRef& memory) {
  auto regions = nic_.reg(memory, nic_.relaxed());
  if (!regions) return tl::unexpected(regions.error());
  return std::make_unique<SendMr>(memory, std::move(*regions), anchor_);
}

void VerbsSendChannel::on_deregister(const Mr& mr) {
  bool used = false;
  requests_.for_each([&](SendRequest& request) {
    if (request.mr != &mr) return;
    used = true;
    request.mr = nullptr;
  });
  if (used) link_.fail_with(ErrorCode::kInvalidUsage, "memory was deregistered while sends used it");
}

Result<Request*> VerbsSendChannel::send(const Mr& mr, std::size_t offset, std::size_t length, int tag,
                                        const FlowTag& flow) {
  if (length > kMaxSend) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("verbs: a message of {} bytes; {} are allowed", length, kMaxSend));
  }
  const std::unique_lock lock(nic_.engine().mutex(), std::try_to_lock);
  if (!lock) return nullptr;
  if (link_.failed()) return tl::unexpected(*link_.failed());  // first: requests that failed make no room
  if (!requests_.has_room()) return nullptr;
  read_ring();
  if (link_.failed()) return tl::unexpected(*link_.failed());
  SendRequest& request = requests_.take();
  request.done.store(false, std::memory_order_relaxed);
  request.mr = &mr;
  request.offset = offset;
  request.flow = flow;
  if (const auto departure = matcher_.submit(request.index, tag, length)) {
    depart(*departure);
    nic_.engine().pump();
  } else {
    traffic_->waited();
  }
  return &request;
}

Result<Progress> VerbsSendChannel::test(SendRequest& request) {
  if (!request.done.load(std::memory_order_acquire)) {
    const std::unique_lock lock(nic_.engine().mutex(), std::try_to_lock);
    if (!lock) return Progress{};
    progress();
    if (!request.done.load(std::memory_order_relaxed)) {
      if (link_.failed()) return tl::unexpected(*link_.failed());
      if (const auto stalled = check_stall()) return tl::unexpected(*stalled);
      return Progress{};
    }
  }
  requests_.give_back(request);
  return Progress{true, std::span<const std::size_t>(&request.size, 1), {}};
}

void VerbsSendChannel::progress() {
  if (link_.failed()) return;
  ++polls_;
  read_ring();
  take_completions();
  if (polls_ % kWatchPolls == 0 || link_.usable_pairs() < link_.pairs().size()) watch();
  if (link_.failed()) return;
  send_again();
  if (matcher_.must_tell()) tell_consumed();
  nic_.engine().unblock(connection_);
  nic_.engine().pump();
}

void VerbsSendChannel::watch() {
  if (link_.watch()) remind();
  drain();
  // What the peer said it got is done; nothing else will be.
  if (link_.closed() && !link_.failed()) link_.fail_with(ErrorCode::kRemote, link_.why_closed());
}

void VerbsSendChannel::read_ring() {
  matcher_.on_freed(peek(memory_.memory.data() + RingLayout::kFreedAt));
  for (int read = 0; read < kReadAtOnce; ++read) {
    const std::uint32_t number = matcher_.consumed();
    const std::byte* const place = memory_.memory.data() + RingLayout::descriptor(number);
    if (peek(place) != number + 1) return;
    const auto copy = snapshot(place);
    const auto descriptor = Descriptor::parse(copy, number);
    if (!descriptor) return;
    const SendMatcher::Outcome outcome = matcher_.on_descriptor(*descriptor);
    immediates_ = 0;
    if (outcome.verdict == SendMatcher::Verdict::kProtocolError) {
      link_.fail_with(ErrorCode::kRemote, "the peer posted more receives than it may");
      return;
    }
    if (outcome.verdict == SendMatcher::Verdict::kDeparture) depart(outcome.departure);
  }
}

void VerbsSendChannel::take_completions() {
  for (const Link::Arrival& arrival : link_.poll()) {
    Posting posting;
    while (posted_[arrival.id.pair].acknowledged(arrival.id.number, &posting)) acknowledge(posting);
  }
}

std::uint64_t VerbsSendChannel::ahead_bytes() {
  if (!link_.failed()) take_completions();
  return under_way_;
}

void VerbsSendChannel::depart(const SendMatcher::Departure& departure) {
  SendRequest& request = requests_[departure.cookie];
  request.way = departure;
  request.unsent = departure.bytes;
  request.open = 0;
  request.size = departure.bytes;
  request.first_pair = next_pair_++;
  const auto pairs = static_cast<std::uint32_t>(link_.pairs().size());
  const std::uint64_t longest = nic_.engine().strict() ? kOrderedChunk : kMostStripe;
  const std::uint64_t wanted = std::max<std::uint64_t>(nic_.context().settings.min_stripe_bytes, 1);
  const std::uint64_t least = nic_.engine().strict() ? std::min(wanted, longest) : wanted;
  request.plan = departure.eager ? StripePlan{std::max<std::uint64_t>(departure.bytes, 1), 1}
                                 : plan_stripes(departure.bytes, pairs, least, std::max(least, longest));
  nic_.engine().push(connection_, departure.cookie, request.flow, departure.bytes);
}

std::uint64_t VerbsSendChannel::chunk_limit(std::uint64_t cookie) const { return requests_[cookie].plan.bytes; }

bool VerbsSendChannel::has_room(std::size_t pair, std::uint64_t bytes) const {
  return posted_[pair].requests() + kMostRequests <= QueuePairs::kSendDepth &&
         (under_way_ == 0 || under_way_ + bytes <= kMostUnderWay);
}

bool VerbsSendChannel::start_chunk(const SendQueue::Chunk& chunk) {
  // What did not arrive goes first: its receives are the older ones.
  if (link_.failed() || !again_.empty()) return false;
  SendRequest& request = requests_[chunk.cookie];
  const auto stripe = static_cast<std::uint32_t>(chunk.offset / request.plan.bytes);
  const std::size_t pair = link_.usable_from((request.first_pair + stripe) % link_.pairs().size());
  if (!has_room(pair, chunk.length)) return false;
  request.unsent -= chunk.length;
  ++request.open;
  post(pair, {.kind = request.way.eager ? Immediate::Kind::kEager : Immediate::Kind::kStripe,
              .cookie = static_cast<std::uint32_t>(chunk.cookie),
              .stripe = stripe,
              .offset = chunk.offset,
              .length = chunk.length});
  return true;
}

bool VerbsSendChannel::adaptive(std::size_t pair, std::uint64_t bytes) const {
  const Settings& settings = nic_.context().settings;
  const bool on = settings.adaptive_routing == Choice::kOn ||
                  (settings.adaptive_routing == Choice::kAuto && !nic_.ports()[link_.pairs().port(pair)].ethernet());
  return on && bytes > settings.adaptive_routing_threshold;
}

WorkChain::Target VerbsSendChannel::landing(std::size_t pair, std::size_t offset) const {
  return {peer_.address + offset, peer_.keys[link_.pairs().peer_port(pair)]};
}

// Kept for each request, because it may be written again.
ibv_sge VerbsSendChannel::write_header(std::size_t pair, const SendRequest& request) {
  const SendMatcher::Departure& way = request.way;
  const std::size_t at = memory_.staging + request.index * MessageHeader::kSize;
  MessageHeader{.tag = way.tag,
                .seq = way.seq,
                .slot = way.descriptor.slot,
                .stripes = static_cast<std::uint16_t>(request.plan.count),
                .total = way.bytes,
                .consumed = matcher_.consumed(),
                .identity = identify_ ? request.flow.identity : MessageIdentity{}}
      .serialize_to(memory_.memory.at<MessageHeader::kSize>(at));
  matcher_.told();
  return memory_.memory.regions().slice(link_.pairs().port(pair), at, MessageHeader::kSize);
}

ibv_sge VerbsSendChannel::payload(std::size_t pair, const SendRequest& request, const Posting& posting) const {
  if (posting.length == 0) return {};
  return regions_of(*request.mr).slice(link_.pairs().port(pair), request.offset + posting.offset, posting.length);
}

Immediate VerbsSendChannel::add_eager(std::size_t pair, const Posting& posting, WorkChain* chain) {
  const SendRequest& request = requests_[posting.cookie];
  const ibv_sge header = write_header(pair, request);
  const ibv_sge data = payload(pair, request, posting);
  const std::size_t place = landing_.place(request.way.place);
  ibv_send_wr& made = chain->add(IBV_WR_RDMA_WRITE_WITH_IMM, landing(pair, place), header, data);
  // The CPU copies what goes inline, and must not read a GPU's memory.
  const bool readable = data.length == 0 || request.mr->memory().kind == gdr::MemoryKind::kHost;
  if (readable && header.length + data.length <= link_.pairs().inline_bytes()) made.send_flags |= IBV_SEND_INLINE;
  return {.kind = Immediate::Kind::kEager, .number = request.way.place};
}

Immediate VerbsSendChannel::add_stripe(std::size_t pair, const Posting& posting, WorkChain* chain) {
  const SendRequest& request = requests_[posting.cookie];
  const Descriptor& receive = request.way.descriptor;
  Immediate immediate{.kind = Immediate::Kind::kStripe, .slot = receive.slot, .stripe = posting.stripe};
  // Without a header the receiver knows that the message is one stripe and fills its receive.
  const bool plain =
      request.plan.count == 1 && request.way.bytes == receive.length && !(identify_ && request.flow.identity.known);
  if (posting.stripe == 0 && !plain) {
    const std::size_t place = landing_.header(slot_index(receive.slot));
    ibv_send_wr& made = chain->add(IBV_WR_RDMA_WRITE, landing(pair, place), write_header(pair, request));
    if (MessageHeader::kSize <= link_.pairs().inline_bytes()) made.send_flags |= IBV_SEND_INLINE;
    immediate.has_header = true;
  }
  WorkChain::Target target{receive.address + posting.offset, receive.keys[link_.pairs().peer_port(pair)]};
  // The receive's memory may be none.
  if (posting.length == 0) target = landing(pair, 0);
  const ibv_sge data = payload(pair, request, posting);
  // Adaptive routing reorders plain writes only; the immediate that follows waits for them.
  if (adaptive(pair, posting.length)) {
    chain->add(IBV_WR_RDMA_WRITE, target, data);
    chain->add(IBV_WR_RDMA_WRITE_WITH_IMM, landing(pair, 0), {});
  } else {
    chain->add(IBV_WR_RDMA_WRITE_WITH_IMM, target, data);
  }
  return immediate;
}

Immediate VerbsSendChannel::add_consumed(std::size_t pair, WorkChain* chain) {
  chain->add(IBV_WR_RDMA_WRITE_WITH_IMM, landing(pair, 0), {});
  matcher_.told();
  return {.kind = Immediate::Kind::kConsumed, .number = matcher_.consumed()};
}

void VerbsSendChannel::post(std::size_t pair, const Posting& wanted) {
  WorkChain chain;
  Immediate immediate;
  switch (wanted.kind) {
    case Immediate::Kind::kEager: immediate = add_eager(pair, wanted, &chain); break;
    case Immediate::Kind::kStripe: immediate = add_stripe(pair, wanted, &chain); break;
    case Immediate::Kind::kConsumed: immediate = add_consumed(pair, &chain); break;
  }
  Posting posting = wanted;
  posting.requests = chain.size();
  const std::uint32_t number = posted_[pair].push(posting);
  under_way_ += posting.length;
  ++immediates_;
  chain.finish(WorkId{static_cast<std::uint32_t>(pair), number, false}.id(), immediate.serialize());
  nic_.counters().writes.fetch_add(1, std::memory_order_relaxed);
  // It stays on the list: when both ends have ended the pair, the peer's count tells that it did not arrive.
  if (const auto done = link_.post(pair, chain.front()); !done) link_.end_pair(pair, done.error());
}

void VerbsSendChannel::send_again() {
  while (!again_.empty() && !link_.failed()) {
    const std::size_t pair = link_.usable_from(next_pair_++ % link_.pairs().size());
    if (!has_room(pair, again_.front().length)) return;
    nic_.counters().failovers.fetch_add(1, std::memory_order_relaxed);
    post(pair, again_.pop_front());
  }
}

void VerbsSendChannel::tell_consumed() {
  const std::size_t pair = link_.usable_from(0);
  if (has_room(pair, 0)) post(pair, {.kind = Immediate::Kind::kConsumed});
}

void VerbsSendChannel::remind() {
  for (std::size_t pair = 0; pair < link_.pairs().size() && !link_.failed(); ++pair) {
    // A peer whose program stands still may have no receives left for more immediates; its NIC makes ours wait.
    const bool open = !posted_[pair].empty() && immediates_ <= kMostUnheard;
    if (!link_.remind(pair, open, posted_[pair].acknowledged()) || !has_room(pair, 0)) continue;
    post(pair, {.kind = Immediate::Kind::kConsumed});
    link_.reminded(pair, posted_[pair].latest());
  }
}

void VerbsSendChannel::acknowledge(const Posting& posting) {
  under_way_ -= posting.length;
  if (posting.kind == Immediate::Kind::kConsumed) return;
  SendRequest& request = requests_[posting.cookie];
  if (--request.open > 0 || request.unsent > 0) return;
  traffic_->sent(request.size);
  // From here on the request is its caller's again.
  request.mr = nullptr;
  request.done.store(true, std::memory_order_release);
}

void VerbsSendChannel::drain() {
  bool fits = true;
  while (const auto drained = link_.take_drained()) {
    std::vector<Posting> delivered;
    std::vector<Posting> lost;
    fits = posted_[drained->pair].drain(drained->arrived, drained->exact, &delivered, &lost) && fits;
    for (const Posting& posting : delivered) acknowledge(posting);
    for (const Posting& posting : lost) {
      under_way_ -= posting.length;
      again_.push_back(posting);
    }
  }
  if (!fits) {
    link_.fail_with(ErrorCode::kRemote, "the peer counts other messages on a failed queue pair than were sent");
  }
}

void VerbsSendChannel::break_pair(std::size_t pair, bool silently) {
  const std::lock_guard lock(nic_.engine().mutex());
  if (silently) {
    link_.pairs().stop(pair);
    return;
  }
  WorkChain chain;
  const ibv_sge word = memory_.memory.regions().slice(link_.pairs().port(pair), memory_.staging, 4);
  ibv_send_wr& made = chain.add(IBV_WR_RDMA_WRITE, {peer_.address, ~peer_.keys[link_.pairs().peer_port(pair)]}, word);
  made.wr_id = WorkId{static_cast<std::uint32_t>(pair), 0, false}.id();
  (void)link_.post(pair, made);
}

std::optional<Error> VerbsSendChannel::check_stall() {
  if (polls_ % kWatchPolls != 0) return std::nullopt;
  const auto over = stall_.check(true, link_.marks() + matcher_.consumed(), [this] {
    if (link_.undrained()) {
      return Stall{link_.peer(), "has not said what arrived on a queue pair that failed",
                   "its program has no receive to ask for, or does not ask"};
    }
    return Stall{link_.peer(), "has taken no data", fmt::format("{} sends wait for its receives", matcher_.waiting())};
  });
  if (over) link_.fail_with(ErrorCode::kRemote, *over);
  return link_.failed();
}

}  // namespace clustar::transport::verbs
