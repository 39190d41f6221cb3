// Sending: which packets are written into place, and what goes with them.
#include <algorithm>

#include "transport/io/verbs/uc/uc_io.h"

namespace clustar::transport::io::verbs::uc {

// Null: it is not up (yet), or was made for another DSCP; the first who asks has it made, for the own.
OutPair* UcIo::pair_for(Peer& peer, std::uint8_t key, std::uint8_t dscp) {
  const auto found = peer.out.find(key);
  if (found != peer.out.end()) {
    OutPair& pair = found->second;
    return pair.state == OutPair::State::kUp && pair.dscp == dscp ? &pair : nullptr;
  }
  if (out_pairs_ >= options_.most_pairs) return nullptr;
  ++out_pairs_;
  peer.out.emplace(key, OutPair{}).first->second.dscp = dscp;
  maker_.submit({.what = PairJob::What::kMake, .peer = peer.id, .session = peer.session, .key = key, .gid = peer.gid});
  return nullptr;
}

bool UcIo::writable(const TxPacket& packet) {
  if (packet.destination.slot == 0 || packet.payload.length == 0) return false;
  if (registered(packet.payload.mr) == nullptr) return false;
  const std::size_t header = packet.header.bytes().size();
  const MemorySlice& payload = packet.payload;
  const std::size_t memory = payload.mr->memory().length;
  const bool valid = packet.path < capabilities_.paths && packet.traffic_class < 8 && header > 0 &&
                     header <= capabilities_.header_bytes && header + payload.length <= capabilities_.max_packet &&
                     payload.offset <= memory && payload.length <= memory - payload.offset;
  Peer* peer = valid ? find(packet.peer) : nullptr;
  if (peer == nullptr || !peer->granted.can_take(packet.destination, payload.length)) return false;
  const std::uint8_t key = pair_key(packet.path, packet.traffic_class);
  const OutPair* pair = pair_for(*peer, key, packet.dscp);
  if (pair == nullptr || payload.length > pair->most_bytes) return false;
  if (writer_.room(pair->writer)) return true;
  fail_pair(*peer, key, peer->out.at(key), writer_.problem(pair->writer));
  return false;
}

// The number is taken before the write is posted; if posting fails, its header waits in vain: a loss.
UcIo::Way UcIo::write(const TxPacket& packet, std::uint64_t taken) {
  if (!writable(packet)) return Way::kDatagram;
  Peer& peer = *find(packet.peer);
  const std::uint8_t key = pair_key(packet.path, packet.traffic_class);
  const OutPair& pair = peer.out.at(key);
  if (chain_.size() == Writer::kMostChain || (!chain_.empty() && chain_pair_ != pair.writer)) post_chain();
  if (writer_.room(pair.writer).value_or(0) <= chain_.size()) {
    post_chain();
    writer_.poll();
    if (writer_.room(pair.writer).value_or(0) == 0) return Way::kFull;
  }
  const Preamble preamble{Kind::kHeaders, 0, peer.session, peer.peer_session};
  WrittenHeader header{.segment = packet.destination.segment, .pair = key, .ect = packet.ect};
  header.header = packet.header.bytes();
  header.grant = peer.granted.id_of(packet.destination.slot);
  if (!outbox_->gather(peer.id, preamble, peer.next_number, header)) return Way::kFull;
  const auto target = peer.granted.take(packet.destination, packet.payload.length);
  if (chain_.empty()) {
    chain_pair_ = pair.writer;
    chain_taken_ = taken;
  }
  chain_.push_back({.from = registered(packet.payload.mr)->slice(packet.payload.offset, packet.payload.length),
                    .address = target->address,
                    .rkey = target->rkey,
                    .number = peer.next_number++});
  ++counters_.packets_written;
  return Way::kWritten;
}

void UcIo::post_chain() {
  if (chain_.empty()) return;
  // A pair that has failed is found out by the next packet for it.
  static_cast<void>(writer_.post(chain_pair_, chain_, chain_taken_));
  chain_.clear();
}

// Those from the front that are not written into place.
Result<std::size_t> UcIo::send_datagrams(std::span<const TxPacket> packets, std::uint64_t taken, bool& full) {
  std::size_t count = 0;
  for (; count < std::min(packets.size(), tx_.size()); ++count) {
    const TxPacket& packet = packets[count];
    if (count > 0 && writable(packet)) break;
    const std::size_t header = packet.header.bytes().size();
    if (header == 0 || header > capabilities_.header_bytes) {
      if (count > 0) break;
      return fail(ErrorCode::kInvalidArgument, "verbs UC: a packet with a header of " + std::to_string(header) +
                                                   " bytes; 1 to " + std::to_string(capabilities_.header_bytes) +
                                                   " are allowed");
    }
    TxPacket& out = tx_[count];
    out = packet;
    out.header.resize(header + 1);
    out.header.bytes()[0] = static_cast<std::byte>(Kind::kPacket);
    std::ranges::copy(packet.header.bytes(), out.header.bytes().begin() + 1);
  }
  const auto sent = datagrams_->send(std::span(tx_).first(count));
  if (!sent) return sent;
  outbox_->passed(*sent);
  const Capabilities& below = datagrams_->capabilities();
  if (*sent > 0 && !below.copies) datagram_groups_.push_back({taken, outbox_->taken() + below.in_flight});
  counters_.datagrams_sent += *sent;
  full = *sent < count;
  return sent;
}

// What payload may still be read is bounded, whichever way it went: see Capabilities::in_flight.
bool UcIo::may_take(std::uint64_t number) {
  while (!datagram_groups_.empty() && datagram_groups_.front().free_at <= outbox_->taken())
    datagram_groups_.pop_front();
  // Behind many writes only few datagrams went, and none may follow that would tell.
  if (!datagram_groups_.empty() && number - datagram_groups_.front().first >= capabilities_.in_flight) {
    datagrams_->quiesce();
    while (!datagram_groups_.empty()) datagram_groups_.pop_front();
  }
  const auto oldest = writer_.oldest();
  return !oldest || number - *oldest < capabilities_.in_flight;
}

Result<std::size_t> UcIo::send(std::span<const TxPacket> packets) {
  const TimePoint now = clock_.now();
  if (auto done = step(now); !done) return tl::unexpected(done.error());
  std::size_t taken = 0;
  bool full = false;
  std::optional<Error> error;
  while (taken < packets.size() && !full && !error) {
    full = !may_take(taken_ + taken);
    if (full) break;
    const Way way = write(packets[taken], taken_ + taken);
    full = way == Way::kFull;
    if (way == Way::kWritten) ++taken;
    if (way != Way::kDatagram) continue;
    // Headers go before the datagrams that follow them: a question behind a message would else overtake it.
    post_chain();
    outbox_->close();
    if (const auto flushed = outbox_->flush(now); !flushed) error = flushed.error();
    full = !outbox_->empty();
    if (full || error) continue;
    const auto sent = send_datagrams(packets.subspan(taken), taken_ + taken, full);
    if (sent) {
      taken += *sent;
    } else {
      error = sent.error();
    }
  }
  post_chain();
  outbox_->close();
  if (const auto flushed = outbox_->flush(now); !flushed && !error) error = flushed.error();
  writer_.poll();
  taken_ += taken;
  took_less_ = taken < packets.size();
  if (error && taken == 0) return tl::unexpected(*error);
  return taken;
}

void UcIo::fail_pair(Peer& peer, std::uint8_t key, OutPair& pair, const std::string& why) {
  if (pair.state == OutPair::State::kUp) writer_.remove(pair.writer);
  pair.pair.reset();
  pair.state = OutPair::State::kFailed;
  pair.due = clock_.now() + options_.pair_pause;
  pairs_due_ = std::min(pairs_due_, pair.due);
  ++counters_.pairs_failed;
  warn_once(pairs_said_, "verbs UC: no writes to " + peer.gid.to_string() + " on path " +
                             std::to_string(pair_path(key)) + ", what goes there goes by datagrams: " + why);
}

}  // namespace clustar::transport::io::verbs::uc
