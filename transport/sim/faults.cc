#include "transport/sim/faults.h"

#include <algorithm>
#include <utility>

namespace clustar::transport::sim {
namespace {

void lose(Fate& fate, DropCause cause) {
  if (fate.drop == DropCause::kNone) fate.drop = cause;
}

void flip_bit(std::span<std::byte> bytes, Rng& rng) {
  const std::uint64_t bit = rng.below(bytes.size() * 8);
  bytes[bit / 8] ^= std::byte{1} << (bit % 8);
}

// False if the packet has no byte in the part that is meant.
bool corrupt(SimPacket& packet, const Corrupt& how, Rng& rng) {
  const std::span<std::byte> header = packet.header.bytes();
  const bool any = how.where == Corrupt::Where::kAny;
  const std::size_t header_bits = how.where == Corrupt::Where::kPayload ? 0 : header.size();
  const std::size_t payload_bits = how.where == Corrupt::Where::kHeader ? 0 : packet.payload_bytes;
  if (header_bits + payload_bits == 0) return false;
  for (std::uint32_t i = 0; i < std::min(how.bits, Corrupt::kMaxBits); ++i) {
    const bool in_header = any ? rng.below(header_bits + payload_bits) < header_bits : payload_bits == 0;
    if (in_header) {
      flip_bit(header, rng);
    } else if (!packet.payload.empty()) {
      flip_bit(packet.payload, rng);
    } else {
      packet.payload_tag ^= std::uint64_t{1} << rng.below(64);
    }
  }
  packet.corrupted = true;
  return true;
}

}  // namespace

// One overload a fault; `arrival` already holds the delays of the faults before.
struct FaultChain::Decide {
  Active& state;
  SimPacket& packet;
  Fate& fate;
  TimePoint sent;
  TimePoint arrival;

  void operator()(const RandomLoss& loss) {
    if (state.rng.chance(loss.probability)) lose(fate, DropCause::kRandom);
  }
  void operator()(const GilbertElliott& model) {
    const bool moves = state.rng.chance(state.bad ? model.bad_to_good : model.good_to_bad);
    if (moves) state.bad = !state.bad;
    if (state.rng.chance(state.bad ? model.loss_bad : model.loss_good)) lose(fate, DropCause::kGilbert);
  }
  void operator()(const PeriodicLoss& loss) {
    if (loss.every > 0 && state.seen % loss.every == 0) lose(fate, DropCause::kPeriodic);
  }
  void operator()(const ScriptedLoss& loss) {
    if (state.cursor == loss.numbers.size() || loss.numbers[state.cursor] != state.seen) return;
    ++state.cursor;
    lose(fate, DropCause::kScripted);
  }
  void operator()(const MicroBursts& bursts) {
    const bool unlucky = state.rng.chance(bursts.probability);
    const TimePoint at = bursts.period > Duration::zero() ? TimePoint(sent.time_since_epoch() % bursts.period) : sent;
    const auto after = std::upper_bound(bursts.windows.begin(), bursts.windows.end(), at,
                                        [](TimePoint time, const Window& window) { return time < window.from; });
    const bool inside = after != bursts.windows.begin() && std::prev(after)->holds(at);
    if (inside && unlucky) lose(fate, DropCause::kBurst);
  }
  void operator()(const Reorder& reorder) {
    if (!state.rng.chance(reorder.probability)) return;
    fate.delay += reorder.delay;
    fate.held_back = true;
  }
  void operator()(const Jitter& jitter) {
    const Duration extra(state.rng.below(static_cast<std::uint64_t>(jitter.max.count()) + 1));
    const TimePoint drawn = arrival + extra;
    const TimePoint arrives = jitter.keep_order ? std::max(drawn, state.last_arrival) : drawn;
    state.last_arrival = std::max(state.last_arrival, arrives);
    fate.delay += arrives - arrival;
  }
  void operator()(const Duplicate& duplicate) {
    if (!state.rng.chance(duplicate.probability)) return;
    fate.duplicated = true;
    fate.duplicate_delay = duplicate.delay;
  }
  void operator()(const Corrupt& how) {
    if (state.rng.chance(how.probability)) fate.corrupted |= corrupt(packet, how, state.rng);
  }
  void operator()(const LinkDown& down) {
    if (sent < down.window.until && arrival > down.window.from) lose(fate, DropCause::kLinkDown);
  }
  void operator()(const Intercept& intercept) { intercept.decide(packet, sent, fate); }
};

void FaultChain::add(Fault fault, const FaultScope& scope) {
  if (auto* scripted = std::get_if<ScriptedLoss>(&fault)) {
    std::sort(scripted->numbers.begin(), scripted->numbers.end());
    scripted->numbers.erase(std::unique(scripted->numbers.begin(), scripted->numbers.end()), scripted->numbers.end());
    std::erase(scripted->numbers, 0u);
  } else if (auto* bursts = std::get_if<MicroBursts>(&fault)) {
    std::sort(bursts->windows.begin(), bursts->windows.end(),
              [](const Window& a, const Window& b) { return a.from < b.from; });
  } else if (auto* jitter = std::get_if<Jitter>(&fault)) {
    jitter->max = std::max(jitter->max, Duration::zero());
  }
  // Named by kind and number among its kind: a fault of another kind does not shift it.
  const std::size_t kind = fault.index();
  const auto earlier = static_cast<std::uint64_t>(std::count_if(
      faults_.begin(), faults_.end(), [kind](const Active& active) { return active.fault.index() == kind; }));
  Digest stream;
  for (const std::uint64_t word : {seed_, std::uint64_t{link_}, std::uint64_t{kind}, earlier}) stream.add(word);
  faults_.push_back(Active{.fault = std::move(fault), .scope = scope, .rng = Rng(stream.value())});
}

Fate FaultChain::decide(SimPacket& packet, TimePoint sent, TimePoint arrival) {
  Fate fate;
  for (Active& active : faults_) {
    const FaultScope& scope = active.scope;
    if (scope.path >= 0 && scope.path != packet.path) continue;
    if (scope.traffic_class >= 0 && scope.traffic_class != packet.traffic_class) continue;
    if (!scope.active.holds(sent)) continue;
    ++active.seen;
    std::visit(Decide{active, packet, fate, sent, arrival + fate.delay}, active.fault);
  }
  return fate;
}

}  // namespace clustar::transport::sim
