// Which packet a sender sends next.
#include <algorithm>

#include "mlt/core/sender.h"

namespace clustar::mlt {
namespace {

constexpr std::uint8_t kControlClass = 7;
constexpr std::uint8_t kResendClass = 6;
constexpr std::uint8_t kImportantClass = 5;

}  // namespace

std::optional<Transmit> Sender::poll_transmit(TimePoint now) {
  paced_ = false;
  if (peer_lost_) return std::nullopt;
  if (probes_due_ > 0) return next_probe(now);
  if (messages_.empty()) return std::nullopt;
  if (resends_ > 0) {
    if (auto again = next_resend(now)) return again;
    if (paced_) return std::nullopt;
  }
  return next_new(now);
}

std::optional<Transmit> Sender::next_probe(TimePoint now) {
  for (std::uint32_t id = messages_.base(); id != messages_.end(); ++id) {
    Message& message = messages_[id];
    if (!message.probe_due) continue;
    message.probe_due = false;
    --probes_due_;
    ++counters_.probes;
    message.probed_at = now;
    message.open.settled_below = messages_.base();
    Transmit out;
    out.header = Probe{secret_, id, message.sent, message.bytes, options_.segment, sent_units_, message.open};
    out.path = selector_.best();
    out.traffic_class = kControlClass;
    return out;
  }
  probes_due_ = 0;
  return std::nullopt;
}

bool Sender::window_open(std::uint32_t bytes) const {
  const bool full = std::any_of(paths_.begin(), paths_.end(), [](const Path& path) { return path.records.full(); });
  return !full && (in_flight_ == 0 || in_flight_ + bytes <= congestion_.window_bytes());
}

bool Sender::held_back(TimePoint now) {
  send_at_ = pacer_.next_send(now);
  paced_ = send_at_ > now;
  return paced_;
}

std::optional<Transmit> Sender::next_resend(TimePoint now) {
  for (std::uint32_t id = messages_.base(); id != messages_.end(); ++id) {
    Message& message = messages_[id];
    if (message.done || message.resend.count() == 0) continue;
    std::uint32_t index = message.resend.first_set(0);
    for (std::uint32_t i = index; i < message.packets; i = message.resend.first_set(i + 1)) {
      if (!message.important.test(i)) continue;
      index = i;
      break;
    }
    const std::uint32_t bytes = packet_bytes(index, message.bytes, options_.segment);
    if (!window_open(bytes) || held_back(now)) return std::nullopt;
    message.resend.clear(index);
    --resends_;
    return data(id, message, index, true, now);
  }
  resends_ = 0;
  return std::nullopt;
}

std::optional<Transmit> Sender::next_new(TimePoint now) {
  if (distance(next_new_, messages_.base()) < 0) next_new_ = messages_.base();
  while (messages_.contains(next_new_) &&
         (messages_[next_new_].done || messages_[next_new_].sent == messages_[next_new_].packets)) {
    ++next_new_;
  }
  for (std::uint32_t id = next_new_; id != messages_.end(); ++id) {
    Message& message = messages_[id];
    if (message.done || message.sent == message.packets) continue;
    std::uint32_t index = message.first + message.sent;
    if (index >= message.packets) index -= message.packets;
    const std::uint32_t bytes = packet_bytes(index, message.bytes, options_.segment);
    if (!may_start(message, bytes)) continue;
    if (!window_open(bytes) || held_back(now)) return std::nullopt;
    ++message.sent;
    if (!message.posted) message.scheduled += bytes;
    return data(id, message, index, false, now);
  }
  return std::nullopt;
}

// First transmissions go in bursts; what is sent again takes the best path.
std::uint8_t Sender::path_for(std::uint32_t bytes, bool again, TimePoint now) {
  if (again) return selector_.best();
  if (burst_left_ < bytes || burst_left_ == 0) {
    const PathSelector::Choice choice = selector_.choose(rng_, now);
    burst_path_ = choice.path;
    burst_left_ = options_.burst_bytes;
    if (choice.probe) {
      burst_left_ = std::min(burst_left_, std::uint32_t{options_.path.probe_packets} * options_.segment);
    }
  }
  burst_left_ -= std::min(burst_left_, std::max(1u, bytes));
  return burst_path_;
}

Transmit Sender::data(std::uint32_t id, Message& message, std::uint32_t index, bool again, TimePoint now) {
  const std::uint32_t bytes = packet_bytes(index, message.bytes, options_.segment);
  const std::uint8_t path = path_for(bytes, again, now);
  Path& lane = paths_[path];
  DataHeader header;
  header.secret = secret_;
  header.path = path;
  header.retransmission = again;
  header.important = message.important.test(index);
  header.message = id;
  header.index = index;
  header.path_seq = lane.records.end();
  header.message_bytes = message.bytes;
  header.segment = options_.segment;
  header.tx_us =
      static_cast<std::uint32_t>(std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch()).count());
  sent_units_ += units(bytes);
  header.sent_units = sent_units_;
  header.ack_now = again || burst_left_ == 0 || message.sent == message.packets;
  if (!message.open_known) {
    message.open.settled_below = messages_.base();
    header.open = message.open;
  }
  lane.records.push() = Record{id, index, bytes, false, header.open.has_value(), now};
  in_flight_ += bytes;
  message.in_flight.set(index);
  touch(message, now);
  pacer_.on_sent(bytes, now);
  ++counters_.packets;
  counters_.bytes += bytes;
  if (again) ++counters_.retransmitted;
  Transmit out;
  out.header = header;
  out.path = path;
  out.traffic_class = again ? kResendClass : header.important ? kImportantClass : message.bulk_class;
  out.ect = true;
  out.message = id;
  out.offset = index * options_.segment;
  out.length = bytes;
  return out;
}

}  // namespace clustar::mlt
