#include "mlt/core/endpoint.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "mlt/core/trip_times.h"

namespace clustar::mlt {

namespace {

constexpr std::uint64_t kTurnBytes = 64 * 1024;
constexpr int kTurnFloors = 10;      // probe_floors: a connection that is heard and delivers nothing has had its turn
constexpr std::uint32_t kPicks = 8;  // one of them by age alone: as much as CreditShare leaves to the other levels

const Options& checked(const Options& options) {
  options.check();
  return options;
}

// Which end a packet that begins with a secret is for.
bool to_receiver(std::span<const std::byte> header) {
  const auto type = static_cast<PacketType>(header[1]);
  return type == PacketType::kData || type == PacketType::kProbe;
}

}  // namespace

Endpoint::Endpoint(const Options& options, std::uint64_t seed, const Joint& joint)
    : options_(checked(options)),
      seed_(seed),
      ledgers_(LedgerBook::Options{}, joint.received),
      allowances_(LedgerBook::Options{}, joint.sent),
      share_(options.line_rate, options.base_rtt, options.credit_slack, options.segment) {}

Endpoint::ConnectionId Endpoint::open(std::uint32_t peer, std::uint64_t secret, End end) {
  assert(!knows(secret, end));
  ConnectionId id = static_cast<ConnectionId>(connections_.size());
  if (free_.empty()) {
    connections_.emplace_back();
  } else {
    id = free_.back();
    free_.pop_back();
  }
  Connection& connection = connections_[id];
  // A closed connection's places in the rings are still there and must not be taken twice.
  Connection fresh;
  fresh.in_changed = connection.in_changed;
  fresh.in_control = connection.in_control;
  fresh.in_events = connection.in_events;
  fresh.in_served = connection.in_served;
  fresh.in_waiting = connection.in_waiting;
  connection = std::move(fresh);
  connection.used = true;
  connection.peer = peer;
  connection.secret = secret;
  by_secret_[static_cast<std::size_t>(end)][secret] = id;
  return id;
}

Endpoint::ConnectionId Endpoint::open_sender(std::uint32_t peer, std::uint64_t secret, TimePoint,
                                             const Options& options) {
  auto sender = std::make_unique<Sender>(options, allowances_, secret, seed_ ^ secret);
  const ConnectionId id = open(peer, secret, End::kSends);
  connections_[id].sender = std::move(sender);
  return id;
}

Endpoint::ConnectionId Endpoint::open_receiver(std::uint32_t peer, std::uint64_t secret, TimePoint now,
                                               const Options& options) {
  auto receiver = std::make_unique<Receiver>(options, secret);
  const ConnectionId id = open(peer, secret, End::kReceives);
  connections_[id].heard_at = now;
  connections_[id].receiver = std::move(receiver);
  ++receivers_;
  return id;
}

void Endpoint::close(ConnectionId id) {
  Connection& connection = connections_[id];
  by_secret_[connection.receiver != nullptr ? 1 : 0].erase(connection.secret);
  if (connection.share != ShareState::kIdle) change_share(connection, ShareState::kIdle);
  connection.used = false;
  if (connection.receiver != nullptr) --receivers_;
  ready_.remove(id, goes_first());
  connection.sender.reset();
  connection.receiver.reset();
  free_.push_back(id);
  serve_waiting();
}

std::optional<std::uint32_t> Endpoint::send(ConnectionId id, std::uint32_t bytes, std::int32_t tag,
                                            const SendTerms& terms, TimePoint now) {
  const auto message = connections_[id].sender->send(bytes, tag, terms, now, arrivals_++);
  after_input(id, now);
  return message;
}

void Endpoint::set_turn(ConnectionId id, std::uint32_t message, const Turn& turn, TimePoint now) {
  connections_[id].sender->set_turn(message, turn, now);
  after_input(id, now);
}

std::optional<std::uint32_t> Endpoint::post(ConnectionId id, std::int32_t tag, std::uint32_t length, TimePoint now) {
  const auto receive = connections_[id].receiver->post(tag, length, ledgers_, now);
  after_input(id, now);
  return receive;
}

void Endpoint::rebuilt(ConnectionId id, const Rebuild& what, TimePoint now) {
  connections_[id].receiver->rebuilt(what, now);
  after_input(id, now);
}

std::optional<Endpoint::ConnectionId> Endpoint::find(std::span<const std::byte> header) const {
  const auto secret = peek_secret(header);
  if (!secret) return std::nullopt;
  const BySecret& ends = known(to_receiver(header) ? End::kReceives : End::kSends);
  const auto found = ends.find(*secret);
  return found == ends.end() ? std::nullopt : std::optional(found->second);
}

Endpoint::Arrival Endpoint::on_packet(std::span<const std::byte> header, std::uint32_t payload, bool marked,
                                      TimePoint now, bool can_stage, Duration waited) {
  ++counters_.packets;
  const auto found = find(header);
  if (!found) {
    ++(peek_secret(header) ? counters_.strangers : counters_.malformed);
    return {};
  }
  if (!parse(header, packet_)) {
    ++counters_.malformed;
    return {};
  }
  Arrival arrival{*found, {}};
  bool heard = false;
  Connection& connection = connections_[arrival.connection];
  if (connection.receiver != nullptr) {
    if (const auto* data = std::get_if<DataHeader>(&packet_)) {
      heard = true;
      if (!data->retransmission) questions_.earn();
      arrival.placement = connection.receiver->on_data(*data, {payload, marked, can_stage, waited}, ledgers_, now);
    } else if (const auto* probe = std::get_if<Probe>(&packet_)) {
      heard = true;
      connection.receiver->on_probe(*probe, ledgers_, now);
    }
  } else {
    if (const auto* ack = std::get_if<Ack>(&packet_)) {
      questions_.earn();
      connection.sender->on_ack(*ack, now, waited);
    }
    if (const auto* posted = std::get_if<Posted>(&packet_)) connection.sender->on_posted(*posted, now);
    if (const auto* state = std::get_if<State>(&packet_)) connection.sender->on_state(*state, now);
  }
  after_input(arrival.connection, now, heard);
  return arrival;
}

void Endpoint::queue_control(ConnectionId id) {
  Connection& connection = connections_[id];
  if (connection.in_control || !connection.receiver->has_control()) return;
  connection.in_control = true;
  control_.push_back(id);
}

void Endpoint::after_input(ConnectionId id, TimePoint now, bool heard) {
  Connection& connection = connections_[id];
  now_ = now;
  if (connection.receiver != nullptr) {
    if (heard) connection.heard_at = now;
    share_line(id, heard);
    retire_silent(now);
    queue_control(id);
  } else if (!std::exchange(connection.in_changed, true)) {
    changed_.push_back(id);
  }
  if (!connection.in_events) {
    connection.in_events = true;
    events_.push_back(id);
  }
  arm(id);
  // Each look costs as much as the connection is long.
  [[maybe_unused]] const bool look = ++inputs_ % 64 == 0;
  assert(!look ||
         (connection.receiver != nullptr ? connection.receiver->is_consistent() : connection.sender->is_consistent()));
}

void Endpoint::change_share(Connection& connection, ShareState next) {
  if (connection.share == ShareState::kPromised) share_.promise_over(std::exchange(connection.promised, 0));
  if (connection.share == ShareState::kServed) share_.end(connection.level);
  set_state(connection.share, next);
}

// A connection that brings something of another level than before is served as that from now on.
void Endpoint::note_level(Connection& connection) {
  const std::uint8_t level = connection.receiver->level();
  if (level == connection.level) return;
  levels_ = true;
  if (connection.share == ShareState::kServed) {
    share_.end(connection.level);
    share_.begin(level);
  }
  connection.level = level;
}

void Endpoint::share_line(ConnectionId id, bool heard) {
  Connection& connection = connections_[id];
  Receiver& receiver = *connection.receiver;
  const ShareState was = connection.share;
  note_level(connection);
  if (receiver.demand() == 0) {
    if (was != ShareState::kIdle) change_share(connection, ShareState::kIdle);
    if (was == ShareState::kServed) serve_waiting();
  } else if (!receiver.active()) {
    if (was == ShareState::kIdle) {
      change_share(connection, ShareState::kPromised);
      connection.promised = share_.promise(receivers_);
    }
    connection.placed_seen = receiver.counters().placed_bytes;
    const std::uint32_t promised = share_.at(receiver.round_trip(), connection.promised);
    connection.window = std::max(2 * receiver.longest_packet(), promised);
    receiver.grant(promised);
  } else {
    const bool asks = was == ShareState::kIdle || was == ShareState::kPromised || (was == ShareState::kSilent && heard);
    if (asks) serve(id);
    if (connection.share == ShareState::kServed) grant_share(connection);
    if (connection.share == ShareState::kServed && !waiting_.empty()) end_turn(id);
  }
}

void Endpoint::serve(ConnectionId id) {
  Connection& connection = connections_[id];
  connection.window = std::max(2 * connection.receiver->longest_packet(), connection.window);
  if (share_.begin(connection.level)) {
    change_share(connection, ShareState::kServed);
    connection.turn_from = connection.receiver->counters().placed_bytes;
    connection.turn_since = now_;
    if (!std::exchange(connection.in_served, true)) served_.push_back(id);
  } else {
    change_share(connection, ShareState::kWaiting);
    if (!std::exchange(connection.in_waiting, true)) waiting_.push_back(id);
  }
}

// A stream that never ends must not keep the line from those who wait.
void Endpoint::end_turn(ConnectionId id) {
  Connection& connection = connections_[id];
  const Duration trip = connection.receiver->round_trip();
  const bool delivers = now_ - connection.turn_since < std::max(kTurnFloors * options_.probe_floor, 4 * trip);
  if (delivers && connection.receiver->counters().placed_bytes - connection.turn_from < kTurnBytes) return;
  connection.window = 0;
  connection.idled = !delivers;
  change_share(connection, ShareState::kWaiting);
  if (!std::exchange(connection.in_waiting, true)) waiting_.push_back(id);
  serve_waiting();
}

// Grows by what arrives, as in slow start: all who begin together are heard of before any has a large share. Who goes
// before others takes it from them at once.
void Endpoint::grant_share(Connection& connection) {
  Receiver& receiver = *connection.receiver;
  const std::uint64_t placed = receiver.counters().placed_bytes;
  // On a long path it has to grow by more in each of the few round trips.
  const std::uint64_t steps = receiver.round_trip() > options_.base_rtt ? 3 : 1;
  const std::uint64_t grown = connection.window + steps * (placed - connection.placed_seen);
  connection.placed_seen = placed;
  const std::uint32_t share =
      std::max(share_.window(connection.level, receiver.round_trip()), receiver.longest_packet());
  const bool at_once = levels_ && share_.leads(connection.level);
  connection.window = at_once ? share : static_cast<std::uint32_t>(std::min<std::uint64_t>(share, grown));
  receiver.grant(connection.window);
}

// A sender that died, or was stopped, must not keep its part of the line from the others. One look at a time is enough:
// each packet brings one. The only one keeps it: it may be as far away as its packets are apart, and would begin again
// with each.
void Endpoint::retire_silent(TimePoint now) {
  if (served_.empty() || (share_.serving() == 1 && waiting_.empty())) return;
  const ConnectionId id = served_.pop_front();
  Connection& connection = connections_[id];
  const bool served = connection.used && connection.share == ShareState::kServed;
  if (served && now - connection.heard_at <= silence(options_, connection.receiver->round_trip())) {
    served_.push_back(id);
    return;
  }
  connection.in_served = false;
  if (!served) return;
  connection.window = 0;
  change_share(connection, ShareState::kSilent);
  serve_waiting();
}

void Endpoint::serve_waiting() {
  while (!waiting_.empty() && share_.room()) {
    const ConnectionId id = take_waiting();
    Connection& connection = connections_[id];
    connection.in_waiting = false;
    if (!connection.used || connection.share != ShareState::kWaiting) continue;
    connection.window = 0;
    connection.placed_seen = connection.receiver->counters().placed_bytes;
    serve(id);
    grant_share(connection);
    queue_control(id);
  }
}

// Of the best level the one that waits longest; now and then, of all: the best may never have enough.
Endpoint::ConnectionId Endpoint::take_waiting() {
  const bool by_age = !levels_ || ++picks_ % kPicks == 0;
  const std::size_t count = by_age ? 0 : waiting_.size();
  std::size_t best = 0;
  int level = CreditShare::kLevels + 1;
  for (std::size_t i = 0; i < count; ++i) {
    const ConnectionId id = waiting_.pop_front();
    waiting_.push_back(id);
    const Connection& connection = connections_[id];
    const bool waits = connection.used && connection.share == ShareState::kWaiting;
    const int of_it = connection.idled ? CreditShare::kLevels : connection.level;
    if (!waits || of_it >= level) continue;
    best = i;
    level = of_it;
  }
  for (std::size_t i = 0; i < best; ++i) waiting_.push_back(waiting_.pop_front());
  return waiting_.pop_front();
}

void Endpoint::arm(ConnectionId id) {
  Connection& connection = connections_[id];
  const TimePoint next =
      connection.receiver != nullptr ? connection.receiver->next_timeout() : connection.sender->next_timeout();
  if (next >= connection.armed) return;
  connection.armed = next;
  const std::size_t most = 4 * connections_.size() + 64;
  if (timers_.size() > most) drop_stale_timers();
  if (timers_.capacity() <= most) timers_.reserve(2 * most);
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
      connection.receiver->on_timeout(ledgers_, questions_, now);
    } else {
      connection.sender->on_timeout(questions_, now);
    }
    after_input(timer.connection, now);
  }
}

