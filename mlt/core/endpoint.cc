#include "mlt/core/endpoint.h"

#include <algorithm>
#include <utility>

namespace clustar::mlt {

Endpoint::Endpoint(const Options& options, std::uint64_t seed)
    : options_(options),
      seed_(seed),
      ledgers_(LedgerBook::Options{}),
      share_(static_cast<std::uint64_t>(static_cast<double>(options.line_rate) *
                                        std::chrono::duration<double>(options.base_rtt).count()) +
                 options.credit_slack,
             options.segment) {}

Endpoint::ConnectionId Endpoint::open(std::uint32_t peer, std::uint64_t secret) {
  ConnectionId id = static_cast<ConnectionId>(connections_.size());
  if (free_.empty()) {
    connections_.emplace_back();
  } else {
    id = free_.back();
    free_.pop_back();
  }
  Connection& connection = connections_[id];
  // A closed connection's places in the rings are still there and must not be taken twice.
  const bool in_ready = connection.in_ready, in_control = connection.in_control, in_events = connection.in_events;
  connection = Connection{};
  connection.in_ready = in_ready;
  connection.in_control = in_control;
  connection.in_events = in_events;
  connection.used = true;
  connection.peer = peer;
  connection.secret = secret;
  by_secret_[secret] = id;
  return id;
}

Endpoint::ConnectionId Endpoint::open_sender(std::uint32_t peer, std::uint64_t secret, TimePoint) {
  const ConnectionId id = open(peer, secret);
  connections_[id].sender = std::make_unique<Sender>(options_, secret, seed_ ^ secret);
  return id;
}

Endpoint::ConnectionId Endpoint::open_receiver(std::uint32_t peer, std::uint64_t secret, TimePoint) {
  const ConnectionId id = open(peer, secret);
  connections_[id].receiver = std::make_unique<Receiver>(options_, secret);
  ++receivers_;
  return id;
}

void Endpoint::close(ConnectionId id) {
  Connection& connection = connections_[id];
  by_secret_.erase(connection.secret);
  share_.promise_over(connection.promised);
  if (connection.served) share_.end();
  connection.posted = connection.served = connection.waits = connection.used = false;
  if (connection.receiver != nullptr) --receivers_;
  connection.sender.reset();
  connection.receiver.reset();
  free_.push_back(id);
  serve_waiting();
}

std::optional<std::uint32_t> Endpoint::send(ConnectionId id, std::uint32_t bytes, std::int32_t tag,
                                            const SendTerms& terms, TimePoint now) {
  const auto message = connections_[id].sender->send(bytes, tag, terms, now);
  after_input(id, now);
  return message;
}

std::optional<std::uint32_t> Endpoint::post(ConnectionId id, std::int32_t tag, std::uint32_t length, TimePoint now) {
  const auto receive = connections_[id].receiver->post(tag, length, ledgers_, now);
  after_input(id, now);
  return receive;
}

Endpoint::Arrival Endpoint::on_packet(std::span<const std::byte> header, std::uint32_t payload, bool marked,
                                      TimePoint now) {
  ++counters_.packets;
  const auto secret = peek_secret(header);
  const auto known = secret ? by_secret_.find(*secret) : by_secret_.end();
  if (known == by_secret_.end()) {
    ++(secret ? counters_.strangers : counters_.malformed);
    return {};
  }
  const auto packet = parse(header);
  if (!packet) {
    ++counters_.malformed;
    return {};
  }
  Arrival arrival{known->second, {}};
  Connection& connection = connections_[arrival.connection];
  if (connection.receiver != nullptr) {
    if (const auto* data = std::get_if<DataHeader>(&*packet)) {
      arrival.placement = connection.receiver->on_data(*data, payload, marked, ledgers_, now);
    } else if (const auto* probe = std::get_if<Probe>(&*packet)) {
      connection.receiver->on_probe(*probe, ledgers_, now);
    }
  } else {
    if (const auto* ack = std::get_if<Ack>(&*packet)) connection.sender->on_ack(*ack, now);
    if (const auto* posted = std::get_if<Posted>(&*packet)) connection.sender->on_posted(*posted, now);
    if (const auto* state = std::get_if<State>(&*packet)) connection.sender->on_state(*state, now);
  }
  after_input(arrival.connection, now);
  return arrival;
}

void Endpoint::queue_control(ConnectionId id) {
  Connection& connection = connections_[id];
  if (connection.in_control || !connection.receiver->has_control()) return;
  connection.in_control = true;
  control_.push_back(id);
}

void Endpoint::after_input(ConnectionId id, TimePoint) {
  Connection& connection = connections_[id];
  if (connection.receiver != nullptr) {
    share_line(id);
    queue_control(id);
  } else if (!connection.in_ready) {
    connection.in_ready = true;
    ready_.push_back(id);
  }
  if (!connection.in_events) {
    connection.in_events = true;
    events_.push_back(id);
  }
  arm(id);
}

void Endpoint::share_line(ConnectionId id) {
  Connection& connection = connections_[id];
  Receiver& receiver = *connection.receiver;
  const bool wants = receiver.active() && receiver.demand() > 0;
  const bool posted = !receiver.active() && receiver.demand() > 0;
  if (posted && !connection.posted) {
    connection.promised = share_.promise(receivers_);
  } else if (!posted && connection.posted) {
    share_.promise_over(std::exchange(connection.promised, 0));
  }
  connection.posted = posted;
  if (wants && !connection.served && !connection.waits) {
    connection.served = share_.begin(id);
    connection.waits = !connection.served;
    connection.window = std::max<std::uint32_t>(2 * options_.segment, connection.window);
  } else if (!wants && connection.served) {
    connection.served = false;
    share_.end();
    serve_waiting();
  }
  if (connection.served) {
    // Grows by what arrives, as in slow start: all who begin together are heard of before any has a large share.
    const std::uint64_t placed = receiver.counters().placed_bytes;
    const std::uint64_t grown = connection.window + (placed - connection.placed_seen);
    connection.placed_seen = placed;
    connection.window = static_cast<std::uint32_t>(std::min<std::uint64_t>(share_.window(), grown));
    receiver.grant(connection.window);
  }
  if (posted) {
    connection.placed_seen = receiver.counters().placed_bytes;
    connection.window = std::max<std::uint32_t>(2 * options_.segment, connection.promised);
    receiver.grant(connection.promised);
  }
}

void Endpoint::serve_waiting() {
  for (ConnectionId id = 0; share_.next(&id);) {
    Connection& connection = connections_[id];
    if (!connection.used || !connection.waits) continue;
    connection.waits = false;
    Receiver& receiver = *connection.receiver;
    if (!receiver.active() || receiver.demand() == 0) continue;
    connection.served = share_.begin(id);
    connection.window = 2 * options_.segment;
    receiver.grant(connection.window);
    queue_control(id);
  }
}

void Endpoint::arm(ConnectionId id) {
  Connection& connection = connections_[id];
  const TimePoint next =
      connection.receiver != nullptr ? connection.receiver->next_timeout() : connection.sender->next_timeout();
  if (next >= connection.armed) return;
  connection.armed = next;
  if (timers_.size() > 4 * connections_.size() + 64) drop_stale_timers();
  timers_.push_back({next, id});
  std::push_heap(timers_.begin(), timers_.end());
}

// Each time an earlier one is armed, the later one stays behind.
void Endpoint::drop_stale_timers() {
  timers_.clear();
  for (ConnectionId id = 0; id < connections_.size(); ++id) {
    if (connections_[id].used && connections_[id].armed != TimePoint::max()) {
      timers_.push_back({connections_[id].armed, id});
    }
  }
  std::make_heap(timers_.begin(), timers_.end());
}

TimePoint Endpoint::next_timeout() const { return timers_.empty() ? TimePoint::max() : timers_.front().at; }

void Endpoint::on_timeout(TimePoint now) {
  while (!timers_.empty() && timers_.front().at <= now) {
    const Timer timer = timers_.front();
    std::pop_heap(timers_.begin(), timers_.end());
    timers_.pop_back();
    Connection& connection = connections_[timer.connection];
    if (!connection.used || connection.armed != timer.at) continue;  // an earlier one was armed since, or it is gone
    connection.armed = TimePoint::max();
    if (connection.receiver != nullptr) {
      connection.receiver->on_timeout(ledgers_, now);
    } else {
      connection.sender->on_timeout(now);
    }
    after_input(timer.connection, now);
  }
}

std::optional<Endpoint::Outgoing> Endpoint::poll_transmit(TimePoint now) {
  while (!control_.empty()) {
    const ConnectionId id = control_.front();
    Connection& connection = connections_[id];
    if (connection.used && connection.receiver != nullptr) {
      if (auto packet = connection.receiver->poll_control(now)) {
        Transmit out;
        out.header = *packet;
        out.path = connection.receiver->control_path();
        return Outgoing{id, connection.peer, out};
      }
      arm(id);
    }
    connection.in_control = false;
    control_.pop_front();
  }
  while (!ready_.empty()) {
    const ConnectionId id = ready_.pop_front();
    Connection& connection = connections_[id];
    if (connection.used && connection.sender != nullptr) {
      if (auto transmit = connection.sender->poll_transmit(now)) {
        ready_.push_back(id);
        return Outgoing{id, connection.peer, *transmit};
      }
      arm(id);
    }
    connection.in_ready = false;
  }
  return std::nullopt;
}

std::optional<Endpoint::Event> Endpoint::poll_event() {
  while (!events_.empty()) {
    const ConnectionId id = events_.front();
    Connection& connection = connections_[id];
    if (connection.used && connection.receiver != nullptr) {
      if (const auto receive = connection.receiver->poll_unstage()) return Event{id, Unstage{*receive}};
      if (const auto done = connection.receiver->poll_done()) return Event{id, *done};
    } else if (connection.used) {
      if (const auto done = connection.sender->poll_done()) return Event{id, *done};
      if (connection.sender->peer_lost() && !std::exchange(connection.lost_told, true)) return Event{id, PeerLost{}};
    }
    connection.in_events = false;
    events_.pop_front();
  }
  return std::nullopt;
}

}  // namespace clustar::mlt
