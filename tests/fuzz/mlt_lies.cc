#include "tests/fuzz/mlt_lies.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <variant>

#include "tests/fuzz/mlt_fields.h"

namespace clustar::fuzz {
namespace {

// Puts into `field` what the lie says.
template <class Field>
void tell(Field& field, const Lie& lie, const Numbers& seen) {
  if constexpr (std::is_same_v<Field, bool>) {
    field = !field;
  } else {
    using Bits = std::make_unsigned_t<Field>;
    constexpr Bits kMost = std::numeric_limits<Bits>::max();
    const auto amount = static_cast<Bits>(lie.amount);
    const auto was = static_cast<Bits>(field);
    // Numbers that far away are neither before nor behind; those beside them are just one of it.
    const auto half = static_cast<Bits>(kMost / 2 + 1 + amount - 128);
    const std::array<Bits, 10> told = {amount,
                                       static_cast<Bits>(was + amount),
                                       static_cast<Bits>(was - amount),
                                       static_cast<Bits>(was + half),
                                       static_cast<Bits>(was + kMost / 2 + 1 + amount % 4),
                                       static_cast<Bits>(kMost - amount),
                                       static_cast<Bits>(was ^ Bits{1} << amount % std::numeric_limits<Bits>::digits),
                                       static_cast<Bits>(seen[amount] + amount / 16 - 8),
                                       static_cast<Bits>(seen[amount] + half),
                                       static_cast<Bits>(amount << std::numeric_limits<Bits>::digits / 2)};
    // Of 16 choices some are more likely.
    constexpr std::array<std::uint8_t, 6> kAgain = {4, 4, 4, 3, 1, 2};
    const std::uint32_t how = lie.how % (told.size() + kAgain.size());
    field = static_cast<Field>(told[how < told.size() ? how : kAgain[how - told.size()]]);
  }
}

void mend(mlt::OpenRecord& open, std::uint32_t packets) {
  open.tolerance_ppm = std::min(open.tolerance_ppm, 1'000'000u);
  open.important = std::min(open.important, packets);
  open.identity.number %= mlt::Identity::kNumbers;
}

template <class Header>
std::uint32_t mend_size(Header& header) {
  header.segment = std::max(header.segment, mlt::kMinSegment);
  header.message_bytes = std::min(header.message_bytes, mlt::kMaxMessageBytes);
  const std::uint64_t most = std::uint64_t{header.segment} * mlt::kMaxPackets;
  header.message_bytes = static_cast<std::uint32_t>(std::min<std::uint64_t>(header.message_bytes, most));
  return mlt::packet_count(header.message_bytes, header.segment);
}

void mend(mlt::DataHeader& data) {
  data.path %= mlt::kMaxPaths;
  data.traffic_class %= 8;
  data.quiet = data.quiet && data.retransmission;
  const std::uint32_t packets = mend_size(data);
  data.parity = data.parity && packets > 1;
  data.index %= data.parity ? mlt::block_count(packets) * mlt::kMaxParity : packets;
  if (data.parity) {
    data.retransmission = data.important = data.quiet = false;
    data.passed = 0;
  }
  if (data.open) mend(*data.open, packets);
}

void mend(mlt::Ack& ack) {
  ack.count = std::min<std::uint8_t>(ack.count, mlt::Ack::kMaxBlocks);
  for (mlt::AckBlock& block : ack.blocks) {
    block.path %= mlt::kMaxPaths;
    block.traffic_class %= 8;
  }
}

void mend(mlt::Posted& posted) { posted.length = std::min(posted.length, mlt::kMaxMessageBytes); }

void mend(mlt::State& state) {
  state.stop = state.stop || state.complete;
  state.asks = state.asks && !state.stop;
  if (state.complete) state.base = state.count = 0;
  state.count = std::min(state.count, mlt::State::kWindow);
  state.base = std::min(state.base, mlt::kMaxPackets - state.count);
  state.want = std::min(state.want, state.count);
  for (std::uint32_t i = state.count; i < mlt::State::kWindow; ++i) {
    state.missing[i / 8] &= ~(std::byte{0x80} >> (i % 8));
  }
}

void mend(mlt::Probe& probe) {
  const std::uint32_t packets = mend_size(probe);
  probe.sent = probe.quiet ? packets : std::min(probe.sent, packets);
  probe.window = static_cast<std::uint16_t>(std::min<std::uint32_t>(probe.window, (packets - 1) / mlt::State::kWindow));
  mend(probe.open, packets);
}

}  // namespace

Lie lie_from(Input& input) {
  Lie lie;
  lie.field = input.byte();
  lie.how = input.byte();
  lie.amount = input.byte();
  return lie;
}

void apply(mlt::Packet& packet, const Lie& lie, const Numbers& seen) {
  std::visit(
      [&](auto& header) {
        std::uint32_t fields = 0;
        visit_fields(header, [&](auto&) { ++fields; });
        std::uint32_t at = 0;
        visit_fields(header, [&](auto& field) {
          if (at++ == lie.field % fields) tell(field, lie, seen);
        });
      },
      packet);
}

void mend(mlt::Packet& packet) {
  std::visit([](auto& header) { mend(header); }, packet);
}

mlt::Packet blank(std::uint32_t sort, std::uint64_t secret, std::uint32_t message, std::uint16_t segment) {
  mlt::DataHeader data;
  mlt::Ack ack;
  mlt::Posted posted;
  mlt::State state;
  mlt::Probe probe;
  data.secret = ack.secret = posted.secret = state.secret = probe.secret = secret;
  data.message = state.message = probe.message = message;
  data.segment = probe.segment = segment;
  data.message_bytes = probe.message_bytes = 3 * segment;
  probe.open.tag_seq = message;
  ack.count = 1;
  state.matched = true;
  state.count = 3;
  switch (sort % 6) {
    case 0: data.open.emplace().tag_seq = message; return data;
    case 1: return data;
    case 2: return ack;
    case 3: return posted;
    case 4: return state;
    default: return probe;
  }
}

}  // namespace clustar::fuzz
