#include "tests/sim/mlt_storm_host.h"

#include <algorithm>
#include <array>
#include <variant>

#include "transport/base/rng.h"

namespace clustar::mlt::test {

using transport::io::Ecn;

StormHost::StormHost(sim::Host& host, const StormPlan& plan, std::uint32_t number)
    : host_(host),
      plan_(plan),
      host_plan_(plan.hosts[number]),
      core_(host_plan_.options, plan.seed * 64 + number),
      rng_(plan.seed * 64 + number + 32) {
  host_.attach(this);
  for (const StormClock::Jump& jump : host_plan_.clock.jumps) kick_at(jump.at);
  for (const StormClock::Halt& halt : host_plan_.clock.halts) kick_at(halt.until);
}

void StormHost::open_sender(const StormFlow& flow, Witness& witness) {
  const auto id = core_.open_sender(flow.to, flow.secret, clock(now()), flow.sender);
  end_of_[id] = ends_.size();
  ends_.push_back({&flow, &witness, id, true});
}

void StormHost::open_receiver(const StormFlow& flow, Witness& witness) {
  const auto id = core_.open_receiver(flow.from, flow.secret, clock(now()), flow.receiver);
  end_of_[id] = ends_.size();
  ends_.push_back({&flow, &witness, id, false});
}

Duration StormHost::told_trip(const StormFlow& flow) {
  for (const End& end : ends_) {
    if (end.flow == &flow && !end.sends) return core_.receiver(end.id).round_trip();
  }
  return {};
}

void StormHost::kick_at(TimePoint at) {
  host_.simulation().at(at, [this] { kick(); });
}

// A frozen host does nothing, and what is due then is due when it thaws.
void StormHost::kick() {
  if (host_.frozen()) {
    kick_at(now() + std::chrono::microseconds(50));
  } else {
    run(now());
  }
}

void StormHost::on_packet(sim::SimPacket& packet, TimePoint now) {
  if (packet.corrupted) return;  // UDP's checksum would not let it pass
  const bool can_stage = now >= plan_.heal || !rng_.chance(host_plan_.refuses_staging);
  const auto arrival =
      core_.on_packet(packet.header.bytes(), packet.payload_bytes, packet.ecn == Ecn::kCe, clock(now), can_stage);
  if (arrival.placement.kind != Placement::Kind::kDrop) {
    const End& end = ends_[end_of_.at(arrival.connection)];
    end.witness->arrived(arrival.placement, packet.payload_bytes, packet.payload_tag);
  }
  run(now);
}

TimePoint StormHost::on_wake(TimePoint now) {
  core_.on_timeout(clock(now));
  run(now);
  return wake_at(now);
}

// When the host's clock shows what the core waits for. Jumps and halts of the clock come with a kick of their own.
TimePoint StormHost::wake_at(TimePoint now) const {
  const TimePoint due = core_.next_timeout();
  if (due == TimePoint::max()) return due;
  return std::max(now + Duration(1), now + (due - clock(now)));
}

void StormHost::run(TimePoint now) {
  bool more = true;
  while (more) {
    more = handle_events();
    while (transmit(now)) {
    }
    more = handle_events() || more;
    more = feed(now) || more;
  }
  most_timers_ = std::max(most_timers_, core_.timers());
  host_.set_wake(wake_at(now));
}

bool StormHost::feed(TimePoint now) {
  bool any = false;
  for (End& end : ends_) any = (end.sends ? send_due(end, now) : post_due(end, now)) || any;
  return any;
}

void StormHost::call_back(End& end, TimePoint at) {
  if (end.called_at == at) return;
  end.called_at = at;
  kick_at(at);
}

bool StormHost::send_due(End& end, TimePoint now) {
  const std::vector<StormMessage>& messages = end.flow->messages;
  const std::size_t before = end.next;
  while (end.next < messages.size() && messages[end.next].send_at <= now && !core_.sender(end.id).full()) {
    const StormMessage& message = messages[end.next];
    SendTerms terms = message.terms;
    if (message.important.size() > 0) terms.important = &message.important;
    const std::uint64_t whim = mix64(plan_.seed * kGoldenGamma + end.flow->secret + end.next);
    if (plan_.turns) take_turn(terms, whim, now);
    const auto id = core_.send(end.id, message.bytes, message.tag, terms, clock(now));
    if (!id) std::abort();  // the plan asks for what is not allowed
    if (plan_.turns && whim % 8 == 0) core_.set_turn(end.id, *id, {.rank = whim >> 40 & 3}, clock(now));
    end.witness->sent(static_cast<std::uint32_t>(end.next), *id);
    ++end.next;
  }
  if (end.next < messages.size() && messages[end.next].send_at > now) call_back(end, messages[end.next].send_at);
  return end.next != before;
}

// As a policy would have it: ranks, levels for the far end, and some that are paced.
void StormHost::take_turn(SendTerms& terms, std::uint64_t whim, TimePoint now) const {
  terms.turn.rank = whim >> 8 & 3;
  terms.turn.tie = whim >> 12 & 1;
  terms.level = static_cast<std::uint8_t>(whim >> 16 & kMaxLevel);
  if ((whim >> 24 & 7) == 0) terms.turn.not_before = clock(now) + std::chrono::microseconds(whim >> 32 & 511);
}

bool StormHost::post_due(End& end, TimePoint now) {
  const StormFlow& flow = *end.flow;
  const std::size_t before = end.next;
  while (end.next < flow.post_order.size() && !core_.receiver(end.id).full()) {
    const std::uint32_t number = flow.post_order[end.next];
    const StormMessage& message = flow.messages[number];
    if (message.post_at > now) {
      call_back(end, message.post_at);
      break;
    }
    const auto receive = core_.post(end.id, message.tag, message.length, clock(now));
    if (!receive) std::abort();
    end.witness->posted(number, *receive);
    ++end.next;
  }
  return end.next != before;
}

bool StormHost::handle_events() {
  bool any = false;
  while (const auto event = core_.poll_event()) {
    handle(*event);
    any = true;
  }
  return any;
}

void StormHost::handle(const mlt::Endpoint::Event& event) {
  const End& end = ends_[end_of_.at(event.connection)];
  if (const auto* received = std::get_if<ReceiveDone>(&event.what)) {
    end.witness->received(*received, core_.receiver(end.id));
    core_.release(end.id, received->receive);
  } else if (const auto* sent = std::get_if<SendDone>(&event.what)) {
    end.witness->send_done(*sent, core_.sender(end.id));
  } else if (const auto* unstage = std::get_if<mlt::Endpoint::Unstage>(&event.what)) {
    Receiver& receiver = core_.receiver(end.id);
    for (auto piece = receiver.staged(unstage->receive, 0); piece;
         piece = receiver.staged(unstage->receive, piece->number + 1)) {
      end.witness->unstaged(unstage->receive, *piece);
    }
    receiver.unstaged(unstage->receive);
  } else if (std::holds_alternative<mlt::Endpoint::Rebuildable>(event.what)) {
    while (const auto what = core_.receiver(end.id).poll_rebuild()) {
      end.witness->rebuilt(*what);
      core_.rebuilt(end.id, *what, clock(now()));
    }
  } else if (!end.flow->lies) {
    lost_ = true;
  }
}

// Under back-pressure: up to three packets, then none for up to two round trips.
bool StormHost::device_takes(TimePoint now) {
  if (!host_plan_.back_pressure || now >= plan_.heal) return true;
  if (now < device_closed_until_) return false;
  if (device_room_ > 0) {
    --device_room_;
    return true;
  }
  device_room_ = static_cast<std::uint32_t>(between(rng_, 1, 3));
  device_closed_until_ = now + Duration(1 + rng_.below(static_cast<std::uint64_t>(2 * plan_.round_trip.count())));
  kick_at(device_closed_until_);
  return false;
}

bool StormHost::transmit(TimePoint now) {
  if (!has_pending_) {
    if (!device_takes(now) || !core_.poll_transmit(clock(now), out_)) return false;
    fill(out_);
  }
  has_pending_ = !host_.send(pending_);
  return !has_pending_;
}

void StormHost::fill(const mlt::Endpoint::Outgoing& out) {
  const Transmit& transmit = out.transmit;
  pending_.destination = out.peer;
  pending_.path = transmit.path;
  pending_.traffic_class = plan_.one_queue ? 0 : transmit.traffic_class;
  pending_.ecn = transmit.ect ? Ecn::kEct0 : Ecn::kNotEct;
  pending_.payload_bytes = transmit.length;
  const auto* data = std::get_if<DataHeader>(&transmit.header);
  const End& end = ends_[end_of_.at(out.connection)];
  pending_.payload_tag = data == nullptr ? 0 : end.witness->transmitted(*data, transmit);
  std::array<std::byte, kMaxHeader> bytes;
  const std::size_t size = serialize(transmit.header, bytes);
  pending_.header = transport::io::Header(size);
  std::copy_n(bytes.begin(), size, pending_.header.bytes().begin());
}

}  // namespace clustar::mlt::test
