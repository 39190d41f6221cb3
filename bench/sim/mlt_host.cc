#include "bench/sim/mlt_host.h"

#include <algorithm>
#include <array>
#include <variant>

namespace clustar::bench::sim {

using transport::io::Ecn;

MltHost::MltHost(transport::sim::Host& host, const mlt::Options& options, std::uint64_t seed)
    : host_(host), core_(options, seed) {
  host_.attach(this);
}

std::optional<std::uint32_t> MltHost::send(ConnectionId connection, std::uint32_t bytes, std::int32_t tag,
                                           const mlt::SendTerms& terms) {
  const auto message = core_.send(connection, bytes, tag, terms, now());
  pump(now());
  return message;
}

std::optional<std::uint32_t> MltHost::post(ConnectionId connection, std::int32_t tag, std::uint32_t length) {
  const auto receive = core_.post(connection, tag, length, now());
  if (receive) on_posted(connection, *receive);
  pump(now());
  return receive;
}

void MltHost::on_packet(transport::sim::SimPacket& packet, TimePoint now) {
  // What UDP's checksum and a NIC do: a damaged packet never gets here.
  if (packet.corrupted || packet.trimmed) return;
  const auto arrival = core_.on_packet(packet.header.bytes(), packet.payload_bytes, packet.ecn == Ecn::kCe, now);
  if (arrival.placement.kind != mlt::Placement::Kind::kDrop) on_placed(arrival, packet);
  pump(now);
}

TimePoint MltHost::on_wake(TimePoint now) {
  core_.on_timeout(now);
  pump(now);
  return core_.next_timeout();
}

void MltHost::pump(TimePoint now) {
  if (pumping_) {
    again_ = true;
    return;
  }
  pumping_ = true;
  do {
    again_ = false;
    handle_events(now);
    while (transmit_next(now)) {
    }
    handle_events(now);
  } while (again_);
  pumping_ = false;
  host_.set_wake(std::max(core_.next_timeout(), now + Duration(1)));
}

void MltHost::handle_events(TimePoint now) {
  while (const auto event = core_.poll_event()) handle(*event, now);
}

bool MltHost::transmit_next(TimePoint now) {
  if (!has_pending_) {
    const auto out = core_.poll_transmit(now);
    if (!out) return false;
    const mlt::Transmit& transmit = out->transmit;
    pending_.destination = out->peer;
    pending_.path = transmit.path;
    pending_.traffic_class = transmit.traffic_class;
    pending_.ecn = transmit.ect ? Ecn::kEct0 : Ecn::kNotEct;
    pending_.payload_bytes = transmit.length;
    const auto* data = std::get_if<mlt::DataHeader>(&transmit.header);
    pending_.payload_tag = data == nullptr ? 0 : content(*data, transmit);
    std::array<std::byte, mlt::kMaxHeader> bytes;
    const std::size_t size = mlt::serialize(transmit.header, bytes);
    pending_.header = transport::io::Header(size);
    std::copy_n(bytes.begin(), size, pending_.header.bytes().begin());
  }
  has_pending_ = !host_.send(pending_);
  return !has_pending_;
}

void MltHost::handle(const mlt::Endpoint::Event& event, TimePoint now) {
  if (const auto* received = std::get_if<mlt::ReceiveDone>(&event.what)) {
    on_received(event.connection, *received, now);
    core_.release(event.connection, received->receive);
  } else if (const auto* sent = std::get_if<mlt::SendDone>(&event.what)) {
    on_sent(event.connection, *sent, now);
  } else if (const auto* unstage = std::get_if<mlt::Endpoint::Unstage>(&event.what)) {
    on_unstage(event.connection, unstage->receive);
    core_.receiver(event.connection).unstaged(unstage->receive);
  } else if (std::holds_alternative<mlt::Endpoint::Rebuildable>(event.what)) {
    while (const auto what = core_.receiver(event.connection).poll_rebuild()) {
      on_rebuild(event.connection, *what);
      core_.rebuilt(event.connection, *what, now);
    }
  } else {
    on_peer_lost(event.connection);
  }
}

std::uint64_t MltHost::content(const mlt::DataHeader&, const mlt::Transmit&) { return 0; }
void MltHost::on_placed(const mlt::Endpoint::Arrival&, const transport::sim::SimPacket&) {}
void MltHost::on_unstage(ConnectionId, std::uint32_t) {}
void MltHost::on_rebuild(ConnectionId, const mlt::Rebuild&) {}
void MltHost::on_posted(ConnectionId, std::uint32_t) {}
void MltHost::on_received(ConnectionId, const mlt::ReceiveDone&, TimePoint) {}
void MltHost::on_sent(ConnectionId, const mlt::SendDone&, TimePoint) {}
void MltHost::on_peer_lost(ConnectionId) {}

}  // namespace clustar::bench::sim
