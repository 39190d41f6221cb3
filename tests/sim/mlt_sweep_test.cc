// Seeds choose a network, its faults, the core's options and a workload; what must hold holds in every one of them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "mlt/compare/recoveries.h"
#include "tests/sanitized.h"
#include "tests/sim/environment.h"
#include "tests/sim/mlt_world.h"
#include "transport/base/rng.h"

namespace clustar::mlt::test {
namespace {

const compare::GoBackN kGoBackN{};
const compare::StaticDeadline kStaticDeadline(std::chrono::milliseconds(1));

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

using tests::kSanitized;
using tests::number_from_environment;
#ifdef __OPTIMIZE__
constexpr std::uint64_t kMessages = kSanitized ? 10'000 : 100'000;
#else
constexpr std::uint64_t kMessages = 4'000;
#endif

struct Flow {
  std::uint32_t from;
  std::uint32_t to;
};
struct Planned {
  std::uint32_t bytes;
  SendTerms terms;
  PacketBitmap important;
  Duration late{0};  // the receive is posted so long after the message was sent
  TimePoint late_until{};
};

struct Plan {
  Options options;
  std::uint32_t hosts = 2;
  std::uint64_t buffer = 1 << 20;
  std::vector<Flow> flows;
  std::uint32_t messages = 0;   // of each flow
  std::uint32_t in_flight = 0;  // of each flow
  double tolerant = 0;          // share of the messages
  double late = 0;              // share of the receives that are posted after their messages were sent
  double size_limit = 0;        // log2
  bool ahead = false;           // receives are posted long before their messages are sent
  bool clean = true;            // no loss, nothing held back
  bool spines = false;          // two leaves and two spines instead of one switch
  bool reopens = false;         // connections are closed and opened again when they are idle
  std::string text;
};

template <class T, std::size_t N>
T pick(Rng& rng, const T (&values)[N]) {
  return values[rng.below(N)];
}

Plan plan_of(std::uint64_t seed) {
  Rng rng(seed);
  Plan plan;
  plan.options.segment = pick<std::uint16_t>(rng, {1408, 1408, 8900, 256, 1000});
  plan.options.paths = pick<std::uint8_t>(rng, {1, 2, 8, 8, 32});
  plan.options.max_messages = pick<std::uint32_t>(rng, {256, 256, 16, 4});
  plan.options.max_staged = pick<std::uint32_t>(rng, {64, 64, 2});
  plan.options.unscheduled_bytes = pick<std::uint32_t>(rng, {4096, 4096, 16384, 0});
  plan.hosts = 2 + static_cast<std::uint32_t>(rng.below(7));
  plan.buffer = pick<std::uint64_t>(rng, {1 << 20, 1 << 20, 100'000, 30'000});
  const std::uint64_t shape = rng.below(3);
  if (shape == 0) plan.flows = {{0, 1}};
  if (shape == 1) {
    for (std::uint32_t i = 1; i < plan.hosts; ++i) plan.flows.push_back({i, 0});
  }
  if (shape == 2) {
    for (std::uint32_t i = 0; i < plan.hosts; ++i) plan.flows.push_back({i, (i + 1) % plan.hosts});
  }
  plan.messages = 20 + static_cast<std::uint32_t>(rng.below(400 / plan.flows.size()));
  plan.in_flight = 1 + static_cast<std::uint32_t>(rng.below(std::min<std::uint32_t>(plan.options.max_messages, 64)));
  plan.tolerant = pick<double>(rng, {0, 0, 0.5, 1});
  plan.late = pick<double>(rng, {0, 0.1, 1});
  plan.ahead = plan.late == 0 && rng.chance(0.5);
  plan.size_limit = pick<double>(rng, {2, 10, 13, 16, 18});
  plan.spines = rng.chance(0.25);
  plan.reopens = rng.chance(0.25);
  const double mode = rng.uniform();
  if (mode < 0.05) plan.options.recovery = &kGoBackN;
  if (mode > 0.95) plan.options.recovery = &kStaticDeadline;
  if (plan.options.recovery == &kGoBackN) {
    plan.options.paths = 1;  // it has no other, whatever it is given
    plan.tolerant = 0;
  }
  plan.text = fmt::format(
      "seed {}: {} hosts, {} flows of {} messages, {} in flight, segment {}, {} paths, tolerant {}, "
      "late {}, window {}, staged {}, unscheduled {}, buffer {}{}{}, recovery {}",
      seed, plan.hosts, plan.flows.size(), plan.messages, plan.in_flight, plan.options.segment, plan.options.paths,
      plan.tolerant, plan.late, plan.options.max_messages, plan.options.max_staged, plan.options.unscheduled_bytes,
      plan.buffer, plan.spines ? ", spines" : "", plan.reopens ? ", reopens" : "",
      plan.options.recovery == nullptr ? 0 : plan.options.recovery->number());
  return plan;
}

void add_faults(sim::Network& network, Plan& plan, Rng& rng) {
  // One of them at most, or two hosts might have no path left; of a single path, none.
  const int bad_path = plan.options.paths > 1 ? static_cast<int>(rng.below(plan.options.paths)) : kMaxPaths;
  for (std::uint32_t host = 0; host < plan.hosts; ++host) {
    for (sim::Port* port : {&network.up(host), &network.down(host)}) {
      const auto likely = [&](double probability) { return rng.chance(probability); };
      sim::FaultChain& faults = port->faults();
      const auto add = [&](const char* name, sim::Fault fault, const sim::FaultScope& scope = {}) {
        faults.add(std::move(fault), scope);
        plan.text += fmt::format(", {} {}{}", name, port == &network.up(host) ? "from " : "to ", host);
      };
      if (likely(0.3)) add("loss", sim::RandomLoss{pick<double>(rng, {0.001, 0.01, 0.05, 0.16})});
      if (likely(0.15)) add("bursts", sim::GilbertElliott{0.01, 0.2, 0, 0.8});
      if (likely(0.2)) add("reordering", sim::Reorder{0.05, microseconds(1 + rng.below(100))});
      if (likely(0.2)) add("duplicates", sim::Duplicate{0.05, microseconds(rng.below(50))});
      if (likely(0.2)) add("jitter", sim::Jitter{microseconds(1 + rng.below(20)), likely(0.5)});
      if (likely(0.1)) add("corruption", sim::Corrupt{0.02});
      if (likely(0.1)) {
        add("micro-bursts",
            sim::MicroBursts{0.8, {{TimePoint(microseconds(100)), TimePoint(microseconds(400))}}, milliseconds(2)});
      }
      if (likely(0.15)) {  // one path is gone, for a while or for good
        const TimePoint from = TimePoint(microseconds(rng.below(500)));
        const TimePoint until = likely(0.5) ? sim::kNever : from + milliseconds(1 + rng.below(50));
        add("a dead path", sim::LinkDown{{from, until}}, {bad_path, -1, {}});
      }
      if (likely(0.05)) {
        const TimePoint from = TimePoint(microseconds(rng.below(500)));
        add("an outage", sim::LinkDown{{from, from + milliseconds(1 + rng.below(20))}});
      }
    }
    if (rng.chance(0.1)) {
      const TimePoint from = TimePoint(microseconds(1 + rng.below(500)));
      network.host(host).freeze(from, from + milliseconds(1 + rng.below(50)));
    }
  }
}

struct Outcome {
  std::uint64_t messages = 0;
  std::uint64_t missing_bytes = 0;
  std::uint64_t digest = 0;
};

class Trial {
 public:
  explicit Trial(std::uint64_t seed) : plan_(plan_of(seed)), rng_(seed ^ 0x5eed), simulation_({seed, 66}) {
    build_network();
    plan_.clean = rng_.chance(0.15);
    if (!plan_.clean) add_faults(*network_, plan_, rng_);
    plan_.options.base_rtt = microseconds(10);
    plan_.options.max_tolerance_ppm = 1'000'000;
    world_ = std::make_unique<World>(simulation_, *network_, plan_.options, seed);
    for (const Flow& flow : plan_.flows) {
      Lane lane;
      lane.flow = flow;
      for (std::uint32_t i = 0; i < plan_.messages; ++i) lane.messages.push_back(message());
      world_->host(flow.from).connection_to(flow.to);
      world_->host(flow.to).connection_from(flow.from);
      lane_of_[{flow.from, flow.to}] = lanes_.size();
      lane.reopen_at = plan_.reopens ? static_cast<std::uint32_t>(rng_.below(plan_.messages)) : plan_.messages;
      lanes_.push_back(std::move(lane));
    }
  }

