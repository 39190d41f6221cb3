// Which packet a sender sends next.
#include <algorithm>
#include <cassert>
#include <utility>

#include "mlt/core/recovery.h"
#include "mlt/core/sender.h"
#include "mlt/core/telling.h"

namespace clustar::mlt {
namespace {

constexpr std::uint32_t kLeastBurstBytes = 1024;  // of a burst; a thousand tiny packets on one path are no burst
constexpr std::uint32_t kSidelinedDoubt = 4;      // as much as so many losses in a row
constexpr std::uint32_t kSentKnown = 1u << 31;    // packets of a lane: older numbers cannot be told from newer ones
constexpr std::uint64_t kAcksPerWindow = 4;       // at least; the receiver's own ack_every may make more

}  // namespace

std::optional<SendPlace> Sender::next_place(TimePoint now) {
  if (!choose(now)) return std::nullopt;
  if (chosen_->probe) return SendPlace{};
  const Message& message = messages_[chosen_->message];
  return message.place;
}

bool Sender::poll_transmit(TimePoint now, Transmit& out) {
  if (!choose(now)) return false;
  const Choice next = *std::exchange(chosen_, std::nullopt);
  if (next.probe) return next_probe(out);
  Message& message = messages_[next.message];
  if (next.sort == Sort::kAgain) {
    message.resend.clear(next.index);
    --resends_;
  } else {
    const std::uint32_t bytes = packet_bytes(next.index, message.bytes, options_.segment);
    if (message.state == SendState::kOffered && !next.mouse) message.unscheduled += bytes;
    sent_one(next.message, message);
  }
  return data(next.message, message, next.index, next.sort, now, out);
}

const std::optional<Sender::Choice>& Sender::choose(TimePoint now) {
  if (!chosen_) chosen_ = choice(now);
  return chosen_;
}

std::optional<Sender::Choice> Sender::choice(TimePoint now) {
  paced_ = false;
  if (peer_lost_) return std::nullopt;
  if (probes_due_ > 0) return Choice{.probe = true};
  if (messages_.empty()) return std::nullopt;
  agenda_.release(now);
  const auto repeated = first_to_repeat();
  const auto waiting = agenda_.entries();
  const bool fresh_first = repeated && !waiting.empty() && waiting.front().turn.before(messages_[*repeated].place.turn);
  std::optional<Choice> found;
  if (fresh_first) found = fresh(now);
  if (!found && !paced_ && repeated) found = again(*repeated, now);
  if (!found && !paced_ && !fresh_first) found = fresh(now);
  return found;
}

bool Sender::next_probe(Transmit& out) {
  for (std::uint32_t id = messages_.base(); id != messages_.end(); ++id) {
    Message& message = messages_[id];
    if (!message.probe_due) continue;
    message.probe_due = false;
    --probes_due_;
    ++counters_.probes;
    message.open.settled_below = messages_.base();
    const bool settled = nothing_flies(message);
    out.header =
        Probe{secret_,     settled,     id, message.sent, message.bytes, options_.segment, window_in_doubt(message),
              sent_units_, message.open};
    // Nobody says whether a probe arrived: every other one takes the next path, whatever is known of that.
    const auto turn = static_cast<std::uint8_t>(counters_.probes / 2 % paths_.size());
    out.path = counters_.probes % 2 == 1 ? urgent_path() : turn;
    out.traffic_class = options_.classes.traffic_class(PacketKind::kControl);
    out.ect = false;
    out.message = out.offset = out.length = 0;
    return true;
  }
  assert(probes_due_ == 0);
  return false;
}

// An answer tells a few windows. So each probe begins where the one before ended, at a packet whose fate is not known:
// of those of a STOP that have not come, on their way, or at least not delivered.
std::uint16_t Sender::window_in_doubt(Message& message) {
  if (message.stop_windows.size() > 0) return static_cast<std::uint16_t>(message.stop_windows.first_clear(0));
  const auto from = [&](const auto& first) {
    const std::uint32_t behind = first(message.asked);
    return behind < message.packets ? behind : first(0);
  };
  std::uint32_t packet = from([&](std::uint32_t at) { return message.in_flight.first_set(at); });
  if (packet >= message.packets) packet = from([&](std::uint32_t at) { return message.delivered.first_clear(at); });
  if (packet >= message.packets) return 0;
  const std::uint32_t window = packet / State::kWindow;
  message.asked = (window + Telling::kPerAnswer) * State::kWindow;
  return static_cast<std::uint16_t>(window);
}

bool Sender::is_mouse(const Message& message) const {
  return message.packets == 1 && message.bytes <= options_.unscheduled_bytes;
}

bool Sender::window_open(std::uint32_t bytes) const {
  return full_lanes_ == 0 && (in_flight_ == 0 || in_flight_ + bytes <= congestion_.window_bytes());
}

// What is alone on its way makes no burst: a round trip that once took seconds must not keep it back as long again.
bool Sender::held_back(TimePoint now) {
  send_at_ = pacer_.next_send(now);
  paced_ = in_flight_ > 0 && send_at_ > now;
  return paced_;
}

// The first message, in the order of turns, of which something is to be sent again.
std::optional<std::uint32_t> Sender::first_to_repeat() const {
  std::optional<std::uint32_t> first;
  if (resends_ == 0) return first;
  for (std::uint32_t id = messages_.base(); id != messages_.end(); ++id) {
    const Message& message = messages_[id];
    // What found no room before its receive would find none again.
    if (message.done() || message.resend.count() == 0 || !message.posted) continue;
    if (!first || message.place.turn.before(messages_[*first].place.turn)) first = id;
    if (!ranked_) break;
  }
  return first;
}

std::optional<Sender::Choice> Sender::again(std::uint32_t id, TimePoint now) {
  const Message& message = messages_[id];
  std::uint32_t index = message.resend.first_set(0);
  const bool any = message.important.count() > 0;
  for (std::uint32_t i = index; any && i < message.packets; i = message.resend.first_set(i + 1)) {
    if (!message.important.test(i)) continue;
    index = i;
    break;
  }
  if (!window_open(packet_bytes(index, message.bytes, options_.segment)) || held_back(now)) return std::nullopt;
  return Choice{.message = id, .index = index, .sort = Sort::kAgain};
}

// A message of one packet neither waits for credit nor behind a long one of its rank; what such messages add to a queue
// is bounded.
std::optional<Sender::Choice> Sender::mouse(TimePoint now) {
  if (held_back(now)) return std::nullopt;
  const auto waiting = agenda_.entries();
  for (const Agenda::Entry& entry : waiting) {
    if (entry.turn.rank != waiting.front().turn.rank) return std::nullopt;
    const Message& message = messages_[entry.message];
    if (message.sent > 0 || !is_mouse(message)) continue;
    const bool credited = message.state != SendState::kOffered && may_start(message, message.bytes);
    if (!credited && !uncredited_room(message.bytes)) return std::nullopt;
    return Choice{.message = entry.message, .sort = credited ? Sort::kScheduled : Sort::kUncredited, .mouse = true};
  }
  return std::nullopt;
}

std::optional<Sender::Choice> Sender::fresh(TimePoint now) {
  if (unsent_mice_ > 0 && full_lanes_ == 0) {
    const auto first = mouse(now);
    if (first || paced_) return first;
  }
  for (const Agenda::Entry& entry : agenda_.entries()) {
    const Message& message = messages_[entry.message];
    std::uint32_t index = message.first + message.sent;
    if (index >= message.packets) index -= message.packets;
    const std::uint32_t bytes = packet_bytes(index, message.bytes, options_.segment);
    if (!may_start(message, bytes)) continue;
    if (!window_open(bytes) || held_back(now)) return std::nullopt;
    const bool offered = message.state == SendState::kOffered;
    return Choice{.message = entry.message, .index = index, .sort = offered ? Sort::kUncredited : Sort::kScheduled};
  }
  return std::nullopt;
}

void Sender::sent_one(std::uint32_t id, Message& message) {
  if (message.sent++ == 0 && is_mouse(message)) --unsent_mice_;
  if (message.posted) --unsent_packets_;
  if (message.sent < message.packets) return;
  agenda_.remove(id);
  set_state(message.state, SendState::kSent);
}

// For what must not be lost again: a path that delivered its latest packets, the fastest of them. One that has no
// sample yet may be dead.
std::uint8_t Sender::urgent_path() const {
  // One that is sidelined too: the only good one may have failed since.
  const auto doubt = [&](std::uint32_t p) {
    const bool good = selector_.state(p) == PathSelector::State::kGood;
    return paths_[p].lost_in_row + (paths_[p].acked ? 0 : 1) + (good ? 0 : kSidelinedDoubt);
  };
  std::uint32_t best = selector_.best();
  for (std::uint32_t p = 0; p < paths_.size(); ++p) {
    if (doubt(p) > doubt(best)) continue;
    if (doubt(p) < doubt(best) || selector_.srtt(p) < selector_.srtt(best)) best = p;
  }
  return static_cast<std::uint8_t>(best);
}

// First transmissions go in bursts; what is sent again takes the best path.
std::uint8_t Sender::path_for(std::uint32_t bytes, bool again, TimePoint now) {
  if (again) return urgent_path();
  const bool sidelined = selector_.state(burst_path_) == PathSelector::State::kSidelined;
  if (burst_left_ < bytes || burst_left_ == 0 || sidelined) {
    const PathSelector::Choice choice = selector_.choose(rng_, now);
    burst_path_ = choice.path;
    burst_left_ = options_.burst_bytes;
    if (choice.probe) {
      burst_left_ = std::min(burst_left_, std::uint32_t{options_.path.probe_packets} * options_.segment);
    }
  }
  burst_left_ -= std::min(burst_left_, std::max(kLeastBurstBytes, bytes));
  return burst_path_;
}

PacketKind Sender::kind_of(const Message& message, std::uint32_t index, bool again) const {
  if (in_order(options_.recovery)) return PacketKind::kReliableBulk;  // one lane: nothing may pass
  if (again) return PacketKind::kReliable;
  return message.important.test(index) ? PacketKind::kImportant : message.kind;
}

// Nor will anything fly before the receiver wants it.
bool Sender::nothing_flies(const Message& message) const {
  return message.state == SendState::kSent && message.in_flight.count() == 0 && message.resend.count() == 0;
}

// What is sent again tells the count of its lane, so it proves as much there.
std::uint16_t Sender::passed(Message& message, std::uint32_t lane, bool again) const {
  if (!message.open.tolerant) return 0;
  if (message.passed.size() < lanes_.size()) message.passed.resize(lanes_.size());
  if (!again) ++message.passed[lane];
  return message.passed[lane];
}

// On the first packets of the message, and of each lane it goes on by, which may be faster: hardly a loss hides it from
// those behind. Then now and then; packets of two lengths in turns would be no run for UDP_SEGMENT. What is sent again
// always brings it.
bool Sender::tells_open(Message& message, std::uint32_t lane, bool again) const {
  constexpr std::uint32_t kFirst = 4, kEvery = 16;  // packets
  if (message.open_known || again) return !message.open_known;
  if (message.sent == 1 || lane != message.lane) message.on_lane = 0;
  message.lane = lane;
  ++message.on_lane;
  return message.on_lane <= kFirst || message.on_lane % kEvery == 0;
}

// Whether what goes on after the packet, of the message, the window, the burst or what goes ahead of its receive, goes
// on by its acknowledgement. Each takes a part of the opposite direction's line.
bool Sender::waits_for_answer(const Message& message, const Lane& lane, bool uncredited) const {
  const std::uint64_t window = congestion_.window_bytes();
  // Of small windows every second packet, as TCP's receivers do (RFC 5681, section 4.2).
  const std::uint64_t part = std::max(window / kAcksPerWindow, std::min<std::uint64_t>(2 * options_.segment, window));
  return message.sent == message.packets || lane.unasked_bytes >= part || burst_left_ < options_.segment ||
         (uncredited && !uncredited_room(options_.segment));
}

bool Sender::data(std::uint32_t id, Message& message, std::uint32_t index, Sort sort, TimePoint now, Transmit& out) {
  const bool again = sort == Sort::kAgain;
  const std::uint32_t bytes = packet_bytes(index, message.bytes, options_.segment);
  const std::uint8_t path = path_for(bytes, again, now);
  const PacketKind kind = kind_of(message, index, again);
  const std::uint8_t traffic_class = options_.classes.traffic_class(kind);
  const std::uint32_t lane_number = lanes_.number_or_make(
      path, traffic_class, [this](std::uint8_t number) { return Lane(options_.max_in_flight, number); });
  Lane& lane = lanes_[lane_number];
  if (!std::holds_alternative<DataHeader>(out.header)) out.header.emplace<DataHeader>();
  auto& header = *std::get_if<DataHeader>(&out.header);  // all of it is written: clearing it first would cost as much
  header.secret = secret_;
  header.path = path;
  header.traffic_class = traffic_class;
  header.retransmission = again;
  header.important = message.important.test(index);
  header.settled = again && message.open.tolerant && nothing_flies(message);
  header.message = id;
  header.index = index;
  header.path_seq = lane.records.end();
  header.message_bytes = message.bytes;
  header.segment = options_.segment;
  header.passed = passed(message, lane_number, again);
  sent_units_ += units(bytes);
  header.sent_units = sent_units_;
  const bool uncredited = sort == Sort::kUncredited;
  if (uncredited) uncredited_bytes_ += bytes;
  lane.unasked_bytes += bytes;
  header.ack_now = again || waits_for_answer(message, lane, uncredited);
  if (header.ack_now) lane.unasked_bytes = 0;
  if (!tells_open(message, lane_number, again)) {
    header.open.reset();
  } else {
    message.open.settled_below = messages_.base();
    header.open = message.open;
  }
  if (lane.sent < kSentKnown) ++lane.sent;
  lane.records.push() = Record{id, index, bytes, false, header.open.has_value(), uncredited, header.ack_now, now};
  if (lane.records.full()) ++full_lanes_;
  if (loses_by_time(options_.recovery)) check_losses_at(lane, now + rtt_.patience());
  in_flight_ += bytes;
  message.in_flight.set(index);
  if (again) {
    message.touched_at = now;  // and probes stay as rare as they are, until something arrives
  } else {
    touch(message, now);
  }
  pacer_.on_sent(bytes, now);
  ++counters_.packets;
  counters_.bytes += bytes;
  if (again) ++counters_.retransmitted;
  out.path = path;
  out.traffic_class = traffic_class;
  out.ect = true;
  out.message = id;
  out.offset = index * options_.segment;
  out.length = bytes;
  return true;
}

}  // namespace clustar::mlt
