#include "transport/io/verbs/uc/outbox.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "transport/base/bytes.h"

namespace clustar::transport::io::verbs::uc {
namespace {

constexpr std::uint8_t kControlClass = 7;

}  // namespace

Result<std::unique_ptr<Outbox>> Outbox::make(PacketIo& datagrams) {
  // The device may read a block until so many packets more were taken.
  const std::uint32_t in_flight = datagrams.capabilities().copies ? 0 : datagrams.capabilities().in_flight;
  auto box = std::unique_ptr<Outbox>(new Outbox(datagrams, in_flight + static_cast<std::uint32_t>(kMost)));
  auto registered = datagrams.reg_mr(gdr::MemoryRef::host(box->memory_.data(), box->memory_.size()));
  if (!registered) return tl::unexpected(registered.error());
  box->mr_ = std::move(*registered);
  return box;
}

Outbox::Outbox(PacketIo& datagrams, std::uint32_t blocks)
    : datagrams_(datagrams),
      block_bytes_(datagrams.capabilities().max_packet - Preamble::kSize),
      memory_(block_bytes_ * blocks),
      blocks_(blocks) {
  waiting_.reserve(kMost);
  offered_.reserve(kMost);
}

std::span<std::byte> Outbox::bytes(std::uint32_t block) {
  return std::span(memory_).subspan(block * block_bytes_, block_bytes_);
}

void Outbox::say(PeerId peer, std::uint8_t path, const Preamble& preamble, std::span<const std::byte> body) {
  assert(room());
  Waiting& added = waiting_.emplace_back();
  added.packet.peer = peer;
  added.packet.path = path;
  added.packet.traffic_class = kControlClass;
  added.packet.header.resize(Preamble::kSize + body.size());
  preamble.serialize_to(added.packet.header.bytes().first<Preamble::kSize>());
  std::ranges::copy(body, added.packet.header.bytes().begin() + Preamble::kSize);
}

bool Outbox::begin(PeerId peer, const Preamble& preamble, std::uint32_t number, std::uint8_t pair) {
  const Block& block = blocks_[next_block_];
  if (!room(2) || block.waiting > 0 || block.free_at > taken_) return false;
  open_ = {.block = next_block_, .peer = peer, .preamble = preamble, .pair = pair, .next = number};
  next_block_ = static_cast<std::uint32_t>((next_block_ + 1) % blocks_.size());
  open_.preamble.kind = Kind::kHeaders;
  open_.preamble.number = 0;
  open_.begin = open_.end = kBatchFixed;
  if (owes()) repeat_owed(number);
  const std::uint32_t first = number - open_.repeats;
  WireWriter<kBatchFixed>(bytes(open_.block).first<kBatchFixed>()).store<0>(first);
  return true;
}

void Outbox::repeat_owed(std::uint32_t number) {
  const auto own = static_cast<std::uint16_t>(owed_.preamble.number - owed_.repeats);
  const std::size_t length = owed_.end - owed_.begin;
  const bool same = owed_.peer == open_.peer && owed_.preamble.session == open_.preamble.session &&
                    owed_.preamble.peer_session == open_.preamble.peer_session && owed_.next == number;
  if (!same || kBatchFixed + length > block_bytes_ / 2) return pay();
  std::ranges::copy(bytes(owed_.block).subspan(owed_.begin, length), bytes(open_.block).begin() + kBatchFixed);
  open_.repeats = open_.preamble.number = own;
  open_.begin = open_.end = kBatchFixed + length;
  --blocks_[owed_.block].waiting;
  owed_.block = kNone;
}

bool Outbox::gather(PeerId peer, const Preamble& preamble, std::uint32_t number, const WrittenHeader& header) {
  // Half of a block at most are its own, so that they find room in the next.
  const auto fits = [&] {
    const std::size_t end = open_.end + header.size();
    const bool first = open_.end == open_.begin;
    return end <= block_bytes_ && (first || kBatchFixed + end - open_.begin <= block_bytes_ / 2);
  };
  if (open_.block == kNone || open_.peer != peer || open_.next != number || !fits()) {
    close();
    if (kBatchFixed + header.size() > block_bytes_ || !room(2)) return false;
    if (owes() && kBatchFixed + owed_.end - owed_.begin + header.size() > block_bytes_) pay();
    if (!begin(peer, preamble, number, header.pair)) return false;
  }
  header.serialize_to(bytes(open_.block).subspan(open_.end));
  open_.end += header.size();
  ++open_.next;
  ++open_.preamble.number;
  return true;
}

void Outbox::wait(const Batch& batch, std::size_t other_path) {
  const Capabilities& can = datagrams_.capabilities();
  TxPacket packet;
  packet.peer = batch.peer;
  packet.path = static_cast<std::uint8_t>((pair_path(batch.pair) + other_path) % can.paths);
  packet.traffic_class = pair_class(batch.pair);
  packet.ect = can.marks;
  packet.header.resize(Preamble::kSize);
  batch.preamble.serialize_to(packet.header.bytes().first<Preamble::kSize>());
  packet.payload = {mr_.get(), batch.block * block_bytes_, batch.end};
  waiting_.push_back({packet, batch.block});
}

void Outbox::close() {
  if (open_.block == kNone) return;
  wait(open_, 0);
  // By its datagram, and by what is owed.
  blocks_[open_.block].waiting = 2;
  ++batches_;
  // Pauses of the sender are no distance of bursts.
  if (const Duration since = now_ - owed_since_; since < 4 * kLongestWait) apart_ += (since - apart_) / 8;
  owed_ = open_;
  owed_since_ = now_;
  open_.block = kNone;
}

void Outbox::pay() {
  if (!owes()) return;
  ++alone_;
  wait(owed_, 1);
  owed_.block = kNone;
}

void Outbox::forget(PeerId peer) {
  if (open_.block != kNone && open_.peer == peer) open_.block = kNone;
  if (owes() && owed_.peer == peer) {
    --blocks_[owed_.block].waiting;
    owed_.block = kNone;
  }
  std::erase_if(waiting_, [&](const Waiting& each) {
    if (each.packet.peer != peer) return false;
    if (each.block != kNone) --blocks_[each.block].waiting;
    return true;
  });
}

Result<void> Outbox::flush(TimePoint now) {
  now_ = now;
  if (owes() && now - owed_since_ >= patience()) pay();
  while (!waiting_.empty()) {
    offered_.clear();
    for (const Waiting& each : waiting_) offered_.push_back(each.packet);
    const auto sent = datagrams_.send(offered_);
    // What can never be sent, because its peer is gone or packets have become shorter, is a loss like any other.
    const bool refused = !sent && sent.error().code == ErrorCode::kInvalidArgument;
    if (!sent && !refused) return tl::unexpected(sent.error());
    const std::size_t gone = refused ? 1 : *sent;
    if (gone == 0) return {};
    if (!refused) taken_ += gone;
    const Capabilities& can = datagrams_.capabilities();
    for (const Waiting& each : std::span(waiting_).first(gone)) {
      if (each.block == kNone) continue;
      --blocks_[each.block].waiting;
      blocks_[each.block].free_at = taken_ + (can.copies ? 0 : can.in_flight);
    }
    waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(gone));
  }
  return {};
}

}  // namespace clustar::transport::io::verbs::uc