bool Endpoint::poll_transmit(TimePoint now, Outgoing& out, std::uint64_t below) {
  while (!control_.empty()) {
    const ConnectionId id = control_.front();
    Connection& connection = connections_[id];
    if (connection.used && connection.receiver != nullptr) {
      if (auto packet = connection.receiver->poll_control(now)) {
        Transmit& transmit = out.transmit;
        transmit = Transmit{};
        transmit.header = *packet;
        transmit.path = connection.receiver->control_path();
        transmit.traffic_class = options_.classes.traffic_class(PacketKind::kControl);
        out.connection = id;
        out.peer = connection.peer;
        return true;
      }
      arm(id);
    }
    connection.in_control = false;
    control_.pop_front();
  }
  if (below == 0) return false;
  find_places(now);
  while (!ready_.empty()) {
    const ConnectionId id = ready_.top();
    Connection& connection = connections_[id];
    if (connection.place.turn.rank >= below && below != kAllRanks) return false;
    const bool sends = connection.sender->poll_transmit(now, out.transmit);
    find_place(id, now);
    if (!sends) continue;
    out.connection = id;
    out.peer = connection.peer;
    return true;
  }
  return false;
}

// What came since the latest packet left may have changed them.
void Endpoint::find_places(TimePoint now) {
  while (!changed_.empty()) {
    const ConnectionId id = changed_.pop_front();
    Connection& connection = connections_[id];
    connection.in_changed = false;
    if (connection.used && connection.sender != nullptr) find_place(id, now);
  }
}

