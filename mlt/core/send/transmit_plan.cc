#include "mlt/core/send/transmit_plan.h"

#include <algorithm>

namespace clustar::mlt {
namespace {

constexpr std::uint32_t kUncreditedBytes = 16 * 1024;  // of one connection, on their way, or one message's

std::uint32_t most_at_once(const Options& options) {
  return options.pace_bytes > 0 ? options.pace_bytes : options.burst_bytes;
}

bool window_open(const TransmitPlan::View& view, std::uint32_t bytes) {
  const std::uint64_t under_way = view.flight.bytes();
  return view.flight.has_room() && (under_way == 0 || under_way + bytes <= view.window);
}

}  // namespace

TransmitPlan::TransmitPlan(const Options& options)
    : options_(options), pacer_(options.line_rate, most_at_once(options), TimePoint{}) {}

// On a slow line the most that may leave at once is a queue of many milliseconds in front of everything else that the
// host sends, its acknowledgements included.
void TransmitPlan::set_rate(std::uint64_t bytes_per_s, TimePoint now) {
  constexpr std::uint64_t kBurstsPerSecond = 1000;
  pacer_.set_rate(bytes_per_s, now);
  const std::uint64_t burst = std::max<std::uint64_t>(bytes_per_s / kBurstsPerSecond, 2u * options_.segment);
  pacer_.set_burst(static_cast<std::uint32_t>(std::min<std::uint64_t>(burst, most_at_once(options_))));
}

void TransmitPlan::add(std::uint32_t id, const SendMessage& message, TimePoint now) {
  agenda_.add(id, message.place.turn, now);
  ranked_ = ranked_ || !message.place.turn.same_place(Turn{});
  if (is_mouse(message)) ++unsent_mice_;
}

void TransmitPlan::move(std::uint32_t id, const SendMessage& message, TimePoint now) {
  ranked_ = ranked_ || !message.place.turn.same_place(Turn{});
  if (message.done() || message.sent == message.packets) return;
  agenda_.remove(id);
  agenda_.add(id, message.place.turn, now);
}

void TransmitPlan::remove(std::uint32_t id, const SendMessage& message) {
  resends_ -= message.resend.count();
  std::erase_if(parity_, [id](const Parity& one) { return one.message == id; });
  if (message.sent == 0 && is_mouse(message)) --unsent_mice_;
  if (message.sent < message.packets) agenda_.remove(id);
}

void TransmitPlan::on_first(std::uint32_t id, const SendMessage& message) {
  if (message.sent == 0 && is_mouse(message)) --unsent_mice_;
  if (message.sent + 1 == message.packets) agenda_.remove(id);
}

void TransmitPlan::mark_resend(SendMessage& message, std::uint32_t index) {
  if (message.resend.set(index)) ++resends_;
}

void TransmitPlan::clear_resend(SendMessage& message, std::uint32_t index) {
  if (message.resend.clear(index)) --resends_;
}

bool TransmitPlan::choose(const View& view, TimePoint now, Choice& choice) {
  paced_ = false;
  if (view.messages.empty()) return false;
  agenda_.release(now);
  if (!parity_.empty()) {
    if (parity(view, now, choice)) return true;
    if (paced_) return false;
  }
  const auto repeated = first_to_repeat(view.messages);
  if (!repeated) return fresh(view, now, choice);
  const auto waiting = agenda_.entries();
  const bool fresh_first = !waiting.empty() && waiting.front().turn.before(view.messages[*repeated].place.turn);
  if (fresh_first && fresh(view, now, choice)) return true;
  if (!paced_ && again(view, *repeated, now, choice)) return true;
  return !paced_ && !fresh_first && fresh(view, now, choice);
}

bool TransmitPlan::parity_sent() {
  if (++parity_.front().next < parity_.front().rows) return false;
  parity_.erase(parity_.begin());
  return true;
}

// With its block, and so before what is new. As what is sent again it waits for no credit: at the end of a message
// there is none left, and that is where it is needed. What goes ahead of its receive has a bound of its own.
bool TransmitPlan::parity(const View& view, TimePoint now, Choice& choice) {
  const Parity& next = parity_.front();
  const bool ahead = !view.messages[next.message].posted;
  if (ahead && !has_uncredited_room(options_.segment, view.flight.uncredited_bytes())) return false;
  if (!window_open(view, options_.segment) || held_back(view.flight, now)) return false;
  choice = {.message = next.message,
            .index = next.block * kMaxParity + next.next,
            .sort = Sort::kParity,
            .uncredited = ahead};
  return true;
}

// What is alone on its way makes no burst: a round trip that once took seconds must not keep it back as long again.
bool TransmitPlan::held_back(const Flight& flight, TimePoint now) {
  send_at_ = pacer_.next_send(now);
  paced_ = flight.bytes() > 0 && send_at_ > now;
  return paced_;
}

// The first message, in the order of turns, of which something is to be sent again.
std::optional<std::uint32_t> TransmitPlan::first_to_repeat(const SendMessages& messages) const {
  std::optional<std::uint32_t> first;
  if (resends_ == 0) return first;
  for (std::uint32_t id = messages.base(); id != messages.end(); ++id) {
    const SendMessage& message = messages[id];
    // What found no room before its receive would find none again.
    if (message.done() || message.resend.count() == 0 || !message.posted) continue;
    if (!first || message.place.turn.before(messages[*first].place.turn)) first = id;
    if (!ranked_) break;
  }
  return first;
}

bool TransmitPlan::again(const View& view, std::uint32_t id, TimePoint now, Choice& choice) {
  const SendMessage& message = view.messages[id];
  std::uint32_t index = message.resend.first_set(0);
  const bool any = message.important.count() > 0;
  for (std::uint32_t i = index; any && i < message.packets; i = message.resend.first_set(i + 1)) {
    if (!message.important.test(i)) continue;
    index = i;
    break;
  }
  const std::uint32_t bytes = packet_bytes(index, message.bytes, options_.segment);
  if (!window_open(view, bytes) || held_back(view.flight, now)) return false;
  choice = {.message = id, .index = index, .sort = Sort::kAgain};
  return true;
}

// A message of one packet neither waits for credit nor behind a long one of its rank; what such messages add to a queue
// is bounded.
bool TransmitPlan::mouse(const View& view, TimePoint now, Choice& choice) {
  if (held_back(view.flight, now)) return false;
  const auto waiting = agenda_.entries();
  for (const Agenda::Entry& entry : waiting) {
    if (entry.turn.rank != waiting.front().turn.rank) return false;
    const SendMessage& message = view.messages[entry.message];
    if (message.sent > 0 || !is_mouse(message)) continue;
    const bool credited = message.state != SendState::kOffered && may_start(message, message.bytes, view);
    if (!credited && !has_uncredited_room(message.bytes, view.flight.uncredited_bytes())) return false;
    choice = {.message = entry.message, .sort = credited ? Sort::kScheduled : Sort::kUncredited, .mouse = true};
    return true;
  }
  return false;
}

bool TransmitPlan::fresh(const View& view, TimePoint now, Choice& choice) {
  if (unsent_mice_ > 0 && view.flight.has_room()) {
    if (mouse(view, now, choice)) return true;
    if (paced_) return false;
  }
  for (const Agenda::Entry& entry : agenda_.entries()) {
    const SendMessage& message = view.messages[entry.message];
    const std::uint32_t index = message.next();
    const std::uint32_t bytes = packet_bytes(index, message.bytes, options_.segment);
    if (!may_start(message, bytes, view)) continue;
    if (!window_open(view, bytes) || held_back(view.flight, now)) return false;
    const bool offered = message.state == SendState::kOffered;
    choice = {.message = entry.message, .index = index, .sort = offered ? Sort::kUncredited : Sort::kScheduled};
    return true;
  }
  return false;
}

bool TransmitPlan::is_mouse(const SendMessage& message) const {
  return message.packets == 1 && message.bytes <= options_.unscheduled_bytes;
}

bool TransmitPlan::may_start(const SendMessage& message, std::uint32_t bytes, const View& view) const {
  if (message.state != SendState::kOffered) return view.credit.covers(bytes);
  return options_.unscheduled_bytes > 0 && has_uncredited_room(bytes, view.flight.uncredited_bytes()) &&
         (message.unscheduled == 0 || message.unscheduled + bytes <= options_.unscheduled_bytes);
}

bool TransmitPlan::lacks_credit(const SendMessage& message, const View& view) const {
  return message.sent < message.packets &&
         !may_start(message, packet_bytes(message.next(), message.bytes, options_.segment), view);
}

bool TransmitPlan::has_uncredited_room(std::uint32_t bytes, std::uint32_t under_way) const {
  return under_way == 0 || under_way + bytes <= std::max(kUncreditedBytes, options_.unscheduled_bytes);
}

TimePoint TransmitPlan::next_timeout() const {
  return paced_ ? std::min(agenda_.next_release(), send_at_) : agenda_.next_release();
}

void TransmitPlan::on_timeout(TimePoint now) {
  agenda_.release(now);
  if (send_at_ <= now) paced_ = false;
}

bool TransmitPlan::is_consistent(const SendMessages& messages) const {
  std::uint32_t resends = 0, mice = 0, unfinished = 0;
  for (std::uint32_t id = messages.base(); id != messages.end(); ++id) {
    const SendMessage& message = messages[id];
    if (message.done()) continue;
    if (message.sent < message.packets) ++unfinished;
    resends += message.resend.count();
    if (message.sent == 0 && is_mouse(message)) ++mice;
  }
  return resends == resends_ && mice == unsent_mice_ && unfinished == agenda_.size();
}

}  // namespace clustar::mlt
