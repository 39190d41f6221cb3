#include "bench/micro/mlt_pair.h"

#include <algorithm>
#include <array>
#include <span>
#include <variant>

#include "transport/base/rng.h"

namespace clustar::bench::micro {

using mlt::Endpoint;

namespace {

constexpr std::int32_t kTag = 7;
constexpr std::uint32_t kBurst = 32;         // packets that a driver takes from a NIC at a time
constexpr std::uint32_t kPacketBytes = 128;  // around the payload: headers, preamble, gap; or a control packet
constexpr int kMostIdle = 100'000;           // rounds without a data packet: something waits forever

PairOptions opted_in(PairOptions options) {
  options.core.max_tolerance_ppm = 1'000'000;
  return options;
}

}  // namespace

MltPair::MltPair(const PairOptions& options)
    : options_(opted_in(options)), terms_(options.terms), from_(options_.core, 1), to_(options_.core, 2) {
  for (std::uint32_t i = 0; i < options_.connections; ++i) {
    const std::uint64_t secret = mix64(i + 1);
    const Endpoint::ConnectionId from = from_.open_sender(2, secret, now_);
    const Endpoint::ConnectionId to = to_.open_receiver(1, secret, now_);
    for (std::uint32_t message = 0; message < options_.ahead; ++message) {
      if (!to_.post(to, kTag, options_.message_bytes, now_) || !send(from)) failed_ = true;
    }
  }
}

bool MltPair::send(Endpoint::ConnectionId connection) {
  if (options_.collective_bytes > 0) {
    const std::uint32_t messages = std::max(1u, options_.collective_bytes / options_.message_bytes);
    terms_.collective = static_cast<std::uint32_t>(offered_ / messages);
  }
  ++offered_;
  return from_.send(connection, options_.message_bytes, kTag, terms_, now_).has_value();
}

bool MltPair::run_packets(std::uint64_t count) {
  const std::uint64_t enough = counters_.packets + count;
  while (!failed_ && counters_.packets < enough) failed_ = !round();
  return !failed_;
}

bool MltPair::run_messages(std::uint64_t count) {
  const std::uint64_t enough = counters_.sent + count;
  while (!failed_ && counters_.sent < enough) failed_ = !round();
  return !failed_;
}

// One burst each way with what follows from it; where nothing may go, as much time as it takes.
bool MltPair::round() {
  for (int idle = 0; idle < kMostIdle && !failed_; ++idle) {
    const std::uint32_t forth = move(from_, to_);
    receiver_events();
    const std::uint32_t back = move(to_, from_);
    sender_events();
    if (from_.next_timeout() <= now_) from_.on_timeout(now_);
    if (to_.next_timeout() <= now_) to_.on_timeout(now_);
    if (forth > 0) return !failed_;
    if (back > 0) continue;
    const TimePoint next = std::min(from_.next_timeout(), to_.next_timeout());
    if (next == TimePoint::max()) return false;
    now_ = std::max(next, now_ + Duration(1));
  }
  return false;
}

std::uint32_t MltPair::move(Endpoint& from, Endpoint& to) {
  std::uint32_t moved = 0;
  while (moved < kBurst) {
    const auto out = from.poll_transmit(now_);
    if (!out) break;
    ++moved;
    const mlt::Transmit& transmit = out->transmit;
    // Only what the sender sends takes time: the other direction has a line of its own.
    if (&from == &from_) {
      const std::uint64_t bytes = kPacketBytes + transmit.length;
      now_ += Duration(static_cast<Duration::rep>(bytes * 1'000'000'000 / options_.core.line_rate));
    }
    const bool data = std::holds_alternative<mlt::DataHeader>(transmit.header);
    if (data && options_.lose_every > 0 && ++data_ % options_.lose_every == 0) {
      ++counters_.lost;
      continue;
    }
    std::array<std::byte, mlt::kMaxHeader> header;
    const std::size_t size = mlt::serialize(transmit.header, header);
    to.on_packet(std::span(header).first(size), transmit.length, false, now_);
    ++(data ? counters_.packets : &from == &from_ ? counters_.probes : counters_.control);
  }
  return moved;
}

void MltPair::receiver_events() {
  while (const auto event = to_.poll_event()) {
    if (const auto* unstage = std::get_if<Endpoint::Unstage>(&event->what)) {
      to_.receiver(event->connection).unstaged(unstage->receive);
    } else if (const auto* done = std::get_if<mlt::ReceiveDone>(&event->what)) {
      ++counters_.received;
      counters_.missing += done->missing;
      to_.release(event->connection, done->receive);
      if (!to_.post(event->connection, kTag, options_.message_bytes, now_)) failed_ = true;
    }
  }
}

void MltPair::sender_events() {
  while (const auto event = from_.poll_event()) {
    if (std::holds_alternative<Endpoint::PeerLost>(event->what)) failed_ = true;
    if (!std::holds_alternative<mlt::SendDone>(event->what)) continue;
    ++counters_.sent;
    if (!send(event->connection)) failed_ = true;
  }
}

}  // namespace clustar::bench::micro
