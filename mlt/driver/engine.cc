#include "mlt/driver/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "mlt/driver/driver_options.h"
#include "transport/api/context.h"
#include "transport/net/socket.h"

namespace clustar::mlt::driver {

Result<std::unique_ptr<Engine>> Engine::open(std::unique_ptr<io::PacketIo> device, std::string io_name,
                                             const Options& options, std::string name, const Context& context,
                                             transport::TrafficBook& traffic) {
  auto waker = net::Waker::create();
  if (!waker) return tl::unexpected(waker.error());
  std::uint64_t seed = 0;
  if (const auto filled = net::fill_random(std::as_writable_bytes(std::span(&seed, 1))); !filled) {
    return tl::unexpected(filled.error());
  }
  std::unique_ptr<Sealing> sealing;
  if (context.protection != nullptr) {
    auto made = Sealing::create(*context.protection, *device, options.segment, kBurst);
    if (!made) return tl::unexpected(made.error());
    sealing = std::move(*made);
  }
  std::unique_ptr<transport::SendPolicy> policy = std::make_unique<transport::FifoPolicy>();
  if (context.policies != nullptr) {
    policy = context.policies->make({name, device->link().line_rate_bps / 8});
  }
  try {
    return std::unique_ptr<Engine>(new Engine(std::move(device), std::move(io_name), options, std::move(name), context,
                                              std::move(*waker), seed, std::move(sealing), std::move(policy), traffic));
  } catch (const std::exception& error) {
    return fail(ErrorCode::kInvalidArgument, error.what());
  }
}

Engine::Engine(std::unique_ptr<io::PacketIo> device, std::string io_name, const Options& options, std::string name,
               const Context& context, net::Waker waker, std::uint64_t seed, std::unique_ptr<Sealing> sealing,
               std::unique_ptr<transport::SendPolicy> policy, transport::TrafficBook& traffic)
    : context_(context),
      name_(std::move(name)),
      io_name_(std::move(io_name)),
      options_(options),
      device_(std::move(device)),
      sealing_(std::move(sealing)),
      writes_(device_->writer() ? std::make_unique<DeviceWrites>(*device_->writer()) : nullptr),
      parity_(Parity::of(context.codec.get(), *device_, options.segment)),
      traffic_(traffic),
      core_(options_, seed, context.budgets->joint()),
      sends_(std::move(policy)),
      ahead_(transport::send_ahead_bytes(context.send_ahead, options.line_rate, sends_.orders())),
      waker_(std::move(waker)) {
  if (context_.mode == EngineMode::kInline) return;
  const auto ask_to_end = [this] {
    stop_ = true;
    waker_.wake();
  };
  thread_.start([this] { run(); }, ask_to_end);
}

Engine::~Engine() { thread_.end(); }

Result<void> Engine::attach(Client& client, End end, const FarEnd& far_end, std::uint64_t secret,
                            const transport::ChannelOptions& channel, const Session* session,
                            std::optional<ConnectionId>& id) {
  const std::lock_guard lock(mutex_);
  if (lost_) return tl::unexpected(*lost_);
  if ((session != nullptr) != (sealing_ != nullptr)) {
    return fail(ErrorCode::kInternal, "mlt: a connection without its keys");
  }
  if (core_.knows(secret, end)) return fail(ErrorCode::kRemote, "mlt: the connection's number is in use already");
  const net::Address host = far_end.host.with_port(0);
  std::string key = host.to_string();
  for (const std::byte byte : far_end.address.bytes()) key += static_cast<char>(byte);
  Peer& peer = peers_[key];
  if (peer.users == 0) {
    const auto added = device_->add_peer(far_end.address, host.endpoint());
    if (!added) {
      peers_.erase(key);
      return tl::unexpected(added.error());
    }
    peer.id = *added;
  }
  ++peer.users;
  const TimePoint now = context_.clock.now();
  auto options = connection_options(end, channel, far_end);
  // Far away a window takes many round trips to come back: pauses of processes must not look like queues.
  constexpr Duration kFar = std::chrono::milliseconds(1);
  if (far_end.round_trip >= kFar) device_->tell_waits();
  id = end == End::kSends ? core_.open_sender(peer.id, secret, now, *options)
                          : core_.open_receiver(peer.id, secret, now, *options);
  if (sealing_) sealing_->add(*id, end, *session, options_.paths);
  if (*id >= attached_.size()) attached_.resize(*id + 1);
  attached_[*id] = {&client, key, end, std::move(options), channel.comm_id};
  attached_[*id].peer_id = peer.id;
  attached_[*id].secret = secret;
  attached_[*id].traffic = traffic_.open(channel.traffic_class, host.host(), far_end.rank);
  attached_[*id].dscp = static_cast<std::uint8_t>(std::max(channel.traffic_class, 0) & 0xfc);
  join_communicator(channel);
  if (end == End::kSends) sends_.open(*id, host.host_number(), channel.job, options_.max_messages);
  return {};
}

// The route may take less by now than when the device was opened; receivers go by what each packet says. What may be
// lost is the communicator's to say, whatever the device's options are.
std::unique_ptr<const Options> Engine::connection_options(End end, const transport::ChannelOptions& channel,
                                                          const FarEnd& far_end) {
  auto options = std::make_unique<Options>(options_);
  options->max_tolerance_ppm = channel.max_tolerance_ppm;
  set_path(*options, far_end.round_trip, end);
  options->parity = parity_ && (end == End::kReceives || may_send_parity(*options, far_end));
  if (end == End::kReceives) return options;
  const auto segment = segment_for(device_->capabilities(), sealing_ ? kSealBytes : 0);
  if (segment) options->segment = std::min(*segment, options->segment);
  return options;
}

void Engine::close(ConnectionId id) {
  keep_pending([&](const Pending& pending) { return pending.connection != id; });
  Attached gone = std::exchange(attached_[id], Attached{});
  for (const io::PlacementHint landing : gone.landings) device_->cancel(landing);
  if (gone.end == End::kSends) {
    counters_.retransmissions += core_.sender(id).counters().retransmitted;
    sends_.close(id, context_.clock.now());
    std::erase(waiting_, id);
    std::erase(resuming_, id);
    std::erase_if(offered_, [&](const Offered& send) { return send.connection == id; });
    counters_.parity += core_.sender(id).counters().parity;
  } else {
    counters_.rebuilt += core_.receiver(id).counters().rebuilt;
  }
  // What the device took may still read memory whose owner takes it back.
  device_->quiesce();
  if (writes_) writes_->drop(id);
  core_.close(id);  // before its options
  leave_communicator(gone.communicator);
  if (sealing_) sealing_->remove(id);
  const auto peer = peers_.find(gone.peer);
  if (--peer->second.users > 0) return;
  static_cast<void>(device_->remove_peer(peer->second.id));
  peers_.erase(peer);
}

void Engine::forget(Client& client) {
  const std::lock_guard lock(posts_mutex_);
  std::erase_if(posts_, [&](const Post& post) { return post.client == &client; });
}

template <class Keep>
void Engine::keep_pending(Keep keep) {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < pending_count_; ++i) {
    if (!keep(pending_[i])) continue;
    if (kept != i) {
      tx_[kept] = tx_[i];
      pending_[kept] = pending_[i];
    }
    ++kept;
  }
  pending_count_ = kept;
}

