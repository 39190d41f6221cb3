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
  // A batch is taken twice, so of `in_flight` packets at most half have a block of their own.
  const std::uint32_t in_flight = datagrams.capabilities().copies ? 0 : datagrams.capabilities().in_flight;
  auto box = std::unique_ptr<Outbox>(new Outbox(datagrams, in_flight / 2 + static_cast<std::uint32_t>(kMost)));
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
  open_ = next_block_;
  next_block_ = static_cast<std::uint32_t>((next_block_ + 1) % blocks_.size());
  open_peer_ = peer;
  open_preamble_ = preamble;
  open_preamble_.kind = Kind::kHeaders;
  open_preamble_.number = 0;
  open_pair_ = pair;
  open_next_ = number;
  open_used_ = kBatchFixed;
  WireWriter<kBatchFixed>(bytes(open_).first<kBatchFixed>()).store<0>(number);
  return true;
}

bool Outbox::gather(PeerId peer, const Preamble& preamble, std::uint32_t number, const WrittenHeader& header) {
  const bool fits =
      open_ != kNone && open_peer_ == peer && open_next_ == number && open_used_ + header.size() <= block_bytes_;
  if (!fits) {
    close();
    if (kBatchFixed + header.size() > block_bytes_ || !begin(peer, preamble, number, header.pair)) return false;
  }
  header.serialize_to(bytes(open_).subspan(open_used_));
  open_used_ += header.size();
  ++open_next_;
  ++open_preamble_.number;
  return true;
}

// Twice, because its loss is the loss of all its packets; where there is another path, the second goes there.
void Outbox::close() {
  if (open_ == kNone) return;
  TxPacket packet;
  packet.peer = open_peer_;
  packet.path = pair_path(open_pair_);
  packet.traffic_class = pair_class(open_pair_);
  packet.ect = datagrams_.capabilities().marks;
  packet.header.resize(Preamble::kSize);
  open_preamble_.serialize_to(packet.header.bytes().first<Preamble::kSize>());
  packet.payload = {mr_.get(), open_ * block_bytes_, open_used_};
  waiting_.push_back({packet, open_});
  packet.path = static_cast<std::uint8_t>((packet.path + 1) % datagrams_.capabilities().paths);
  waiting_.push_back({packet, open_});
  blocks_[open_].waiting = 2;
  ++batches_;
  open_ = kNone;
}

void Outbox::forget(PeerId peer) {
  if (open_ != kNone && open_peer_ == peer) open_ = kNone;
  std::erase_if(waiting_, [&](const Waiting& each) {
    if (each.packet.peer != peer) return false;
    if (each.block != kNone) --blocks_[each.block].waiting;
    return true;
  });
}

Result<void> Outbox::flush() {
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
