#include "tests/sim/mlt_world.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "transport/base/rng.h"

namespace clustar::mlt::test {

MltHost::MltHost(World& world, sim::Host& host, const Options& options, std::uint64_t seed)
    : world_(world), host_(host), options_(options), core_(options, seed) {
  host_.attach(this);
}

std::uint32_t MltHost::connection_to(std::uint32_t host) {
  const auto [entry, fresh] = to_.try_emplace(host, 0);
  if (fresh) {
    entry->second = core_.open_sender(host, world_.secret(host_.id(), host), world_.now());
    if (peer_of_.size() <= entry->second) peer_of_.resize(entry->second + 1);
    peer_of_[entry->second] = host;
  }
  return entry->second;
}

std::uint32_t MltHost::connection_from(std::uint32_t host) {
  const auto [entry, fresh] = from_.try_emplace(host, 0);
  if (fresh) {
    entry->second = core_.open_receiver(host, world_.secret(host, host_.id()), world_.now());
    if (peer_of_.size() <= entry->second) peer_of_.resize(entry->second + 1);
    peer_of_[entry->second] = host;
  }
  return entry->second;
}

void MltHost::send(std::uint32_t to, std::uint32_t bytes, const SendTerms& terms, TimePoint now) {
  if (!core_.send(connection_to(to), bytes, 7, terms, now)) world_.violate("a send was refused");
  pump(now);
}

void MltHost::post(std::uint32_t from, std::uint32_t bytes, TimePoint now) {
  const std::uint32_t connection = connection_from(from);
  const auto receive = core_.post(connection, 7, bytes, now);
  if (!receive) {
    world_.violate("a receive was refused");
    return;
  }
  Incoming& incoming = incoming_[{connection, *receive}];
  incoming = {bytes, world_.posted_[{from, host_.id()}]++, std::vector<bool>(packet_count(bytes, options_.segment)),
              now};
  pump(now);
}

void MltHost::on_packet(sim::SimPacket& packet, TimePoint now) {
  // What UDP's checksum and a NIC do: a damaged packet never gets here.
  if (packet.corrupted || packet.trimmed) return;
  const auto arrival =
      core_.on_packet(packet.header.bytes(), packet.payload_bytes, packet.ecn == transport::io::Ecn::kCe, now);
  const Placement& placement = arrival.placement;
  if (placement.kind != Placement::Kind::kDrop) {
    const auto parsed = parse(packet.header.bytes());
    const auto& data = std::get<DataHeader>(*parsed);
    const std::uint32_t at = data.index * data.segment;
    if (packet.payload_tag != World::content(data.secret, data.message, at)) world_.violate("foreign content");
    if (placement.length != packet.payload_bytes) world_.violate("a placement of another length");
    if (placement.kind == Placement::Kind::kPlace) {
      if (placement.offset != at) world_.violate("content at another offset");
      place(arrival.connection, placement.id, placement.offset, placement.length);
    } else {
      staged_[{arrival.connection, placement.id}][placement.offset] = at;
    }
  }
  pump(now);
}

void MltHost::place(std::uint32_t connection, std::uint32_t receive, std::uint32_t offset, std::uint32_t length) {
  const auto entry = incoming_.find({connection, receive});
  if (entry == incoming_.end()) {
    world_.violate("content for no receive");
    return;
  }
  Incoming& incoming = entry->second;
  const std::uint32_t index = offset / options_.segment;
  if (offset + length > incoming.bytes) return world_.violate("content behind the receive's end");
  if (incoming.placed[index]) return world_.violate("content delivered twice");
  incoming.placed[index] = true;
}

TimePoint MltHost::on_wake(TimePoint now) {
  core_.on_timeout(now);
  pump(now);
  return core_.next_timeout();
}

void MltHost::pump(TimePoint now) {
  while (const auto event = core_.poll_event()) handle(*event, now);
  while (true) {
    if (!has_pending_) {
      auto out = core_.poll_transmit(now);
      if (!out) break;
      const Transmit& transmit = out->transmit;
      pending_ = sim::SimPacket{};
      pending_.destination = out->peer;
      pending_.path = transmit.path;
      pending_.traffic_class = transmit.traffic_class;
      pending_.ecn = transmit.ect ? transport::io::Ecn::kEct0 : transport::io::Ecn::kNotEct;
      std::array<std::byte, kMaxHeader> bytes{};
      const std::size_t size = serialize(transmit.header, bytes);
      pending_.header = transport::io::Header(size);
      std::copy_n(bytes.begin(), size, pending_.header.bytes().begin());
      pending_.payload_bytes = transmit.length;
      if (std::holds_alternative<DataHeader>(transmit.header)) {
        pending_.payload_tag =
            World::content(std::get<DataHeader>(transmit.header).secret, transmit.message, transmit.offset);
      }
      has_pending_ = true;
    }
    if (!host_.send(pending_)) break;
    has_pending_ = false;
  }
  while (const auto event = core_.poll_event()) handle(*event, now);
  host_.set_wake(std::max(core_.next_timeout(), now + Duration(1)));
}

void MltHost::handle(const mlt::Endpoint::Event& event, TimePoint now) {
  if (const auto* unstage = std::get_if<mlt::Endpoint::Unstage>(&event.what)) {
    Receiver& receiver = core_.receiver(event.connection);
    std::uint32_t buffer = 0;
    bool any = false;
    for (auto staged = receiver.staged(unstage->receive, 0); staged;
         staged = receiver.staged(unstage->receive, staged->number + 1)) {
      any = true;
      buffer = staged->buffer;
      const auto& held = staged_[{event.connection, staged->buffer}];
      const auto found = held.find(staged->buffer_offset);
      if (found == held.end() || found->second != staged->offset) world_.violate("staging held something else");
      place(event.connection, unstage->receive, staged->offset, staged->length);
    }
    if (any) staged_.erase({event.connection, buffer});
    receiver.unstaged(unstage->receive);
  } else if (const auto* received = std::get_if<ReceiveDone>(&event.what)) {
    done(event.connection, *received, now);
  } else if (const auto* sent = std::get_if<SendDone>(&event.what)) {
    ++sends_done_;
    sender_missing_ += sent->missing_packets;
  } else {
    lost_a_peer_ = true;
  }
}

void MltHost::done(std::uint32_t connection, const ReceiveDone& what, TimePoint now) {
  const auto entry = incoming_.find({connection, what.receive});
  if (entry == incoming_.end()) return world_.violate("a receive was done twice");
  const std::uint32_t peer = peer_of_[connection];
  const auto& sent = world_.sent_[{peer, host_.id()}];
  if (entry->second.number >= sent.size()) return world_.violate("done before it was sent");
  const auto [bytes, sent_at] = sent[entry->second.number];
  if (bytes != what.bytes) world_.violate(fmt::format("{} bytes arrived of a message of {}", what.bytes, bytes));
  std::uint32_t missing = 0;
  std::vector<std::uint32_t> missing_packets;
  Receiver& receiver = core_.receiver(connection);
  for (auto range = receiver.missing(what.receive, 0); range && what.missing > 0;
       range = receiver.missing(what.receive, range->offset + range->length)) {
    missing += range->length;
    for (std::uint32_t at = range->offset; at < range->offset + range->length; at += options_.segment) {
      if (entry->second.placed[at / options_.segment]) world_.violate("present content is called missing");
      entry->second.placed[at / options_.segment] = true;
      missing_packets.push_back(at / options_.segment);
    }
  }
  if (missing != what.missing) world_.violate(fmt::format("{} bytes missing, ranges name {}", what.missing, missing));
  const std::uint32_t packets = packet_count(bytes, options_.segment);
  for (std::uint32_t i = 0; bytes > 0 && i < packets; ++i) {  // of an empty message, what is missing is nothing
    if (!entry->second.placed[i]) world_.violate("a hole that nobody counted");
  }
  world_.finished_.push_back({peer, host_.id(), bytes, what.missing, std::max(sent_at, entry->second.posted), now,
                              entry->second.number, std::move(missing_packets)});
  --world_.outstanding_;
  incoming_.erase(entry);
  core_.release(connection, what.receive);
}

World::World(sim::Simulation& simulation, sim::Network& network, const Options& options, std::uint64_t seed)
    : simulation_(simulation), options_(options), seed_(seed) {
  for (std::uint32_t i = 0; i < network.hosts(); ++i) {
    hosts_.push_back(std::make_unique<MltHost>(*this, network.host(i), options_, seed * 1000003 + i));
  }
}

std::uint64_t World::secret(std::uint32_t from, std::uint32_t to) const {
  return mix64(seed_ * kGoldenGamma + (std::uint64_t{from} << 32 | to) + 1);
}

std::uint64_t World::content(std::uint64_t secret, std::uint32_t message, std::uint32_t offset) {
  return (secret ^ (std::uint64_t{message} << 32 | offset)) * 0x9fb21c651e98df25;
}

void World::violate(const std::string& what) {
  if (violations_.size() < 20) violations_.push_back(fmt::format("{} ns: {}", now().time_since_epoch().count(), what));
}

void World::connect(std::uint32_t from, std::uint32_t to) {
  hosts_[from]->connection_to(to);
  hosts_[to]->connection_from(from);
}

void World::post(std::uint32_t from, std::uint32_t to, std::uint32_t bytes) {
  ++outstanding_;
  connect(from, to);
  hosts_[to]->post(from, bytes, now());
}

void World::send(std::uint32_t from, std::uint32_t to, std::uint32_t bytes, const SendTerms& terms) {
  sent_[{from, to}].push_back({bytes, now()});
  hosts_[from]->send(to, bytes, terms, now());
}

void World::transfer(std::uint32_t from, std::uint32_t to, std::uint32_t bytes, const SendTerms& terms) {
  post(from, to, bytes);
  send(from, to, bytes, terms);
}

bool World::finish(Duration limit) {
  const TimePoint end = now() + limit;
  while (outstanding_ > 0 && now() < end) {
    if (!simulation_.step()) return false;
  }
  return outstanding_ == 0;
}

}  // namespace clustar::mlt::test