void Engine::drop_pending(ConnectionId connection, std::uint32_t message) {
  if (pending_count_ == 0) return;
  keep_pending([&](const Pending& pending) {
    return pending.connection != connection || !pending.data || pending.message != message;
  });
}

void Engine::post(Client& client, std::uint32_t request, std::size_t bytes) {
  if (context_.mode != EngineMode::kThread) {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (lock) {
      const TimePoint now = context_.clock.now();
      note_caller(now);
      held(now);
      drain_posts(now);
      client.submit(request, now);
      handle_events(now);
      if (bytes > kSmall) {
        transmit(now);
      } else if (++gathered_ >= kGather) {
        turn(now, nullptr);  // acknowledgements too: a caller that has no request to wait for does not ask for them
      }
      if (asleep_.load(std::memory_order_relaxed)) wake_thread();
      return;
    }
  }
  {
    const std::lock_guard lock(posts_mutex_);
    posts_.push_back({&client, request});
    has_posts_.store(true);  // before it is asked whether the thread sleeps: sequentially consistent
  }
  wake_thread();
}

void Engine::drain_posts(TimePoint now) {
  if (!has_posts_.load(std::memory_order_acquire)) return;
  {
    const std::lock_guard lock(posts_mutex_);
    draining_.swap(posts_);
    has_posts_.store(false, std::memory_order_relaxed);
  }
  for (const Post& post : draining_) post.client->submit(post.request, now);
  draining_.clear();
}

