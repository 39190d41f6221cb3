// Who sends what to whom, and when: sizes around every boundary, receives early, late, too short and out of order.
#include <algorithm>
#include <map>
#include <utility>

#include "tests/sim/mlt_storm_plan.h"

namespace clustar::mlt::test {
namespace {

using std::chrono::milliseconds;

constexpr std::uint32_t kMost = 64u << 20;  // bytes of a message
constexpr std::uint32_t kCollectives = 4;   // of a communicator
constexpr std::uint64_t kLiars = 1000;      // their communicators begin here

// What most messages of a trial are like: a long one costs as much as thousands of others.
enum class Sizes : std::uint8_t { kSmall, kWindows, kLong, kUnheard, kHuge };

Sizes draw_sizes(Rng& rng) {
  const double kind = rng.uniform();
  if (kind < 0.002) return Sizes::kHuge;
  if (kind < 0.12) return Sizes::kLong;
  return kind < 0.28 ? Sizes::kWindows : Sizes::kSmall;
}

std::uint32_t draw_packets(Sizes sizes, Rng& rng) {
  switch (sizes) {
    case Sizes::kSmall: return static_cast<std::uint32_t>(rng.chance(0.97) ? scaled(rng, 1, 24) : scaled(rng, 24, 600));
    case Sizes::kWindows:
      if (rng.chance(0.5)) return static_cast<std::uint32_t>(512 * between(rng, 1, 4) + between(rng, 0, 4) - 2);
      return static_cast<std::uint32_t>(scaled(rng, 1, 3'000));
    case Sizes::kLong:  // the eight windows that one answer tells of, and beyond
      if (rng.chance(0.3)) return static_cast<std::uint32_t>(4096 + between(rng, 0, 3));
      return static_cast<std::uint32_t>(scaled(rng, 2'000, 16'000));
    case Sizes::kUnheard: return static_cast<std::uint32_t>(between(rng, 4'097, 9'000));
    case Sizes::kHuge: return kMaxPackets;
  }
  return 1;
}

std::uint32_t draw_bytes(Sizes sizes, std::uint16_t segment, Rng& rng) {
  if (sizes == Sizes::kHuge) return kMost;
  if (sizes == Sizes::kSmall && rng.chance(0.04)) return 0;
  if (rng.chance(0.01)) return static_cast<std::uint32_t>(scaled(rng, 64 * 1024, 1 << 20));
  const std::uint64_t bytes = std::uint64_t{draw_packets(sizes, rng)} * segment;
  const std::uint64_t less = pick<std::uint64_t>(rng, {0, 0, 1, static_cast<std::uint64_t>(segment - 1)});
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(bytes - less, kMost));
}

std::uint64_t count_of(Sizes sizes, Rng& rng) {
  switch (sizes) {
    case Sizes::kSmall: return between(rng, 60, 400);
    case Sizes::kWindows: return between(rng, 6, 50);
    case Sizes::kLong: return between(rng, 1, 5);
    case Sizes::kUnheard: return between(rng, 1, 8);
    case Sizes::kHuge: return 1;
  }
  return 1;
}

// Alike for all messages of a collective, as both ends need it.
SendTerms collective_terms(const StormPlan& plan, std::uint64_t communicator, std::uint32_t collective) {
  Rng rng(plan.seed ^ mix64(communicator * 64 + collective));
  SendTerms terms;
  terms.tolerant = true;
  terms.communicator = communicator;
  terms.collective = collective;
  terms.exchange = rng.chance(0.2);
  terms.ranks = static_cast<std::uint16_t>(rng.chance(0.95) ? between(rng, 2, 16) : rng.below(2));
  terms.edges = static_cast<std::uint16_t>(rng.chance(0.95) ? between(rng, 1, std::max<std::uint64_t>(1, terms.ranks))
                                                            : terms.ranks + 1);
  terms.collective_bytes = rng.chance(0.9) ? static_cast<std::uint64_t>(scaled(rng, 1 << 16, 256 << 20)) : 0;
  terms.tolerance_ppm = pick<std::uint32_t>(rng, {0, 1'000, 10'000, 20'000, 50'000, 200'000, 1'000'000});
  return terms;
}

void draw_terms(const StormPlan& plan, const StormFlow& flow, std::uint64_t communicator, StormMessage& message,
                Rng& rng) {
  message.terms = collective_terms(plan, communicator, static_cast<std::uint32_t>(rng.below(kCollectives)));
  SendTerms& terms = message.terms;
  if (terms.tolerance_ppm > flow.sender.max_tolerance_ppm) {  // it would be refused
    message.terms = SendTerms();
    return;
  }
  terms.stage = static_cast<std::uint16_t>(rng.chance(0.95) ? rng.below(std::max(1, terms.ranks - 1)) : rng.below(100));
  if (rng.chance(0.3)) terms.bulk = PacketKind::kFrontLayerBulk;
  const std::uint32_t packets = message.packets(flow.sender.segment);
  const double important = pick<double>(rng, {0, 0, 0.05, 0.2, 1});
  if (important == 0) return;
  if (!message.important.reset(packets)) return;
  for (std::uint32_t i = 0; i < packets; ++i) {
    if (rng.chance(important)) message.important.set(i);
  }
}

void draw_identity(SendTerms& terms, Rng& rng) {
  if (!rng.chance(0.1)) return;
  terms.identity.known = true;
  terms.identity.number = rng.below(Identity::kNumbers);
  terms.identity.transfer = static_cast<std::uint32_t>(rng.next());
}

// No receive waits for a message that itself waits for the receives behind: who keeps to windows of max_messages, and
// within them to the order of each tag, always gets on.
std::vector<std::uint32_t> draw_post_order(const StormFlow& flow, Rng& rng) {
  std::vector<std::uint32_t> order;
  const auto count = static_cast<std::uint32_t>(flow.messages.size());
  const bool in_order = rng.chance(0.4);
  for (std::uint32_t from = 0; from < count; from += flow.receiver.max_messages) {
    std::map<std::int32_t, std::vector<std::uint32_t>> by_tag;  // the first of them last
    for (std::uint32_t i = std::min(count, from + flow.receiver.max_messages); i-- > from;) {
      by_tag[in_order ? 0 : flow.messages[i].tag].push_back(i);
    }
    while (!by_tag.empty()) {
      const auto next = std::next(by_tag.begin(), static_cast<std::ptrdiff_t>(rng.below(by_tag.size())));
      order.push_back(next->second.back());
      next->second.pop_back();
      if (next->second.empty()) by_tag.erase(next);
    }
  }
  return order;
}

void draw_times(const StormPlan& plan, StormFlow& flow, Rng& rng) {
  const bool at_once = rng.chance(0.5);
  const auto span = static_cast<double>(plan.heal.time_since_epoch().count()) * 1.1;
  std::vector<std::int64_t> times;
  for (std::size_t i = 0; i < flow.messages.size(); ++i) {
    times.push_back(at_once ? 0 : static_cast<std::int64_t>(rng.uniform() * span));
  }
  std::sort(times.begin(), times.end());
  for (std::size_t i = 0; i < times.size(); ++i) flow.messages[i].send_at = TimePoint(Duration(times[i]));
  const int lateness = static_cast<int>(rng.below(4));
  TimePoint earlier{};
  for (const std::uint32_t number : flow.post_order) {
    StormMessage& message = flow.messages[number];
    TimePoint at = message.send_at;
    if (lateness == 0) at = TimePoint();
    if (lateness == 2) at += Duration(rng.below(static_cast<std::uint64_t>(3 * plan.round_trip.count())));
    if (lateness == 3 && rng.chance(0.05)) at += milliseconds(rng.below(100));
    message.post_at = earlier = std::max(earlier, at);
  }
}

void draw_messages(const StormPlan& plan, StormFlow& flow, Sizes sizes, std::uint64_t count, Rng& rng) {
  const double tolerant = pick<double>(rng, {0, 0.5, 0.9, 1});
  const std::uint64_t tags = between(rng, 1, rng.chance(0.5) ? 1 : 5);
  const bool shorter = rng.chance(0.2);
  const std::uint64_t communicator = flow.lies ? kLiars + flow.from : pick<std::uint64_t>(rng, {1, 1, 2});
  std::map<std::int32_t, std::uint32_t> seqs;
  for (std::uint64_t i = 0; i < count; ++i) {
    StormMessage& message = flow.messages.emplace_back();
    message.bytes = draw_bytes(sizes, flow.sender.segment, rng);
    message.tag = static_cast<std::int32_t>(rng.below(tags)) - 1;
    message.tag_seq = seqs[message.tag]++;
    message.length = message.bytes;
    if (shorter && rng.chance(0.1)) message.length = static_cast<std::uint32_t>(rng.below(message.bytes + 1));
    if (rng.chance(0.1)) message.length += static_cast<std::uint32_t>(scaled(rng, 1, 100'000));
    if (rng.chance(tolerant)) draw_terms(plan, flow, communicator, message, rng);
    draw_identity(message.terms, rng);
  }
  flow.post_order = draw_post_order(flow, rng);
  draw_times(plan, flow, rng);
}

StormFlow draw_flow(const StormPlan& plan, Sizes sizes, Rng& rng) {
  StormFlow flow;
  flow.from = static_cast<std::uint32_t>(rng.below(plan.hosts.size()));
  flow.to = static_cast<std::uint32_t>((flow.from + between(rng, 1, plan.hosts.size() - 1)) % plan.hosts.size());
  flow.secret = rng.next();
  flow.sender = plan.hosts[flow.from].options;
  flow.receiver = plan.hosts[flow.to].options;
  if (rng.chance(0.25)) flow.sender.segment = static_cast<std::uint16_t>(scaled(rng, 64, flow.sender.segment));
  if ((sizes == Sizes::kLong || sizes == Sizes::kUnheard) && rng.chance(0.5))
    flow.sender.segment = static_cast<std::uint16_t>(scaled(rng, 64, 300));
  if (sizes == Sizes::kHuge && rng.chance(0.9)) {
    flow.sender.segment = std::max<std::uint16_t>(flow.sender.segment, 1024);
  }
  if (rng.chance(0.2)) flow.receiver.max_tolerance_ppm = pick<std::uint32_t>(rng, {0, 20'000, 50'000});
  return flow;
}

// Probes and their answers of all messages must not fill the line by themselves: nothing in the core would stop them.
Duration least_probe_cap(const StormPlan& plan) {
  constexpr std::uint64_t kProbe = 170, kAnswer = 140, kMostAnswers = 8;  // bytes, with the wire's own
  std::uint64_t bytes = 0;
  for (const StormFlow& flow : plan.flows) {
    for (const StormMessage& message : flow.messages) {
      const std::uint64_t windows = message.packets(flow.sender.segment) / State::kWindow + 1;
      bytes += kProbe + kAnswer * std::min(windows, kMostAnswers);
    }
  }
  return Duration(4 * bytes * 8'000'000'000 / plan.rate_bps);
}

}  // namespace

void draw_workload(StormPlan& plan, Rng& rng) {
  const Sizes drawn = draw_sizes(rng);
  const Sizes sizes = plan.unheard ? Sizes::kUnheard : drawn;
  // A large message over a slow line is no other than a smaller one, and takes its time.
  if (sizes == Sizes::kHuge) plan.rate_bps = std::max<std::uint64_t>(plan.rate_bps, 10'000'000'000);
  plan.hostile = sizes != Sizes::kHuge && rng.chance(0.12) && !plan.unheard;
  const std::uint64_t most = plan.unheard ? 3 : 6;
  const std::uint64_t flows = sizes == Sizes::kHuge ? 1 : between(rng, plan.hostile ? 2 : 1, most);
  const std::uint64_t count = count_of(sizes, rng);
  for (std::uint64_t i = 0; i < flows; ++i) {
    StormFlow flow = draw_flow(plan, sizes, rng);
    flow.lies = plan.hostile && i == 0;
    draw_messages(plan, flow, sizes, std::max<std::uint64_t>(1, count / flows), rng);
    plan.messages += flow.messages.size();
    plan.flows.push_back(std::move(flow));
  }
  for (StormFlow& flow : plan.flows) {
    for (Options* options : {&flow.sender, &flow.receiver}) {
      if (!plan.driver_options) options->probe_cap = std::max(options->probe_cap, least_probe_cap(plan));
    }
  }
  plan.settle = plan.heal;
  for (const StormFlow& flow : plan.flows) {
    for (const StormMessage& message : flow.messages) {
      plan.settle = std::max({plan.settle, message.send_at, message.post_at});
    }
  }
}

}  // namespace clustar::mlt::test