void Endpoint::find_place(ConnectionId id, TimePoint now) {
  Connection& connection = connections_[id];
  if (const SendPlace* place = connection.sender->next_place(now)) {
    connection.place = *place;
    ready_.update(id, goes_first());
    return;
  }
  ready_.remove(id, goes_first());
  arm(id);
}

std::optional<Endpoint::Event> Endpoint::poll_event() {
  while (!events_.empty()) {
    const ConnectionId id = events_.front();
    Connection& connection = connections_[id];
    if (connection.used && connection.receiver != nullptr) {
      if (const auto receive = connection.receiver->poll_unstage()) return Event{id, Unstage{*receive}};
      if (connection.receiver->has_rebuild()) return Event{id, Rebuildable{}};
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

bool Endpoint::is_consistent() const {
  std::uint64_t served = 0;
  std::uint32_t receivers = 0;
  for (const Connection& connection : connections_) {
    if (!connection.used) continue;
    if (connection.share == ShareState::kServed) {
      ++served;
      if (!connection.in_served) return false;
    }
    if (connection.share == ShareState::kWaiting && !connection.in_waiting) return false;
    if (connection.receiver != nullptr) ++receivers;
    if (connection.receiver != nullptr && !connection.receiver->is_consistent()) return false;
    if (connection.sender != nullptr && !connection.sender->is_consistent()) return false;
  }
  return served == share_.serving() && receivers == receivers_;
}

}  // namespace clustar::mlt
