#include "tests/sim/mlt_world.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <span>
#include <utility>

#include "transport/base/rng.h"

namespace clustar::mlt::test {

MltHost::MltHost(World& world, sim::Host& host, const Options& options, std::uint64_t seed)
    : bench::sim::MltHost(host, options, seed), world_(world), options_(options) {}

std::uint32_t MltHost::connection_to(std::uint32_t host) {
  const auto [entry, fresh] = to_.try_emplace(host, 0);
  if (fresh) {
    entry->second = open_sender(host, world_.secret(id(), host));
    if (peer_of_.size() <= entry->second) peer_of_.resize(entry->second + 1);
    peer_of_[entry->second] = host;
  }
  return entry->second;
}

std::uint32_t MltHost::connection_from(std::uint32_t host) {
  const auto [entry, fresh] = from_.try_emplace(host, 0);
  if (fresh) {
    entry->second = open_receiver(host, world_.secret(host, id()));
    if (peer_of_.size() <= entry->second) peer_of_.resize(entry->second + 1);
    peer_of_[entry->second] = host;
  }
  return entry->second;
}

void MltHost::close_to(std::uint32_t host) {
  close(to_.at(host));
  to_.erase(host);
}

void MltHost::close_from(std::uint32_t host) {
  const std::uint32_t connection = from_.at(host);
  if (core().receiver(connection).demand() > 0) world_.violate("closed in the middle of something");
  close(connection);
  from_.erase(host);
}

void MltHost::send_to(std::uint32_t to, std::uint32_t bytes, const SendTerms& terms) {
  if (!send(connection_to(to), bytes, 7, terms)) world_.violate("a send was refused");
}

void MltHost::post_from(std::uint32_t from, std::uint32_t bytes) {
  posting_ = bytes;
  if (!post(connection_from(from), 7, bytes)) world_.violate("a receive was refused");
}

void MltHost::on_posted(ConnectionId connection, std::uint32_t receive) {
  incoming_[{connection, receive}] = {posting_, world_.posted_[{peer_of_[connection], id()}]++,
                                      std::vector<bool>(packet_count(posting_, options_.segment)), world_.now()};
}

std::uint64_t MltHost::content(const DataHeader& header, const Transmit& transmit) {
  // Of parity there are no more than 2^24 packets in a message.
  return World::content(header.secret, transmit.message, header.parity ? ~header.index : transmit.offset);
}

void MltHost::on_placed(const mlt::Endpoint::Arrival& arrival, const sim::SimPacket& packet) {
  const Placement& placement = arrival.placement;
  const auto parsed = parse(packet.header.bytes());
  const auto& data = std::get<DataHeader>(*parsed);
  const std::uint32_t at = data.parity ? ~data.index : data.index * data.segment;
  if (packet.payload_tag != World::content(data.secret, data.message, at)) world_.violate("foreign content");
  if (placement.length != packet.payload_bytes) world_.violate("a placement of another length");
  if (data.parity != (placement.kind == Placement::Kind::kParity)) world_.violate("parity among data");
  if (placement.kind == Placement::Kind::kParity) {
    if (placement.id >= options_.max_parity) world_.violate("more parity than there is room for");
    parity_[{arrival.connection, placement.id}] = data;
  } else if (placement.kind == Placement::Kind::kPlace) {
    if (placement.offset != at) world_.violate("content at another offset");
    place(arrival.connection, placement.id, placement.offset, placement.length);
  } else {
    staged_[{arrival.connection, placement.id}][placement.offset] = at;
  }
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

// What is rebuilt is what was sent: with as many rows of the block, each another, as packets of it are missing.
void MltHost::on_rebuild(ConnectionId connection, const Rebuild& what) {
  std::set<std::uint32_t> rows;
  if (what.count == 0 || what.count > what.block_packets()) world_.violate("nothing to rebuild, or too much");
  for (const Rebuild::Missing& missing : std::span(what.missing).first(what.count)) {
    const auto entry = parity_.find({connection, missing.buffer});
    const bool its_own = entry != parity_.end() && entry->second.message == what.message &&
                         entry->second.index == what.block * kMaxParity + missing.row &&
                         rows.insert(missing.row).second;
    if (!its_own) world_.violate("rebuilt by parity of something else");
    const std::uint32_t index = what.index(missing.place);
    if (missing.place >= what.block_packets()) world_.violate("rebuilt what is of another block");
    place(connection, what.receive, index * what.segment, packet_bytes(index, what.bytes, what.segment));
    ++rebuilt_;
  }
  const auto& placed = incoming_.at({connection, what.receive}).placed;
  for (std::uint32_t place = 0; place < what.block_packets(); ++place) {
    if (!placed[what.index(place)]) world_.violate("rebuilt a block of which more is missing");
  }
}

void MltHost::on_unstage(ConnectionId connection, std::uint32_t receive) {
  const Receiver& receiver = core().receiver(connection);
  std::uint32_t buffer = 0;
  bool any = false;
  for (auto staged = receiver.staged(receive, 0); staged; staged = receiver.staged(receive, staged->number + 1)) {
    any = true;
    buffer = staged->buffer;
    const auto& held = staged_[{connection, staged->buffer}];
    const auto found = held.find(staged->buffer_offset);
    if (found == held.end() || found->second != staged->offset) world_.violate("staging held something else");
    place(connection, receive, staged->offset, staged->length);
  }
  if (any) staged_.erase({connection, buffer});
}

void MltHost::on_sent(ConnectionId, const SendDone& what, TimePoint) {
  ++sends_done_;
  sender_missing_ += what.missing_packets;
}

void MltHost::on_received(ConnectionId connection, const ReceiveDone& what, TimePoint now) {
  const auto entry = incoming_.find({connection, what.receive});
  if (entry == incoming_.end()) return world_.violate("a receive was done twice");
  const std::uint32_t peer = peer_of_[connection];
  const auto& sent = world_.sent_[{peer, id()}];
  if (entry->second.number >= sent.size()) return world_.violate("done before it was sent");
  const auto [bytes, sent_at] = sent[entry->second.number];
  if (bytes != what.bytes) world_.violate(fmt::format("{} bytes arrived of a message of {}", what.bytes, bytes));
  std::uint32_t missing = 0;
  std::vector<std::uint32_t> missing_packets;
  const Receiver& receiver = core().receiver(connection);
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
  world_.finished_.push_back({peer, id(), bytes, what.missing, std::max(sent_at, entry->second.posted), now,
                              entry->second.number, std::move(missing_packets)});
  --world_.outstanding_;
  incoming_.erase(entry);
}

World::World(sim::Simulation& simulation, sim::Network& network, const Options& options, std::uint64_t seed)
    : simulation_(simulation), options_(options), seed_(seed) {
  for (std::uint32_t i = 0; i < network.hosts(); ++i) {
    hosts_.push_back(std::make_unique<MltHost>(*this, network.host(i), options_, seed * 1000003 + i));
  }
}

std::uint64_t World::secret(std::uint32_t from, std::uint32_t to) const {
  const auto entry = reopened_.find({from, to});
  const std::uint64_t generation = entry == reopened_.end() ? 0 : entry->second;
  return mix64(mix64(seed_ * kGoldenGamma + (std::uint64_t{from} << 32 | to) + 1) + generation);
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

void World::reopen(std::uint32_t from, std::uint32_t to) {
  hosts_[from]->close_to(to);
  hosts_[to]->close_from(from);
  ++reopened_[{from, to}];
  connect(from, to);
}

void World::post(std::uint32_t from, std::uint32_t to, std::uint32_t bytes) {
  ++outstanding_;
  connect(from, to);
  hosts_[to]->post_from(from, bytes);
}

void World::send(std::uint32_t from, std::uint32_t to, std::uint32_t bytes, const SendTerms& terms) {
  sent_[{from, to}].push_back({bytes, now()});
  hosts_[from]->send_to(to, bytes, terms);
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