void Engine::poke(const std::atomic<bool>& done) {
  if (context_.mode == EngineMode::kThread) return;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return give_way();
  const TimePoint now = context_.clock.now();
  note_caller(now);
  held(now);
  turn(now, context_.mode == EngineMode::kAuto ? &done : nullptr);
  if (asleep_.load(std::memory_order_relaxed)) wake_thread();
}

// A caller that waits for `done` posts what comes next as soon as it is: what else is to be said travels with that. If
// nothing is posted, the thread says it when it finds the callers silent.
bool Engine::turn(TimePoint now, const std::atomic<bool>* done) {
  const bool posted = has_posts_.load(std::memory_order_relaxed);
  drain_posts(now);
  if (lost_) return false;
  if (gathered_ > 0) transmit(now);
  // What a NIC writes into a GPU ends by itself: nobody posts more because of it, so it holds nothing up.
  bool moved = step_writes();
  bool busy = receive(now) || posted;
  if (core_.next_timeout() <= now) {
    if (parity_) handle_events(now);  // what can be rebuilt is not missing
    core_.on_timeout(now);
    busy = true;
  }
  handle_events(now);
  moved = step_writes() || moved;
  const bool waits = done != nullptr && busy && done->load(std::memory_order_relaxed);
  if (!waits) busy = transmit(now) || busy;
  if (now >= check_at_) check_some(now);
  return busy || moved;
}

// A thread that stood still between looking at the clock and at the device finds packets that came later than `now`:
// taken for earlier, they would make round trips shorter than the path is long, and all others look like queues.
bool Engine::receive(TimePoint& now) {
  bool any = false;
  for (int burst = 0; burst < kReceiveBursts; ++burst) {
    if (lost_ || (writes_ && writes_->behind())) return any;
    const auto got = device_->receive(rx_);
    if (!got) {
      fail_device(got.error());
      return any;
    }
    for (const io::RxPacket& packet : std::span(rx_).first(*got)) {
      now = std::max(now, packet.rx_time);
      if (packet.trimmed) continue;  // the core does not know them yet: a loss
      auto header = packet.header;
      auto payload = packet.payload;
      if (sealing_ && !sealing_->open(core_, packet, header, payload)) continue;
      // What was written into a GPU cannot be put aside until its receive is known, as after the loss of what says so.
      const bool readable = !packet.placed || !writes_;
      if (packet.ecn == io::Ecn::kCe) ++counters_.marked;
      const auto arrival = core_.on_packet(header, static_cast<std::uint32_t>(payload.size()),
                                           packet.ecn == io::Ecn::kCe, now, readable, packet.waited);
      if (arrival.placement.kind == Placement::Kind::kDrop) continue;
      attached_[arrival.connection].client->place(arrival.placement, payload, packet.placed);
    }
    device_->release(std::span(rx_).first(*got));
    counters_.packets_received += *got;
    any = any || *got > 0;
    if (*got < rx_.size()) break;
  }
  return any;
}

