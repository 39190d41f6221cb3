// What a sender's packets say.
#include <algorithm>
#include <utility>

#include "mlt/core/recovery.h"
#include "mlt/core/send/sender.h"
#include "mlt/core/trip_times.h"

namespace clustar::mlt {
namespace {

constexpr Duration kNearLoss = std::chrono::seconds(1);
constexpr std::uint64_t kAcksPerWindow = 4;  // at least; the receiver's own ack_every may make more

}  // namespace

const SendPlace* Sender::next_place(TimePoint now) {
  static constexpr SendPlace kProbes{};
  choose(now);
  if (next_ == Next::kPacket) return &messages_[choice_.message].place;
  return next_ == Next::kProbe ? &kProbes : nullptr;
}

bool Sender::poll_transmit(TimePoint now, Transmit& out) {
  choose(now);
  const Next next = std::exchange(next_, Next::kUnknown);
  if (next == Next::kPacket) return data(choice_, now, out);
  return next == Next::kProbe && probe(out);
}

void Sender::choose(TimePoint now) {
  if (next_ != Next::kUnknown) return;
  if (probing_.peer_lost() || probing_.due()) {
    plan_.rest();
    if (!probing_.peer_lost()) next_ = Next::kProbe;
  } else if (plan_.choose(view(), now, choice_)) {
    next_ = Next::kPacket;
  }
}

bool Sender::probe(Transmit& out) {
  const std::uint32_t id = probing_.take(messages_);
  Message& message = messages_[id];
  ++counters_.probes;
  message.open.forgotten_below = messages_.base();
  out.header = Probe{secret_,
                     message.nothing_flies(),
                     id,
                     message.sent,
                     message.bytes,
                     options_.segment,
                     Probing::window_in_doubt(message),
                     credit_.sent_units(),
                     message.open};
  out.path = paths_.of_probe(counters_.probes);
  out.traffic_class = options_.classes.traffic_class(PacketKind::kControl);
  out.ect = false;
  out.message = out.offset = out.length = 0;
  return true;
}

PacketKind Sender::kind_of(const Message& message, std::uint32_t index, bool again) const {
  if (in_order(options_.recovery)) return PacketKind::kReliableBulk;  // one lane: nothing may pass
  if (again) return PacketKind::kReliable;
  return message.important.test(index) ? PacketKind::kImportant : message.kind;
}

// What is sent again tells the count of its lane, so it proves as much there.
std::uint16_t Sender::passed(Message& message, std::uint32_t lane, bool again) const {
  if (!message.open.tolerant) return 0;
  if (message.passed.size() < flight_.lanes()) message.passed.resize(flight_.lanes());
  if (!again) ++message.passed[lane];
  return message.passed[lane];
}

// On the first packets of the message, and of each lane it goes on by, which may be faster: hardly a loss hides it from
// those behind. Then now and then, and where packets were lost a moment ago, before the receiver's store for packets
// without it is full. Not more often: packets of two lengths in turns are no run for UDP_SEGMENT. What is sent again
// always brings it.
bool Sender::tells_open(Message& message, std::uint32_t lane, bool again, TimePoint now) const {
  constexpr std::uint32_t kFirst = 4, kEvery = 64, kEveryNearLoss = 16;  // packets
  if (message.open_known || again) return !message.open_known;
  if (message.sent == 1 || lane != message.lane) message.on_lane = 0;
  message.lane = lane;
  ++message.on_lane;
  const bool near_loss = lost_at_ && now - *lost_at_ < kNearLoss;
  return message.on_lane <= kFirst || message.on_lane % (near_loss ? kEveryNearLoss : kEvery) == 0;
}

// Whether what goes on after the packet, of the message, the window, the burst or what goes ahead of its receive, goes
// on by its acknowledgement. Each takes a part of the opposite direction's line. `unasked`: bytes of its lane since one
// was asked for, `uncredited`: on their way ahead of their credit; both with the packet.
bool Sender::waits_for_answer(const Message& message, std::uint64_t unasked, std::uint32_t uncredited) const {
  // In whole packets: a window of one and a half holds one, and a sender that waits for the second half waits forever.
  const std::uint64_t window =
      std::max<std::uint64_t>(1, congestion_.window_bytes() / options_.segment) * options_.segment;
  // Of small windows every second packet, as TCP's receivers do (RFC 5681, section 4.2).
  const std::uint64_t part = std::max(window / kAcksPerWindow, std::min<std::uint64_t>(2 * options_.segment, window));
  return message.sent == message.packets || unasked >= part ||
         (paths_.burst_ends() && asks_at_burst_end(options_, flight_.told_trip())) ||
         !plan_.has_uncredited_room(options_.segment, uncredited);
}

void Sender::on_first(const Choice& choice, Message& message, std::uint32_t bytes) {
  if (message.state == SendState::kOffered && !choice.mouse) message.unscheduled += bytes;
  plan_.on_first(choice.message, message);
  if (message.posted) --unsent_packets_;
  if (++message.sent == message.packets) set_state(message.state, SendState::kSent);
  if (message.protect && (message.sent % kParityBlock == 0 || message.sent == message.packets)) {
    add_parity(choice.message, message);
  }
}

void Sender::add_parity(std::uint32_t id, const Message& message) {
  const std::uint32_t block = (message.sent - 1) / kParityBlock;
  if (const std::uint32_t rows = parity_rows(message, block); rows > 0) plan_.add_parity(id, block, rows);
}

// A tolerant message needs it only where more is lost than may stay missing.
std::uint32_t Sender::parity_rows(const Message& message, std::uint32_t block) const {
  if (!flight_.rtt().has_sample()) return 0;
  const std::uint32_t rows = parity_.rows(block_packets(block, message.packets), flight_.rtt().min_rtt());
  if (rows == 0 || !message.open.tolerant || message.important.count() > 0) return rows;
  return parity_.exceeds(message.packets, allowance_.may_miss(message)) ? rows : 0;
}

void Sender::send_parity(const Choice& choice, TimePoint now, Transmit& out) {
  Message& message = messages_[choice.message];
  const bool last = plan_.parity_sent();
  const std::uint32_t bytes = options_.segment;
  const std::uint8_t path = paths_.next(bytes, rng_, now);
  const std::uint8_t traffic_class = options_.classes.traffic_class(message.kind);
  const std::uint32_t lane = flight_.lane(path, traffic_class);
  credit_.spend(bytes);
  DataHeader header;
  header.secret = secret_;
  header.path = path;
  header.traffic_class = traffic_class;
  header.parity = true;
  header.message = choice.message;
  header.index = choice.index;
  header.path_seq = flight_.next_seq(lane);
  header.message_bytes = message.bytes;
  header.segment = options_.segment;
  header.sent_units = credit_.sent_units();
  header.trip = trip_of(flight_.rtt().min_rtt());
  SentPacket packet{choice.message, choice.index, bytes, false, false, choice.uncredited, false, now, true};
  packet.with_open = tells_open(message, lane, false, now);
  const std::uint32_t ahead = choice.uncredited ? flight_.uncredited_bytes() + bytes : 0;
  const bool asks = message.sent < message.packets || last;
  header.ack_now = packet.asked = asks && waits_for_answer(message, flight_.unasked_bytes(lane) + bytes, ahead);
  if (packet.with_open) {
    message.open.forgotten_below = messages_.base();
    header.open = message.open;
  }
  flight_.send(lane, packet, now);
  ++message.parity;
  probing_.touch(message, flight_.rtt(), now);
  plan_.on_sent(bytes, now);
  ++counters_.packets;
  ++counters_.parity;
  counters_.bytes += bytes;
  out.header = header;
  out.path = path;
  out.traffic_class = traffic_class;
  out.ect = true;
  out.message = choice.message;
  out.offset = 0;
  out.length = bytes;
}

bool Sender::data(const Choice& choice, TimePoint now, Transmit& out) {
  if (choice.sort == Sort::kParity) {
    send_parity(choice, now, out);
    return true;
  }
  const std::uint32_t index = choice.index;
  Message& message = messages_[choice.message];
  const bool again = choice.sort == Sort::kAgain;
  const std::uint32_t bytes = packet_bytes(index, message.bytes, options_.segment);
  if (again) {
    plan_.clear_resend(message, index);
  } else {
    on_first(choice, message, bytes);
  }
  const std::uint8_t path = again ? paths_.urgent() : paths_.next(bytes, rng_, now);
  const std::uint8_t traffic_class = options_.classes.traffic_class(kind_of(message, index, again));
  const std::uint32_t lane = flight_.lane(path, traffic_class);
  if (!std::holds_alternative<DataHeader>(out.header)) out.header.emplace<DataHeader>();
  auto& header = *std::get_if<DataHeader>(&out.header);  // all of it is written: clearing it first would cost as much
  header.secret = secret_;
  header.path = path;
  header.traffic_class = traffic_class;
  header.retransmission = again;
  header.important = message.important.test(index);
  header.parity = false;
  header.quiet = again && message.open.tolerant && message.nothing_flies();
  header.message = choice.message;
  header.index = index;
  header.path_seq = flight_.next_seq(lane);
  header.message_bytes = message.bytes;
  header.segment = options_.segment;
  header.passed = passed(message, lane, again);
  credit_.spend(bytes);
  header.sent_units = credit_.sent_units();
  header.trip = flight_.rtt().has_sample() ? trip_of(flight_.rtt().min_rtt()) : std::uint16_t{0};
  const bool uncredited = choice.sort == Sort::kUncredited;
  SentPacket packet{choice.message, index, bytes, false, false, uncredited, false, now};
  const std::uint32_t ahead = uncredited ? flight_.uncredited_bytes() + bytes : 0;
  header.ack_now = packet.asked = again || waits_for_answer(message, flight_.unasked_bytes(lane) + bytes, ahead);
  packet.with_open = tells_open(message, lane, again, now);
  if (!packet.with_open) {
    header.open.reset();
  } else {
    message.open.forgotten_below = messages_.base();
    header.open = message.open;
  }
  flight_.send(lane, packet, now);
  message.in_flight.set(index);
  again ? Probing::sent_again(message, now) : probing_.touch(message, flight_.rtt(), now);
  plan_.on_sent(bytes, now);
  ++counters_.packets;
  counters_.bytes += bytes;
  if (again) ++counters_.retransmitted;
  out.path = path;
  out.traffic_class = traffic_class;
  out.ect = true;
  out.message = choice.message;
  out.offset = index * options_.segment;
  out.length = bytes;
  return true;
}

}  // namespace clustar::mlt
