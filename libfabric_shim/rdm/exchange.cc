#include "libfabric_shim/rdm/exchange.h"

#include <fmt/format.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "libfabric_shim/failure.h"
#include "transport/net/socket.h"

namespace clustar::transport::ofi {

Result<std::shared_ptr<Exchange>> Exchange::open(Domain& domain, std::size_t payload, const Clock& clock,
                                                 const Log& log) {
  auto queue = CompletionQueue::open(domain);
  if (!queue) return tl::unexpected(queue.error());
  auto addresses = AddressVector::open(domain);
  if (!addresses) return tl::unexpected(addresses.error());
  std::shared_ptr<Exchange> made(new Exchange(domain, std::move(*queue), std::move(*addresses), payload, clock, log));
  auto endpoint = Endpoint::open(domain, made->queue_, made->addresses_);
  if (!endpoint) return tl::unexpected(endpoint.error());
  if (endpoint->address().empty() || endpoint->address().size() > Contact::kAddress) {
    return fail(ErrorCode::kUnavailable, fmt::format("ofi: {}: its addresses have {} bytes; 1 to {} are allowed",
                                                     domain.name(), endpoint->address().size(), Contact::kAddress));
  }
  made->address_ = endpoint->address();
  made->endpoint_.emplace(std::move(*endpoint));
  return made;
}

std::size_t Exchange::injected_bytes(const fi_info& info) {
  // Others move what they could not hand on at once only when they are called, and who waits for nothing calls no more.
  if (info.domain_attr->data_progress != FI_PROGRESS_AUTO) return 0;
  return std::min<std::size_t>(info.tx_attr->inject_size, kMostInjected);
}

Result<ChannelName> Exchange::open_channel(Owner& owner) {
  if (broken_) return tl::unexpected(*broken_);
  if (next_channel_ > ChannelName::kMost) {
    return fail(ErrorCode::kUnavailable, fmt::format("ofi: {}: {} channels were opened, and no number is left; restart "
                                                     "the process",
                                                     domain_.name(), ChannelName::kMost));
  }
  ChannelName name{next_channel_, 0};
  if (const auto filled = net::fill_random(std::as_writable_bytes(std::span(&name.key, 1))); !filled) {
    return tl::unexpected(filled.error());
  }
  // As many frames as all senders together may have under way.
  const std::size_t wanted = std::min(kFrames * (channels_.size() + 1), most_posted_frames());
  while (posted_frames_ < wanted) {
    auto op = take_frame();
    if (!op) return tl::unexpected(op.error());
    (*op)->kind = Kind::kFrameReceive;
    ++posted_frames_;
    post_receive(**op);
    if (broken_) return tl::unexpected(*broken_);
  }
  ++next_channel_;
  channels_.emplace(name.number, std::pair(&owner, name.key));
  return name;
}

std::size_t Exchange::most_posted_frames() const {
  return std::max<std::size_t>(kFrames, domain_.info().rx_attr->size / 2);
}

// The rest is for payloads that were announced.
std::size_t Exchange::most_ahead() const { return domain_.info().rx_attr->size / 4; }

void Exchange::close_channel(const ChannelName& channel, std::vector<Way> ways) {
  const auto open = channels_.find(channel.number);
  if (open == channels_.end()) return;
  std::erase(reminded_, open->second.first);
  channels_.erase(open);
  closed_.emplace(channel.number, Closed{channel.key, std::move(ways)});
  if (closed_.size() > kMostClosed) closed_.erase(closed_.begin());
}

Result<Exchange::Op*> Exchange::take_frame() {
  if (free_frames_.empty()) {
    Slab slab;
    slab.memory = std::make_unique<std::byte[]>(kSlabFrames * frame_bytes_);
    auto region = MemoryRegion::make(domain_, slab.memory.get(), kSlabFrames * frame_bytes_);
    if (!region) return tl::unexpected(region.error());
    slab.region = std::move(*region);
    for (std::size_t i = 0; i < kSlabFrames; ++i) {
      Op& op = ops_.emplace_back();
      op.payload = {kFrameTag, slab.memory.get() + i * frame_bytes_, frame_bytes_, slab.region.descriptor()};
      free_frames_.push_back(&op);
    }
    slabs_.push_back(std::move(slab));
  }
  Op* const op = free_frames_.back();
  free_frames_.pop_back();
  return op;
}

Exchange::Op& Exchange::take_payload() {
  if (free_payloads_.empty()) return ops_.emplace_back();
  Op& op = *free_payloads_.back();
  free_payloads_.pop_back();
  return op;
}

void Exchange::give_back(Op& op) {
  const bool frame = op.kind == Kind::kFrameSend || op.kind == Kind::kFrameReceive;
  op.kind = Kind::kFree;
  op.owner = nullptr;
  op.cancelled = false;
  if (op.ahead) --ahead_;
  op.ahead = false;
  op.waste.reset();
  (frame ? free_frames_ : free_payloads_).push_back(&op);
}

Result<bool> Exchange::taken(Op& op, const char* call, ssize_t code) {
  idle_ = false;
  if (code == 0) return true;
  give_back(op);
  if (code == -FI_EAGAIN) return false;
  return tl::unexpected(failure(domain_.name(), call, code));
}

Result<Exchange::Sent> Exchange::send_frame(fi_addr_t to, std::span<const std::byte> head,
                                            std::span<const std::byte> payload, Owner& owner, std::uint32_t cookie) {
  if (broken_) return tl::unexpected(*broken_);
  if (head.size() + payload.size() <= inject_bytes_) return inject_frame(to, head, payload);
  return post_frame(to, head, payload, owner, cookie).map([](bool posted) {
    return posted ? Sent::kUnderWay : Sent::kNoRoom;
  });
}

Result<bool> Exchange::post_frame(fi_addr_t to, std::span<const std::byte> head, std::span<const std::byte> payload,
                                  Owner& owner, std::uint32_t cookie) {
  if (broken_) return tl::unexpected(*broken_);
  const auto op = take_frame();
  if (!op) return tl::unexpected(op.error());
  Op& frame = **op;
  frame.kind = Kind::kFrameSend;
  frame.owner = &owner;
  frame.cookie = cookie;
  frame.sent = payload.size();
  std::memcpy(frame.payload.data, head.data(), head.size());
  if (!payload.empty()) std::memcpy(frame.payload.data + head.size(), payload.data(), payload.size());
  fi_context2* const context = &frame;
  return taken(frame, "fi_tsend",
               endpoint_->send(to, kFrameTag, frame.payload.data, head.size() + payload.size(),
                               frame.payload.descriptor, context));
}

Result<Exchange::Sent> Exchange::inject_frame(fi_addr_t to, std::span<const std::byte> head,
                                              std::span<const std::byte> payload) {
  std::array<std::byte, kMostInjected> all;
  std::memcpy(all.data(), head.data(), head.size());
  if (!payload.empty()) std::memcpy(all.data() + head.size(), payload.data(), payload.size());
  const ssize_t code = endpoint_->inject(to, kFrameTag, all.data(), head.size() + payload.size());
  if (code == 0) return Sent::kDone;
  if (code == -FI_EAGAIN) return Sent::kNoRoom;
  return tl::unexpected(failure(domain_.name(), "fi_tinject", code));
}

Result<bool> Exchange::send_payload(fi_addr_t to, const Payload& payload, Owner& owner, std::uint32_t cookie) {
  if (broken_) return tl::unexpected(*broken_);
  Op& op = take_payload();
  op.kind = Kind::kPayloadSend;
  op.owner = &owner;
  op.cookie = cookie;
  op.payload = payload;
  op.sent = payload.bytes;
  fi_context2* const context = &op;
  return taken(op, "fi_tsend",
               endpoint_->send(to, payload.tag, payload.data, payload.bytes, payload.descriptor, context));
}

Result<void> Exchange::receive_payload(const Payload& payload, Owner& owner, std::uint32_t cookie) {
  if (broken_) return tl::unexpected(*broken_);
  Op& op = take_payload();
  op.kind = Kind::kPayloadReceive;
  op.owner = &owner;
  op.cookie = cookie;
  op.payload = payload;
  post_receive(op);
  if (broken_) return tl::unexpected(*broken_);
  return {};
}

Result<bool> Exchange::receive_ahead(const Payload& payload, Owner& owner, std::uint32_t cookie) {
  if (broken_) return tl::unexpected(*broken_);
  if (ahead_ >= most_ahead() || !waiting_.empty()) return false;
  Op& op = take_payload();
  op.kind = Kind::kPayloadReceive;
  op.owner = &owner;
  op.cookie = cookie;
  op.payload = payload;
  op.ahead = true;
  ++ahead_;
  fi_context2* const context = &op;
  return taken(op, "fi_trecv",
               endpoint_->receive(payload.tag, payload.data, payload.bytes, payload.descriptor, context));
}

// A receive that cannot be posted for another reason than that there is no room is the device's failure.
void Exchange::post_receive(Op& op) {
  fi_context2* const context = &op;
  const ssize_t code =
      endpoint_->receive(op.payload.tag, op.payload.data, op.payload.bytes, op.payload.descriptor, context);
  if (code == -FI_EAGAIN) {
    waiting_.push_back(&op);
  } else if (code != 0) {
    break_off(failure(domain_.name(), "fi_trecv", code));
  }
}

bool Exchange::pauses() {
  if (!idle_) return false;
  const TimePoint now = clock_.now();
  if (now - polled_ < kPause && ++skipped_ < kMostSkipped) return true;
  polled_ = now;
  skipped_ = 0;
  return false;
}

void Exchange::poll() {
  if (pauses()) return;
  if (!idle_) polled_ = clock_.now();
  idle_ = true;
  if (!left_over_.empty()) end_left_over();
  if (!reminded_.empty()) call_reminded();
  for (std::size_t i = waiting_.size(); i > 0 && !broken_; --i) {
    Op* const op = waiting_.front();
    waiting_.pop_front();
    post_receive(*op);
    if (!waiting_.empty() && waiting_.back() == op) break;
  }
  for (int batch = 0; batch < kBatchesPerPoll && !broken_; ++batch) {
    const auto got = queue_.read();
    if (!got) return break_off(got.error());
    if (!got->done.empty() || got->failed) idle_ = false;
    if (got->failed) {
      if (const auto failed = queue_.read_failure()) on_failure(*failed);
      continue;
    }
    for (const fi_cq_msg_entry& entry : got->done) {
      if (entry.op_context == nullptr || broken_) continue;
      finish(*static_cast<Op*>(static_cast<fi_context2*>(entry.op_context)), entry.len);
    }
    // One look more costs as much as a message does, and most find nothing; who waits asks again at once.
    if (got->done.size() < CompletionQueue::kBatch) return;
  }
}

void Exchange::remind(Owner& owner) {
  if (std::ranges::find(reminded_, &owner) == reminded_.end()) reminded_.push_back(&owner);
}

void Exchange::call_reminded() {
  std::erase_if(reminded_, [](Owner* owner) { return owner->on_reminder(); });
}

void Exchange::finish(Op& op, std::size_t bytes) {
  Owner* const owner = op.owner;
  switch (op.kind) {
    case Kind::kFree: return;
    case Kind::kFrameReceive:
      finish_frame(op, bytes);
      if (!broken_) post_receive(op);
      return;
    case Kind::kFrameSend:
    case Kind::kPayloadSend: {
      const std::uint32_t cookie = op.cookie;
      const std::size_t sent = op.sent;
      give_back(op);
      if (owner != nullptr) owner->on_sent(cookie, sent);
      return;
    }
    case Kind::kPayloadReceive: {
      const std::uint32_t cookie = op.cookie;
      give_back(op);
      if (owner != nullptr) owner->on_received(cookie, bytes);
      return;
    }
  }
}

// What nobody is known for comes late for a channel that closed, or from a stranger.
void Exchange::finish_frame(const Op& op, std::size_t bytes) {
  const std::span<const std::byte> all(op.payload.data, std::min(bytes, frame_bytes_));
  if (all.size() < FrameHead::kSize) return;
  const auto head = FrameHead::parse(all.first<FrameHead::kSize>());
  if (!head) return;
  const auto closed = closed_.find(head->channel.number);
  if (closed != closed_.end() && closed->second.key == head->channel.key) {
    return waste(closed->second, *head, all.subspan(FrameHead::kSize));
  }
  const auto channel = channels_.find(head->channel.number);
  if (channel == channels_.end() || channel->second.second != head->channel.key) return;
  channel->second.first->on_frame(*head, all.subspan(FrameHead::kSize));
}

// Where memory has to be registered, the sender's device keeps to what is registered, and nothing need be asked for.
void Exchange::waste(const Closed& channel, const FrameHead& head, std::span<const std::byte> bytes) {
  if (head.kind != FrameHead::Kind::kAnnounced || channel.ways.empty()) return;
  const auto frame = ChunkFrame::parse(head, bytes);
  const Way& way = channel.ways[rail_of(head.number, channel.ways.size())];
  const auto exchange = way.exchange.lock();
  if (!frame || exchange == nullptr || exchange->broken_ || exchange->domain_.registers()) return;
  exchange->post_waste(payload_tag(way.number, head.number), frame->header.length);
}

// Without the memory the sender waits until its peer gives up: an error there, not here.
Exchange::Op* Exchange::post_waste(std::uint64_t tag, std::size_t bytes) {
  WasteMemory::Shared memory = waste_.at_least(bytes);
  if (memory == nullptr) return nullptr;
  Op& op = take_payload();
  op.kind = Kind::kPayloadReceive;
  op.owner = nullptr;
  op.waste = std::move(memory);
  op.payload = {tag, op.waste.get(), bytes, nullptr};
  post_receive(op);
  return &op;
}

void Exchange::cancel_receive(const Owner& owner, std::uint32_t cookie) {
  for (Op& op : ops_) {
    if (op.owner == &owner && op.kind == Kind::kPayloadReceive && op.cookie == cookie) return cancel(op);
  }
}

// What comes by the same tag while a provider still cancels goes to the old memory, whose receive then is over as well.
void Exchange::leave_ahead(const Owner& owner) {
  std::vector<Op*> left;
  for (Op& op : ops_) {
    if (op.owner == &owner && op.kind == Kind::kPayloadReceive && op.ahead && !op.cancelled) left.push_back(&op);
  }
  for (Op* const op : left) {
    if (broken_) return;
    cancel(*op);
    if (domain_.registers()) continue;
    Op* const waste = post_waste(op->payload.tag, op->payload.bytes);
    if (waste == nullptr) continue;
    waste->ahead = true;
    ++ahead_;
    waste->cookie = ++next_left_over_;
    left_over_.push_back({waste, waste->cookie, clock_.now() + kLeftOver});
  }
}

void Exchange::end_left_over() {
  const TimePoint now = clock_.now();
  for (; !left_over_.empty() && left_over_.front().until <= now && !broken_; left_over_.pop_front()) {
    const LeftOver& oldest = left_over_.front();
    const bool same = oldest.op->ahead && oldest.op->waste != nullptr && oldest.op->cookie == oldest.number;
    if (same) cancel(*oldest.op);
  }
}

void Exchange::cancel(Op& op) {
  idle_ = false;
  const auto never_posted = std::ranges::find(waiting_, &op);
  if (never_posted != waiting_.end()) {
    waiting_.erase(never_posted);
    return give_back(op);
  }
  op.cancelled = true;
  fi_context2* const context = &op;
  endpoint_->cancel(context);
}

void Exchange::on_failure(const CompletionQueue::Failure& failed) {
  if (failed.context == nullptr) return log_.warn(failed.error.message);
  Op& op = *static_cast<Op*>(static_cast<fi_context2*>(failed.context));
  if (op.kind == Kind::kFree) return;
  if (op.kind == Kind::kFrameReceive) {
    // A longer message than a frame is a stranger's. Whatever it was, the room for the next is needed.
    log_.warn(failed.error.message);
    return post_receive(op);
  }
  Owner* const owner = op.owner;
  const bool wanted = op.cancelled && failed.code == FI_ECANCELED;
  const std::uint32_t cookie = op.cookie;
  give_back(op);
  if (owner == nullptr) return;
  wanted ? owner->on_cancelled(cookie) : owner->on_failure(failed.error);
}

Exchange::InUse Exchange::payloads_of(const Owner& owner) const {
  InUse use;
  for (const Op& op : ops_) {
    if (op.owner != &owner) continue;
    if (op.kind == Kind::kPayloadSend) ++use.sends;
    if (op.kind == Kind::kPayloadReceive) ++use.receives;
  }
  return use;
}

void Exchange::cancel_receives(const Owner& owner) {
  for (Op& op : ops_) {
    if (op.owner == &owner && op.kind == Kind::kPayloadReceive && !op.cancelled && !broken_) cancel(op);
  }
}

void Exchange::forget(const Owner& owner) {
  std::erase(reminded_, &owner);
  for (Op& op : ops_) {
    if (op.owner == &owner) op.owner = nullptr;
  }
}

// libfabric's rxm (1.17 to 1.22) ends a connection's queue pair first and then posts a receive to it again for each
// message that nobody had looked at: over verbs a segmentation fault, since there even its own credits are such
// messages. It takes one message at a look, and those of its own do not show.
void Exchange::end_endpoint() {
  if (!endpoint_) return;
  for (int look = 0; look < kLastLooks; ++look) {
    const auto got = queue_.read();
    if (!got) break;
    if (got->failed) (void)queue_.read_failure();
  }
  endpoint_.reset();
}

void Exchange::break_off(const Error& why) {
  if (broken_) return;
  broken_ = why;
  log_.warn(why.message);
  end_endpoint();
  waiting_.clear();
  left_over_.clear();
  std::vector<Owner*> owners;
  for (Op& op : ops_) {
    if (op.owner != nullptr) owners.push_back(op.owner);
    op.owner = nullptr;
    op.kind = Kind::kFree;
  }
  for (const auto& [number, channel] : channels_) owners.push_back(channel.first);
  std::ranges::sort(owners);
  owners.erase(std::unique(owners.begin(), owners.end()), owners.end());
  for (Owner* const owner : owners) owner->on_failure(why);
}

}  // namespace clustar::transport::ofi
