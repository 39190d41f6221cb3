#include "tests/sim/mlt_storm_adversary.h"

#include <algorithm>
#include <array>
#include <utility>

namespace clustar::mlt::test {

namespace sim = transport::sim;

namespace {

constexpr std::size_t kMostRecorded = 2000;

}  // namespace

Adversary::Adversary(const StormPlan& plan, sim::Simulation& simulation, sim::Network& network)
    : plan_(plan), simulation_(simulation), network_(network), rng_(plan.seed ^ 0xadu) {
  draw_tactics();
  for (const StormFlow& flow : plan.flows) {
    if (flow.lies) liars_.insert(flow.secret);
  }
  lying_ = pick<double>(rng_, {0.01, 0.1, 0.3});
  if (tactics_.empty() && liars_.empty()) return;
  for (sim::HostId host = 0; host < network.hosts(); ++host) {
    network.up(host).faults().add(
        sim::Intercept{[this](sim::SimPacket& packet, TimePoint at, sim::Fate& fate) { decide(packet, at, fate); }},
        {-1, -1, {TimePoint(), plan.heal}});
  }
}

void Adversary::draw_tactics() {
  if (plan_.unheard) {
    tactics_.push_back(lose_answers_in_phases(plan_, rng_));
    if (rng_.chance(0.8)) return;
  }
  if (plan_.heal > TimePoint(std::chrono::seconds(3)) && rng_.chance(0.7))
    tactics_.push_back(long_blackout(plan_, rng_));
  const std::uint64_t count = pick<std::uint64_t>(rng_, {0, 1, 1, 1, 2, 2, 3});
  for (std::uint64_t i = 0; i < count; ++i) tactics_.push_back(draw_tactic(plan_, rng_));
}

std::string Adversary::describe() const {
  std::string text = tactics_.empty() ? "\n  no tactic" : "";
  for (const Tactic& tactic : tactics_) {
    const auto us = [](TimePoint time) {
      return std::to_string(std::chrono::duration_cast<std::chrono::microseconds>(time.time_since_epoch()).count());
    };
    text += "\n  from " + us(tactic.from) + " to " + us(tactic.until) + " us: " + tactic.name;
  }
  return text;
}

void Adversary::decide(sim::SimPacket& packet, TimePoint at, sim::Fate& fate) {
  if (!parse(packet.header.bytes(), header_)) return;  // a copy of its own that says nothing
  const Sighting seen{packet, header_, at, network_.down(packet.destination).queued_bytes()};
  Verdict verdict;
  for (Tactic& tactic : tactics_) {
    if (tactic.from <= at && at < tactic.until) tactic.decide(seen, verdict);
  }
  if (!liars_.empty() && liars_.contains(seen.secret()) && rng_.chance(lying_)) lie(packet, at);
  carry_out(verdict, packet, at, fate);
}

void Adversary::carry_out(const Verdict& verdict, sim::SimPacket& packet, TimePoint at, sim::Fate& fate) {
  const Duration left = plan_.heal - at;  // by then all that is held back has been let go
  if (verdict.record && recorded_.size() < kMostRecorded) recorded_.push_back(packet);
  if (verdict.replay && !recorded_.empty()) inject(recorded_[rng_.below(recorded_.size())], at);
  if (verdict.mark && packet.ecn != transport::io::Ecn::kNotEct) packet.ecn = transport::io::Ecn::kCe;
  for (std::uint32_t i = 1; i <= verdict.copies && i * verdict.gap < left; ++i) inject(packet, at + i * verdict.gap);
  if (verdict.drop) {
    ++dropped_;
    fate.drop = sim::DropCause::kIntercepted;
  } else if (verdict.delay > Duration::zero()) {
    ++delayed_;
    fate.delay += std::min(verdict.delay, left);
    fate.held_back = true;
  }
}

// It passes the switch as any other, when the original would or later.
void Adversary::inject(const sim::SimPacket& packet, TimePoint at) {
  sim::PacketPool& pool = simulation_.packets();
  const sim::PacketId id = pool.take();
  sim::PacketPool::Slot& slot = pool[id];
  slot.packet = packet;
  slot.wire_bytes =
      static_cast<std::uint32_t>(packet.header.bytes().size()) + packet.payload_bytes + simulation_.overhead_bytes();
  const sim::LinkOptions& link = network_.up(0).options();
  const Duration wire(std::uint64_t{slot.wire_bytes} * 8'000'000'000 / link.rate_bps + 1);
  simulation_.events().push(at + wire + link.delay, network_.switch_at(0).node(), sim::kArrival, id);
}

void Adversary::lie(const sim::SimPacket& packet, TimePoint at) {
  sim::SimPacket altered = packet;
  Packet header = header_;
  alter(header, rng_);
  std::array<std::byte, kMaxHeader> bytes;
  const std::size_t size = serialize(header, bytes);
  altered.header = transport::io::Header(size);
  std::copy_n(bytes.begin(), size, altered.header.bytes().begin());
  if (rng_.chance(0.05)) altered.header.bytes()[rng_.below(size)] ^= std::byte{1} << rng_.below(8);
  if (const auto* data = std::get_if<DataHeader>(&header)) {
    altered.payload_bytes = rng_.chance(0.95) ? payload_bytes(*data) : static_cast<std::uint32_t>(rng_.below(9000));
    altered.payload_bytes = std::min<std::uint32_t>(altered.payload_bytes, 65535);
  }
  ++lies_;
  inject(altered, at + Duration(rng_.below(static_cast<std::uint64_t>(2 * plan_.round_trip.count()))));
}

}  // namespace clustar::mlt::test
