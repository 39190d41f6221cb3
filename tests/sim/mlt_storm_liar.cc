// What a peer may say that holds the secret and means ill: each field of each packet, near what is true or far off.
#include <algorithm>
#include <limits>

#include "tests/sim/mlt_storm_adversary.h"

namespace clustar::mlt::test {
namespace {

template <class T>
T odd(T value, Rng& rng) {
  switch (rng.below(9)) {
    case 0: return static_cast<T>(value + 1);
    case 1: return static_cast<T>(value - 1);
    case 2: return static_cast<T>(value + rng.below(1000));
    case 3: return static_cast<T>(value - rng.below(1000));
    case 4: return 0;
    case 5: return std::numeric_limits<T>::max();
    case 6: return static_cast<T>(value ^ (std::uint64_t{1} << rng.below(sizeof(T) * 8)));
    case 7: return static_cast<T>(std::uint64_t{1} << rng.below(sizeof(T) * 8));
    default: return static_cast<T>(rng.next());
  }
}

template <class T>
void make_odd(T& field, Rng& rng) {
  field = odd(field, rng);
}
void flip(bool& field) { field = !field; }

void alter_identity(Identity& identity, Rng& rng) {
  identity.known = rng.chance(0.7);
  if (!identity.known) identity = Identity();
  if (!identity.known) return;
  identity.local_number = rng.chance(0.5);
  identity.number = rng.chance(0.5) ? Identity::kNumbers - 1 : rng.below(Identity::kNumbers);
  make_odd(identity.transfer, rng);
  make_odd(identity.channel, rng);
  make_odd(identity.function, rng);
  make_odd(identity.sender, rng);
}

void alter_open(OpenRecord& open, Rng& rng) {
  switch (rng.below(14)) {
    case 0: open.tag = static_cast<std::int32_t>(rng.below(6)) - 2; break;
    case 1: make_odd(open.tag, rng); break;
    case 2: make_odd(open.tag_seq, rng); break;
    case 3: make_odd(open.forgotten_below, rng); break;
    case 4: make_odd(open.stage, rng); break;
    case 5: flip(open.tolerant); break;
    case 6: flip(open.exchange); break;
    // Its neighbours' communicators are what a peer that was let in could name, too; but what it says of those counts
    // as theirs, and nobody could tell what is right.
    case 7: open.communicator = 5000 + rng.below(rng.chance(0.5) ? 3 : 1'000'000); break;
    case 8: make_odd(open.collective, rng); break;
    case 9: make_odd(open.ranks, rng); break;
    case 10: make_odd(open.edges, rng); break;
    case 11: make_odd(open.collective_bytes, rng); break;
    case 12: open.tolerance_ppm = rng.chance(0.5) ? 1'000'000 : static_cast<std::uint32_t>(rng.below(1'000'001)); break;
    default: make_odd(open.important, rng); break;
  }
  if (rng.chance(0.1)) alter_identity(open.identity, rng);
  open.exchange = open.exchange && open.tolerant;
}

// As a whole it is such that parse() takes it.
void alter_one(DataHeader& data, Rng& rng) {
  switch (rng.below(16)) {
    case 0: make_odd(data.message, rng); break;
    case 1: make_odd(data.index, rng); break;
    case 2: make_odd(data.path_seq, rng); break;
    case 3: make_odd(data.message_bytes, rng); break;
    case 4: data.segment = static_cast<std::uint16_t>(between(rng, kMinSegment, 9000)); break;
    case 5: make_odd(data.passed, rng); break;
    case 6: make_odd(data.sent_units, rng); break;
    case 7: data.quiet = data.retransmission = true; break;
    case 8: flip(data.important); break;
    case 9: data.path = static_cast<std::uint8_t>(rng.below(kMaxPaths)); break;
    case 10: data.traffic_class = static_cast<std::uint8_t>(rng.below(8)); break;
    case 11: flip(data.ack_now); break;
    case 12: flip(data.retransmission); break;
    case 13: make_odd(data.trip, rng); break;
    case 14: flip(data.parity); break;
    default:
      if (!data.open) data.open = OpenRecord();
      alter_open(*data.open, rng);
      break;
  }
  data.quiet = data.quiet && data.retransmission;
  data.message_bytes = std::min(data.message_bytes, kMaxMessageBytes);
  const std::uint64_t packets = packet_count(data.message_bytes, data.segment);
  if (data.parity) {
    data.retransmission = data.important = data.quiet = false;
    data.passed = 0;
  }
  const std::uint64_t most = data.parity ? block_count(static_cast<std::uint32_t>(packets)) * kMaxParity : packets;
  if (data.index >= most && rng.chance(0.9)) data.index = static_cast<std::uint32_t>(rng.below(most));
}

void alter_one(Ack& ack, Rng& rng) {
  const std::uint64_t which = rng.below(8);
  if (which == 0) return make_odd(ack.credit_units, rng);
  if (which == 1) return make_odd(ack.finished_below, rng);
  if (ack.count < Ack::kMaxBlocks && rng.chance(0.3)) ++ack.count;
  if (ack.count == 0) return;
  AckBlock& block = ack.blocks[rng.below(ack.count)];
  switch (which) {
    case 2: make_odd(block.largest, rng); break;
    case 3: make_odd(block.before, rng); break;
    case 4: make_odd(block.marked, rng); break;
    case 5: make_odd(block.delay_us, rng); break;
    case 6: block.path = static_cast<std::uint8_t>(rng.below(kMaxPaths)); break;
    default: block.traffic_class = static_cast<std::uint8_t>(rng.below(8)); break;
  }
}

void alter_one(Posted& posted, Rng& rng) {
  switch (rng.below(4)) {
    case 0: make_odd(posted.tag, rng); break;
    case 1: make_odd(posted.tag_seq, rng); break;
    case 2: make_odd(posted.length, rng); break;
    default: make_odd(posted.credit_units, rng); break;
  }
}

void alter_one(State& state, Rng& rng) {
  switch (rng.below(11)) {
    case 0: make_odd(state.message, rng); break;
    case 1: state.stop = true; break;
    case 2: flip(state.complete); break;
    case 3: flip(state.matched); break;
    case 4: flip(state.asks); break;
    case 5: make_odd(state.credit_units, rng); break;
    case 6: make_odd(state.finished_below, rng); break;
    case 7: state.base = State::kWindow * static_cast<std::uint32_t>(rng.below(rng.chance(0.5) ? 8 : 4000)); break;
    case 8: state.count = static_cast<std::uint16_t>(between(rng, 0, State::kWindow)); break;
    case 9: state.want = static_cast<std::uint16_t>(between(rng, 0, State::kWindow)); break;
    default:
      for (std::byte& byte : state.missing) byte = static_cast<std::byte>(rng.next());
      break;
  }
  for (std::uint32_t i = state.count; i < State::kWindow; ++i) {
    state.missing[i / 8] &= ~(std::byte{0x80} >> (i % 8));
  }
}

void alter_one(Probe& probe, Rng& rng) {
  switch (rng.below(7)) {
    case 0: make_odd(probe.message, rng); break;
    case 1: make_odd(probe.sent, rng); break;
    case 2: make_odd(probe.message_bytes, rng); break;
    case 3: probe.segment = static_cast<std::uint16_t>(between(rng, kMinSegment, 9000)); break;
    case 4: make_odd(probe.sent_units, rng); break;
    case 5: flip(probe.quiet); break;
    default: alter_open(probe.open, rng); break;
  }
  probe.message_bytes = std::min(probe.message_bytes, kMaxMessageBytes);
}

}  // namespace

void alter(Packet& packet, Rng& rng) {
  for (std::uint64_t times = between(rng, 1, 3); times > 0; --times) {
    std::visit([&](auto& header) { alter_one(header, rng); }, packet);
  }
}

}  // namespace clustar::mlt::test