  Outcome go() {
    for (Lane& lane : lanes_) issue(lane);
    const TimePoint limit(seconds(20));
    while (!over() && world_->now() < limit) {
      const bool more = simulation_.step();
      const std::size_t before = seen_;
      note_finished();
      for (Lane& lane : lanes_) issue(lane);
      if (++steps_ % 64 == 0) check_timers();
      if (!more && seen_ == before && seen_ == world_->finished().size()) break;
    }
    check();
    Outcome outcome;
    outcome.messages = world_->finished().size();
    for (const Finished& done : world_->finished()) outcome.missing_bytes += done.missing;
    outcome.digest = simulation_.digest().value();
    return outcome;
  }

 private:
  struct Lane {
    Flow flow{};
    std::vector<Planned> messages;
    std::uint32_t sent = 0;
    std::uint32_t posted = 0;
    std::uint32_t finished = 0;
    std::uint32_t reopen_at = 0;  // so many messages
  };

  void build_network() {
    sim::SwitchOptions switches;
    switches.buffer_bytes = plan_.buffer;
    switches.mark_above = sim::every_class<std::uint64_t>(65 * 1500);
    sim::HostOptions host;
    host.tx_queue_packets = 4;
    sim::LinkOptions link;
    link.delay = Duration(plan_.spines ? 1250 : 2500);
    network_ = plan_.spines ? sim::Network::leaf_spine(simulation_, {.leaves = 2,
                                                                     .hosts_per_leaf = (plan_.hosts + 1) / 2,
                                                                     .spines = 2,
                                                                     .host_link = link,
                                                                     .fabric_link = link,
                                                                     .host = host,
                                                                     .switches = switches})
                            : sim::Network::star(simulation_, {plan_.hosts, link, host, switches});
  }

