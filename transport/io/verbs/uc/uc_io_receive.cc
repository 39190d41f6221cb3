// Receiving: writes, datagrams, and what the two sides say to each other.
#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <utility>

#include "transport/base/bytes.h"
#include "transport/io/verbs/uc/uc_io.h"

namespace clustar::transport::io::verbs::uc {
namespace {

constexpr std::uint32_t kReceivesAtOnce = 64;
// So many headers in a row that tell of writes of which none came: not loss, but a pair that does not work.
constexpr std::uint32_t kSilent = 1024;
// A header waits for its write once to twice so long.
constexpr Duration kHeaderWaits = std::chrono::milliseconds(250);
constexpr int kMostAsks = 9;
constexpr Duration kAskAfter = std::chrono::milliseconds(10);  // doubled each time: 5 s in all

}  // namespace

// Everything that is not the caller's: completions, the thread's answers, timers.
Result<void> UcIo::step(TimePoint now) {
  if (auto taken = take_writes(); !taken) return taken;
  if (windows_ != nullptr) {
    while (const auto bound = windows_->poll()) {
      const auto id = static_cast<std::uint32_t>(bound->tag);
      const auto found = targets_.find(id);
      if (found == targets_.end()) continue;
      landings_.bound(id, bound->rkey, registered(found->second.mr)->address(found->second.offset), now);
    }
    if (!windows_->problem().empty()) warn_once(windows_said_, windows_->problem());
  }
  take_pair_jobs(now);
  if (now >= expire_at_) {
    expire_at_ = now + kHeaderWaits;
    for (auto& [id, peer] : peers_) {
      if (peer.join) peer.join->expire();
    }
  }
  tell(now);
  return outbox_->flush(now);
}

Result<void> UcIo::take_writes() {
  std::array<ibv_wc, 64> completions;
  for (;;) {
    const auto taken = recv_queue_.poll(completions);
    if (!taken) return tl::unexpected(taken.error());
    if (*taken == 0) break;
    missing_receives_ += static_cast<std::uint32_t>(*taken);
    for (const ibv_wc& done : std::span(completions).first(*taken)) {
      if (done.status != IBV_WC_SUCCESS || (done.wc_flags & IBV_WC_WITH_IMM) == 0) continue;
      const auto from = in_by_number_.find(done.qp_num);
      if (from == in_by_number_.end()) continue;
      Peer* peer = find(from->second.first);
      if (peer == nullptr) continue;
      peer->in.at(from->second.second).silent = 0;
      join_of(*peer).on_write(ntohl(done.imm_data), done.byte_len);
    }
  }
  post_receives();
  return {};
}

void UcIo::post_receives() {
  std::array<ibv_recv_wr, kReceivesAtOnce> requests;
  while (missing_receives_ >= kReceivesAtOnce) {
    for (std::uint32_t i = 0; i < kReceivesAtOnce; ++i) {
      requests[i] = {};
      requests[i].next = i + 1 < kReceivesAtOnce ? &requests[i + 1] : nullptr;
    }
    // Fewer receives cost writes, nothing else.
    if (!receives_.post(requests[0])) return;
    missing_receives_ -= kReceivesAtOnce;
  }
}

void UcIo::take_pair_jobs(TimePoint now) {
  while (auto job = maker_.poll()) on_pair_job(std::move(*job), now);
}

// A pair that nobody waits for any more ends here.
void UcIo::on_pair_job(PairJob job, TimePoint now) {
  Peer* peer = find(job.peer);
  if (peer == nullptr || peer->session != job.session) return;
  if (job.what == PairJob::What::kAnswer) {
    const auto found = peer->in.find(job.key);
    if (found == peer->in.end() || found->second.pair || !(found->second.theirs == job.theirs)) return;
    if (job.error) {
      warn_once(pairs_said_, job.error->message);
      peer->in.erase(found);
      return;
    }
    found->second.ours = job.ours;
    found->second.pair = std::move(job.pair);
    in_by_number_[job.ours.queue_pair] = {job.peer, job.key};
    std::array<std::byte, PairEnd::kSize> body;
    job.ours.serialize_to(body);
    say(*peer, Kind::kWelcome, body);
    return;
  }
  const auto found = peer->out.find(job.key);
  if (found == peer->out.end()) return;
  OutPair& pair = found->second;
  if (job.what == PairJob::What::kMake && pair.state == OutPair::State::kMaking) {
    if (job.error) return fail_pair(*peer, job.key, pair, job.error->message);
    pair.state = OutPair::State::kAsking;
    pair.ours = job.ours;
    pair.pair = std::move(job.pair);
    pair.asked = 0;
    pair.due = pairs_due_ = now;
  } else if (job.what == PairJob::What::kConnect && pair.state == OutPair::State::kConnecting &&
             pair.ours == job.ours) {
    if (job.error) return fail_pair(*peer, job.key, pair, job.error->message);
    pair.state = OutPair::State::kUp;
    pair.due = TimePoint::max();
    pair.most_bytes = mtu_bytes(lesser(pair_parts_.mtu, job.theirs.mtu));
    pair.writer = writer_.add(std::move(*job.pair));
    ++counters_.pairs_up;
  }
}

// What is due to be said, grants and questions for pairs.
void UcIo::tell(TimePoint now) {
  while (outbox_->room()) {
    const auto due = landings_.poll(now);
    if (!due) break;
    const Peer* peer = find(due->peer);
    if (peer == nullptr) continue;
    std::array<std::byte, Grant::kSize> body;
    due->grant.serialize_to(body);
    say(*peer, Kind::kGrants, body, static_cast<std::uint8_t>(counters_.grants_told++ % capabilities_.paths), 1);
  }
  if (now < pairs_due_) return;
  pairs_due_ = TimePoint::max();
  for (auto& [id, peer] : peers_) {
    for (auto each = peer.out.begin(); each != peer.out.end();) {
      auto& [key, pair] = *each;
      const bool due = pair.due <= now;
      if (due && pair.state == OutPair::State::kFailed) {
        --out_pairs_;
        each = peer.out.erase(each);
        continue;
      }
      if (due && pair.state == OutPair::State::kAsking) {
        if (pair.asked == kMostAsks) {
          fail_pair(peer, key, pair, "it does not answer");
        } else {
          std::array<std::byte, PairEnd::kSize> body;
          pair.ours.serialize_to(body);
          say(peer, Kind::kHello, body, static_cast<std::uint8_t>((pair_path(key) + pair.asked) % capabilities_.paths));
          pair.due = now + kAskAfter * (1 << pair.asked++);
        }
      }
      pairs_due_ = std::min(pairs_due_, pair.due);
      ++each;
    }
  }
}

std::size_t UcIo::deliver(std::span<RxPacket> packets, TimePoint now) {
  std::size_t filled = 0;
  for (auto& [id, peer] : peers_) {
    while (peer.join && filled < packets.size()) {
      const auto whole = peer.join->poll();
      if (!whole) break;
      const auto bytes = landings_.take(whole->grant, id, whole->segment, whole->bytes);
      if (!bytes) {
        ++counters_.unplaced;
        headers_.free(whole->block);
        continue;
      }
      ++counters_.packets_placed;
      packets[filled++] = {.peer = id,
                           .path = pair_path(whole->pair),
                           .traffic_class = pair_class(whole->pair),
                           .ecn = whole->ecn,
                           .trimmed = false,
                           .rx_time = now,
                           .header = headers_.get(whole->block),
                           .payload = *bytes,
                           .cookie = whole->block,
                           .placed = true};
    }
  }
  return filled;
}

Result<std::size_t> UcIo::receive(std::span<RxPacket> packets) {
  const TimePoint now = clock_.now();
  if (auto done = step(now); !done) return tl::unexpected(done.error());
  std::size_t filled = deliver(packets, now);
  while (filled < packets.size()) {
    if (rx_next_ == rx_count_) {
      const auto got = datagrams_->receive(rx_);
      if (!got && filled == 0) return got;
      rx_next_ = 0;
      rx_count_ = got ? *got : 0;
      if (rx_count_ == 0) break;
    }
    const RxPacket& packet = rx_[rx_next_++];
    if (!packet.header.empty() && packet.header[0] == static_cast<std::byte>(Kind::kPacket) &&
        packet.header.size() > 1) {
      packets[filled] = packet;
      packets[filled++].header = packet.header.subspan(1);
      ++counters_.datagrams_received;
      continue;
    }
    on_control(packet, now);
    datagrams_->release(std::span(&packet, 1));
    filled += deliver(packets.subspan(filled), now);
  }
  if (auto flushed = outbox_->flush(now); !flushed && filled == 0) return tl::unexpected(flushed.error());
  return filled;
}

void UcIo::release(std::span<const RxPacket> packets) {
  for (std::size_t i = 0; i < packets.size();) {
    std::size_t run = i;
    while (run < packets.size() && !packets[run].placed) ++run;
    if (run > i) datagrams_->release(packets.subspan(i, run - i));
    for (i = run; i < packets.size() && packets[i].placed; ++i) {
      headers_.free(static_cast<std::uint32_t>(packets[i].cookie));
    }
  }
}

void UcIo::on_control(const RxPacket& packet, TimePoint now) {
  const auto preamble = Preamble::parse(packet.header);
  Peer* peer = find(packet.peer);
  if (!preamble || peer == nullptr) {
    ++(preamble ? counters_.stale : counters_.malformed);
    return;
  }
  if (preamble->session != peer->peer_session) {
    const bool older = static_cast<std::int32_t>(preamble->session - peer->peer_session) < 0;
    if (peer->peer_session != 0 && older) {
      ++counters_.stale;
      return;
    }
    post_chain();
    if (peer->peer_session != 0) reset(*peer);
    peer->peer_session = preamble->session;
    landings_.tell_again(peer->id, now);
  }
  if (preamble->peer_session != 0 && preamble->peer_session != peer->session) {
    ++counters_.stale;
    if (preamble->kind != Kind::kSession) say(*peer, Kind::kSession, {});
    return;
  }
  on_body(*peer, *preamble, packet, now);
}

void UcIo::on_body(Peer& peer, const Preamble& preamble, const RxPacket& packet, TimePoint) {
  const auto body = packet.header.subspan(Preamble::kSize);
  if (preamble.kind == Kind::kHeaders) return on_headers(peer, preamble, packet);
  if (preamble.kind == Kind::kGrants || preamble.kind == Kind::kRevoke) {
    const auto grant = Grant::parse(body);
    if (!grant) {
      ++counters_.malformed;
    } else if (preamble.kind == Kind::kRevoke) {
      peer.granted.on_revoke(grant->id);
    } else if (peer.granted.on_grant(*grant)) {
      ++counters_.grants_heard;
    }
    return;
  }
  if (preamble.kind == Kind::kSession) return;
  const auto end = PairEnd::parse(body);
  if (!end || pair_path(end->key) >= capabilities_.paths) {
    ++counters_.malformed;
  } else if (preamble.kind == Kind::kHello) {
    on_hello(peer, *end);
  } else if (preamble.kind == Kind::kWelcome) {
    on_welcome(peer, *end);
  } else if (const auto found = peer.out.find(end->key); found != peer.out.end()) {
    OutPair& pair = found->second;
    const bool meant = end->answers == 0 || pair.ours.queue_pair == end->answers;
    if (pair.state == OutPair::State::kUp && meant) {
      fail_pair(peer, end->key, pair, "it hears of writes, but none arrive");
    }
  }
}

void UcIo::on_hello(Peer& peer, const PairEnd& theirs) {
  if (counters_.unsure > 0) return;  // no pair may write any more
  const auto found = peer.in.find(theirs.key);
  if (found != peer.in.end() && !found->second.pair) return;  // the thread is at it, or at an older one: it asks again
  if (found != peer.in.end() && found->second.theirs == theirs) {
    std::array<std::byte, PairEnd::kSize> body;
    found->second.ours.serialize_to(body);
    return say(peer, Kind::kWelcome, body);
  }
  if (found != peer.in.end()) {
    in_by_number_.erase(found->second.pair->number());
    peer.in.erase(found);
  } else if (in_by_number_.size() + maker_.open() >= options_.most_pairs) {
    return;
  }
  peer.in[theirs.key].theirs = theirs;
  maker_.submit({.what = PairJob::What::kAnswer,
                 .peer = peer.id,
                 .session = peer.session,
                 .key = theirs.key,
                 .gid = peer.gid,
                 .theirs = theirs});
}

void UcIo::on_welcome(Peer& peer, const PairEnd& theirs) {
  const auto found = peer.out.find(theirs.key);
  if (found == peer.out.end()) return;
  OutPair& pair = found->second;
  if (pair.state != OutPair::State::kAsking || pair.ours.queue_pair != theirs.answers) return;
  pair.state = OutPair::State::kConnecting;
  pair.due = TimePoint::max();
  maker_.submit({.what = PairJob::What::kConnect,
                 .peer = peer.id,
                 .session = peer.session,
                 .key = theirs.key,
                 .dscp = pair.dscp,
                 .gid = peer.gid,
                 .theirs = theirs,
                 .ours = pair.ours,
                 .pair = std::exchange(pair.pair, std::nullopt)});
}

void UcIo::on_headers(Peer& peer, const Preamble& preamble, const RxPacket& packet) {
  std::span<const std::byte> rest = packet.payload;
  if (rest.size() < kBatchFixed) {
    ++counters_.malformed;
    return;
  }
  std::uint32_t number = WireReader<kBatchFixed>(rest.first<kBatchFixed>()).load<std::uint32_t, 0>();
  rest = rest.subspan(kBatchFixed);
  Join& join = join_of(peer);
  for (std::uint16_t i = 0; i < preamble.number; ++i, ++number) {
    const auto header = WrittenHeader::parse(rest);
    if (!header || pair_path(header->pair) >= capabilities_.paths) {
      ++counters_.malformed;
      return;
    }
    rest = rest.subspan(header->size());
    landings_.used(header->grant, peer.id);
    // The batch went the way of the writes of its path, so its mark is theirs; of other paths nothing is known.
    const bool marked = packet.ecn == Ecn::kCe && pair_path(header->pair) == packet.path;
    const Ecn plain = capabilities_.marks && header->ect ? Ecn::kEct0 : Ecn::kNotEct;
    const Join::Heard heard = join.on_header(number, *header, marked && header->ect ? Ecn::kCe : plain);
    if (heard == Join::Heard::kWaits || heard == Join::Heard::kNoRoomAndWaits)
      on_missing_write(peer, header->pair, i == 0);
  }
}

void UcIo::on_missing_write(Peer& peer, std::uint8_t key, bool first_of_batch) {
  PairEnd end{.key = key, .mtu = static_cast<std::uint8_t>(pair_parts_.mtu)};
  if (const auto found = peer.in.find(key); found != peer.in.end()) {
    InPair& pair = found->second;
    if (++pair.silent <= kSilent) return;
    // They may have come since this step began. Its error is the next step's.
    static_cast<void>(take_writes());
    if (pair.silent == 0) return;
    pair.silent = 0;
    end = pair.ours;
    end.answers = pair.theirs.queue_pair;
  } else if (!first_of_batch) {
    return;
  }
  std::array<std::byte, PairEnd::kSize> body;
  end.serialize_to(body);
  say(peer, Kind::kDown, body);
}

}  // namespace clustar::transport::io::verbs::uc