void Engine::handle_events(TimePoint now) {
  while (const auto event = core_.poll_event()) {
    Client* client = attached_[event->connection].client;
    if (client == nullptr) continue;
    if (const auto* sent = std::get_if<SendDone>(&event->what)) on_sent(*event, *sent, now);
    client->on_event(*event, now);
  }
  if (waiting_.empty()) return;
  resuming_.swap(waiting_);
  while (!resuming_.empty()) {
    const ConnectionId id = resuming_.back();
    resuming_.pop_back();
    attached_[id].client->on_room(now);
  }
}

// Before its request is done: a packet that the device did not take yet may be a needless repetition of what has
// arrived meanwhile.
void Engine::on_sent(const Endpoint::Event& event, const SendDone& sent, TimePoint now) {
  drop_pending(event.connection, sent.message);
  counters_.missing_packets += sent.missing_packets;
  traffic(event.connection)->sent(sends_.finish(event.connection, sent.message, now));
}

std::optional<std::uint32_t> Engine::send(ConnectionId id, const OutboundMessage& message, const SendTerms& terms,
                                          std::atomic<bool>* offered, TimePoint now) {
  const auto number = sends_.send(core_, id, message, terms, now);
  if (number && offered != nullptr) offered_.push_back({id, offered});
  return number;
}

// Fills one more slot of tx_, with data of ranks below `below` or no data; false: the core has nothing.
bool Engine::next_pending(TimePoint now, std::uint64_t below) {
  if (!core_.poll_transmit(now, out_, below)) return false;
  const Transmit& transmit = out_.transmit;
  io::TxPacket& packet = tx_[pending_count_];
  packet.peer = out_.peer;
  packet.path = transmit.path;
  packet.traffic_class = transmit.traffic_class;
  packet.ect = transmit.ect;
  packet.header.resize(io::Header::kMax);
  packet.header.resize(serialize(transmit.header, packet.header.bytes()));
  packet.payload = {};
  packet.destination = {};
  const auto* data = std::get_if<DataHeader>(&transmit.header);
  packet.dscp = data != nullptr ? attached_[out_.connection].dscp : 0;
  if (data != nullptr) {
    if (transmit.length > 0)
      packet.payload = data->parity ? payload_of(*data) : sends_.payload(out_.connection, transmit);
    if (!data->retransmission && !data->parity) {
      sends_.sent(core_, out_.connection, transmit.message, transmit.length, now);
      if (data->message_bytes >= kLeastLanding && places()) {
        const OpenRecord& open = core_.sender(out_.connection).opened(transmit.message);
        packet.destination = {slot(out_.connection, open.tag, open.tag_seq), data->index, data->segment};
      }
    }
  }
  // Answers to probes keep their path: the latest may have been lost on the other.
  const bool follows = std::holds_alternative<Ack>(transmit.header) || std::holds_alternative<Posted>(transmit.header);
  pending_[pending_count_] = {out_.connection, transmit.message, data != nullptr, follows};
  ++pending_count_;
  return true;
}

// Small packets for one peer that travel together are one datagram.
void Engine::gather(std::size_t from) {
  constexpr std::uint8_t kUrgent = 6;  // a class in which nothing long goes
  const io::TxPacket* latest = nullptr;
  for (std::size_t i = pending_count_; i-- > from;) {
    io::TxPacket& packet = tx_[i];
    const bool small = packet.traffic_class >= kUrgent && packet.payload.length <= kTiny;
    if (pending_[i].follows && latest != nullptr && latest->peer == packet.peer) {
      packet.path = latest->path;
      packet.traffic_class = latest->traffic_class;
      packet.dscp = latest->dscp;
      packet.ect = latest->ect;
    }
    if (small) latest = &packet;
  }
}

// When their paths are known: they are part of the nonces.
void Engine::seal_fresh() {
  for (std::size_t i = 0; i < pending_count_;) {
    Pending& pending = pending_[i];
    if (!pending.sealed && !sealing_->seal(pending.connection, tx_[i], std::span(tx_).first(i))) {
      // Takes its packets away.
      attached_[pending.connection].client->on_failure({ErrorCode::kSystem, "its packets can no longer be sealed"});
      i = 0;  // those before this one, too
      continue;
    }
    pending.sealed = true;
    ++i;
  }
}