  Planned message() {
    Planned message;
    const double size = rng_.uniform() * plan_.size_limit;
    message.bytes = rng_.chance(0.1) ? 0 : static_cast<std::uint32_t>(rng_.below(2ull << static_cast<int>(size)));
    if (rng_.chance(0.0005)) message.bytes = 1 << 20;
    if (rng_.chance(plan_.late)) message.late = microseconds(rng_.chance(0.02) ? rng_.below(20'000) : rng_.below(30));
    if (!rng_.chance(plan_.tolerant)) return message;
    SendTerms& terms = message.terms;
    terms.tolerant = true;
    terms.communicator = 1;
    terms.collective = static_cast<std::uint32_t>(rng_.below(kCollectives));
    terms.ranks = terms.edges = 4;
    terms.stage = static_cast<std::uint16_t>(rng_.below(3));
    if (rng_.chance(0.3)) terms.bulk = PacketKind::kFrontLayerBulk;
    terms.collective_bytes = 1 << 20;
    terms.tolerance_ppm = kPpm;
    const std::uint32_t packets = packet_count(message.bytes, plan_.options.segment);
    if (!message.important.reset(packets)) std::abort();
    for (std::uint32_t i = 0; i < packets; ++i) {
      if (rng_.chance(0.2)) message.important.set(i);
    }
    return message;
  }

  void note_finished() {
    for (; seen_ < world_->finished().size(); ++seen_) {
      const Finished& done = world_->finished()[seen_];
      ++lanes_[lane_of_.at({done.source, done.destination})].finished;
    }
  }

  bool over() const {
    return std::all_of(lanes_.begin(), lanes_.end(), [&](const Lane& lane) {
      return lane.finished == lane.messages.size() && world_->host(lane.flow.from).sends_done() == lane.messages.size();
    });
  }

  bool full(const Lane& lane) {
    MltHost& host = world_->host(lane.flow.from);
    return host.core().sender(host.connection_to(lane.flow.to)).full();
  }

  // The lane stands still until its connection is idle; then that is opened again.
  void reopen_if_idle(Lane& lane) {
    if (lane.sent < lane.reopen_at) return;
    const std::uint64_t done = world_->host(lane.flow.from).sends_done();
    if (lane.finished < lane.sent || lane.posted < lane.sent || done < lane.sent) return;
    world_->reopen(lane.flow.from, lane.flow.to);
    lane.reopen_at = plan_.messages;
  }

  // No host sends to more than one other, so what it has sent is what the lane has sent.
  void issue(Lane& lane) {
    if (lane.reopen_at < plan_.messages) reopen_if_idle(lane);
    const auto all = std::min(static_cast<std::uint32_t>(lane.messages.size()), lane.reopen_at);
    while (lane.sent < all && lane.sent < lane.finished + plan_.in_flight &&
           lane.sent - world_->host(lane.flow.from).sends_done() < plan_.in_flight && !full(lane)) {
      Planned& next = lane.messages[lane.sent];
      if (next.late == Duration::zero() && lane.posted == lane.sent) post(lane);
      if (next.terms.tolerant) next.terms.important = &next.important;
      ++lane.sent;
      next.late_until = world_->now() + next.late;
      if (next.late > Duration::zero()) simulation_.at(next.late_until, [] {});
      world_->send(lane.flow.from, lane.flow.to, next.bytes, next.terms);
    }
    while (lane.posted < lane.sent && world_->now() >= lane.messages[lane.posted].late_until) post(lane);
    while (plan_.ahead && lane.posted >= lane.sent && lane.posted < all &&
           lane.posted < lane.finished + plan_.in_flight) {
      post(lane);
    }
  }

  void post(Lane& lane) {
    world_->post(lane.flow.from, lane.flow.to, lane.messages[lane.posted].bytes);
    ++lane.posted;
  }

  void check() {
    SCOPED_TRACE(plan_.text);
    for (const std::string& what : world_->violations()) ADD_FAILURE() << what;
    for (const Lane& lane : lanes_) {
      EXPECT_EQ(lane.finished, lane.messages.size())
          << lane.flow.from << " to " << lane.flow.to << " at " << world_->now().time_since_epoch().count() << " ns";
      EXPECT_EQ(world_->host(lane.flow.from).sends_done(), lane.messages.size());
      EXPECT_FALSE(world_->host(lane.flow.from).lost_a_peer());
    }
    std::vector<std::uint64_t> missing(plan_.hosts);
    std::vector<std::uint64_t> packets_missing(plan_.hosts);  // by sender
    for (const Finished& done : world_->finished()) {
      missing[done.destination] += done.missing;
      packets_missing[done.source] += done.missing_packets.size();
      if (done.missing == 0 || plan_.options.recovery == &kStaticDeadline) continue;  // that keeps no promise
      const Lane& lane = lanes_[lane_of_.at({done.source, done.destination})];
      const Planned& sent = lane.messages[done.number];
      EXPECT_TRUE(sent.terms.tolerant) << "a reliable message misses something";
      EXPECT_FALSE(plan_.clean && network_->drops().total() == 0);
      for (const std::uint32_t packet : done.missing_packets) EXPECT_FALSE(sent.important.test(packet));
      EXPECT_LE(done.missing_packets.size(), message_cap_packets(packet_count(done.bytes, plan_.options.segment)));
    }
    for (std::uint32_t host = 0; host < plan_.hosts; ++host) {
      check_ledgers(host, missing[host]);
      if (plan_.options.recovery == &kStaticDeadline) continue;  // that ends empty messages, too
      EXPECT_EQ(world_->host(host).sender_missing_packets(), packets_missing[host]) << "what the sender was told";
    }
  }

  void check_timers() {
    for (std::uint32_t host = 0; host < plan_.hosts; ++host) {
      ASSERT_LE(world_->host(host).core().timers(), 65 + 4 * 2 * plan_.hosts);
      ASSERT_TRUE(steps_ % 1024 != 0 || world_->host(host).core().is_consistent());
    }
  }

  void check_ledgers(std::uint32_t host, std::uint64_t missing) {
    EXPECT_TRUE(world_->host(host).core().is_consistent());
    if (plan_.options.recovery == &kStaticDeadline) return;
    const LedgerBook& ledgers = world_->host(host).core().ledgers();
    EXPECT_EQ(ledgers.totals().missing_bytes, missing);
    for (std::uint32_t i = 0; i < kCollectives; ++i) {
      const Ledger* ledger = ledgers.find({1, i});
      if (ledger == nullptr) continue;
      EXPECT_LE(ledger->counters().charged, ledger->bound());
      EXPECT_LE(ledger->counters().missing_bytes * 1'000'000, ledger->counters().eligible_bytes * kPpm);
    }
  }

  static constexpr std::uint32_t kCollectives = 3;
  static constexpr std::uint32_t kPpm = 50'000;

  Plan plan_;
  Rng rng_;
  sim::Simulation simulation_;
  std::unique_ptr<sim::Network> network_;
  std::unique_ptr<World> world_;
  std::vector<Lane> lanes_;
  std::uint64_t steps_ = 0;
  std::size_t seen_ = 0;  // of world_->finished()
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::size_t> lane_of_;
};

TEST(MltSweep, WhatMustHoldHoldsForEverySeed) {
  // A longer sweep, or one seed again.
  const std::uint64_t messages = number_from_environment("CLUSTAR_SWEEP_MESSAGES", kMessages);
  std::uint64_t seed = number_from_environment("CLUSTAR_SWEEP_SEED", 1);
  Outcome sum;
  for (; sum.messages < messages; ++seed) {
    const Outcome outcome = Trial(seed).go();
    sum.messages += outcome.messages;
    sum.missing_bytes += outcome.missing_bytes;
    if (HasFailure()) FAIL() << "at seed " << seed << ", after " << sum.messages << " messages";
  }
  RecordProperty("messages", std::to_string(sum.messages));
  RecordProperty("missing_bytes", std::to_string(sum.missing_bytes));
  std::printf("%llu messages, %llu bytes missing, seeds up to %llu\n", static_cast<unsigned long long>(sum.messages),
              static_cast<unsigned long long>(sum.missing_bytes), static_cast<unsigned long long>(seed));
}

// Ends that were never reached; packets that were late in their class, or refused for want of room, charged as lost by
// a clean network; a sender that took for delivered what came after the end.
TEST(MltSweep, SeedsThatFoundErrors) {
  for (const std::uint64_t seed : {1, 3, 6, 13, 155, 1137, 3846, 7113, 100216, 600862}) Trial(seed).go();
}

TEST(MltSweep, TheSameSeedGivesTheSameDigest) {
  for (std::uint64_t seed = 1; seed < 20; ++seed) {
    const Outcome first = Trial(seed).go();
    const Outcome again = Trial(seed).go();
    EXPECT_EQ(first.digest, again.digest) << seed;
    EXPECT_EQ(first.missing_bytes, again.missing_bytes) << seed;
  }
}

}  // namespace
}  // namespace clustar::mlt::test