bool Engine::transmit(TimePoint now) {
  gathered_ = 0;
  sends_.update_turns(core_, now);
  const bool any = send_bursts(now);
  for (const Offered& send : offered_) send.done->store(true, std::memory_order_release);
  offered_.clear();
  return any;
}

// What lies in the device cannot be overtaken.
std::uint64_t Engine::room_ahead() const {
  if (ahead_ == std::numeric_limits<std::uint64_t>::max()) return ahead_;
  std::uint64_t behind = device_->unsent_bytes();
  for (std::size_t i = 0; i < pending_count_; ++i) behind += tx_[i].payload.length;
  return ahead_ - std::min(ahead_, behind);
}

bool Engine::send_bursts(TimePoint now) {
  bool any = false;
  for (int burst = 0; burst < kSendBursts && !lost_; ++burst) {
    bool more = true;
    const std::size_t fresh = pending_count_;
    std::uint64_t room = room_ahead();
    while (more && pending_count_ < kBurst) {
      transport::SendPolicy::Gate gate;
      // Who asks has something to send: others may wait for it.
      if (room > 0 && sends_.orders() && core_.has_data(now)) gate = sends_.gate(now);
      more = next_pending(now, room > 0 ? gate.rank : 0);
      shut_until_ = more ? TimePoint::max() : gate.until;
      if (more) room -= std::min<std::uint64_t>(room, tx_[pending_count_ - 1].payload.length);
    }
    held_ahead_ = room == 0;  // before the burst or by it
    gather(fresh);
    if (sealing_) seal_fresh();
    if (pending_count_ == 0) return any;
    const auto sent = device_->send(std::span(tx_).first(pending_count_));
    if (!sent) {
      if (sent.error().code != ErrorCode::kInvalidArgument) {
        fail_device(sent.error());
        return any;
      }
      refuse_first(sent.error());
      continue;
    }
    counters_.packets_sent += *sent;
    if (sealing_) sealing_->taken(std::span(tx_).first(*sent));
    if (parity_) parity_->taken(std::span(tx_).first(*sent));
    any = any || *sent > 0;
    const bool full = *sent < pending_count_;
    std::size_t index = 0;
    if (*sent > 0) keep_pending([&](const Pending&) { return index++ >= *sent; });
    if (full || !more) return any;
  }
  return any;
}

// Such a packet can never leave, and its connection would wait forever; unless its route takes less than it did: the
// core cannot cut messages again that are under way, so the device cuts the packets.
void Engine::refuse_first(const Error& error) {
  if (device_->allow_fragments()) {
    context_.log.warn(
        fmt::format("mlt: {}: {}. From now on connections that began before send their packets in IP "
                    "fragments, of which the loss of one loses all; new ones send shorter packets. Give "
                    "all hosts and switches their MTU back, then start again",
                    name_, error.message));
    return;
  }
  const ConnectionId id = pending_[0].connection;
  Client* client = attached_[id].client;
  if (client == nullptr) {
    std::size_t index = 0;
    keep_pending([&](const Pending&) { return index++ > 0; });
    return;
  }
  client->on_failure({ErrorCode::kSystem, "the device refused a packet: " + error.message});
}

void Engine::check_some(TimePoint now) {
  check_at_ = now + kCheckInterval;
  for (std::size_t i = 0; i < std::min(attached_.size(), kChecksPerTurn); ++i) {
    next_check_ = (next_check_ + 1) % attached_.size();
    if (attached_[next_check_].client != nullptr) attached_[next_check_].client->check(now);
  }
}

void Engine::fail_device(const Error& error) {
  lost_ = Error{ErrorCode::kSystem, fmt::format("mlt: device {}: {}", name_, error.message)};
  is_lost_.store(true, std::memory_order_relaxed);
  for (std::size_t id = 0; id < attached_.size(); ++id) {
    if (attached_[id].client != nullptr) attached_[id].client->on_failure(*lost_);
  }
}

}  // namespace clustar::mlt::driver
