// What happens between switches and on long cables.
#include <poll.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "bench/fabric/selftest/lab.h"

namespace clustar::bench::fabric::selftest {
namespace {

constexpr int kSpines = kDefaultSpines;
constexpr int kFlows = 256;
constexpr int kFrom = 0, kTo = 3;  // on different leaves
constexpr std::uint16_t kFirstPort = 20'000;
constexpr std::uint64_t kSmall = 100;
constexpr int kQuietMs = 250;

// Takes until nothing has come for so long.
void take_all(const Datagrams& socket, std::vector<Arrival>& all, const HeldSignals& signals) {
  for (std::size_t before = all.size();; before = all.size()) {
    socket.take(all, kQuietMs);
    if (all.size() == before || signals.interrupted()) return;
  }
}

struct Flows {
  Datagrams receiver;
  std::vector<Datagrams> senders;
};

Result<Flows> open_flows(const Fabric& fabric) {
  Flows flows;
  auto receiver = Datagrams::open(fabric, kTo, 4791);
  if (!receiver) return tl::unexpected(receiver.error());
  flows.receiver = std::move(*receiver);
  for (int i = 0; i < kFlows; ++i) {
    auto sender = Datagrams::open(fabric, kFrom, static_cast<std::uint16_t>(kFirstPort + i));
    if (!sender) return tl::unexpected(sender.error());
    flows.senders.push_back(std::move(*sender));
  }
  return flows;
}

// One packet of each flow; those that did not arrive.
Result<std::vector<int>> lost_flows(Flows& flows, const Fabric& fabric, const HeldSignals& signals) {
  const Pinned pinned;
  for (int i = 0; i < kFlows; ++i) {
    const auto sent = flows.senders[static_cast<std::size_t>(i)].send(fabric, kTo, flows.receiver.port(), tos_of(0),
                                                                      kSmall, static_cast<std::uint32_t>(i));
    if (!sent) return tl::unexpected(sent.error());
    if (i % 64 == 63) poll(nullptr, 0, 2);
  }
  std::vector<Arrival> arrivals;
  take_all(flows.receiver, arrivals, signals);
  if (signals.interrupted()) return tl::unexpected(Error{ErrorCode::kSystem, "interrupted"});
  std::set<std::uint32_t> there;
  for (const Arrival& one : arrivals) there.insert(one.sequence);
  std::vector<int> lost;
  for (int i = 0; i < kFlows; ++i) {
    if (!there.contains(static_cast<std::uint32_t>(i))) lost.push_back(i);
  }
  return lost;
}

}  // namespace

FabricSpec spread_spec(const std::string& name, int mtu) {
  FabricSpec spec;
  spec.name = name;
  spec.hosts = 4;
  spec.rate_bps = 0;
  spec.mtu = mtu;
  spec.spines = kSpines;
  return spec;
}

// Which way a flow takes shows when that way is dead; no counter is asked.
Result<void> check_spread(Lab& lab, const Fabric& fabric) {
  auto flows = open_flows(fabric);
  if (!flows) return tl::unexpected(flows.error());
  lab.before(fabric, "ecmp");
  const auto without = lost_flows(*flows, fabric, lab.signals());
  if (!without) return tl::unexpected(without.error());
  std::vector<int> ways(kFlows, 0);
  std::vector<double> share;
  for (const SwitchPort& port : fabric.ports()) {
    if (port.node != "leaf0" || !port.peer.starts_with("spine")) continue;
    const auto dead = [&](bool on) {
      PortRules rules;
      rules.to_host.dead = on;
      return run_inside(port.switch_namespace, [&] { return change_port(port.interface, rules); });
    };
    if (const auto ok = dead(true); !ok) return ok;
    const auto lost = lost_flows(*flows, fabric, lab.signals());
    if (!lost) return tl::unexpected(lost.error());
    if (const auto ok = dead(false); !ok) return ok;
    share.push_back(static_cast<double>(lost->size()));
    for (const int flow : *lost) ++ways[static_cast<std::size_t>(flow)];
  }
  if (share.empty()) return clustar::fail(ErrorCode::kInternal, "leaf0 has no port towards a spine");
  const double all = kFlows, each = all / kSpines;
  const Interval allowed = binomial_interval(kFlows, 1.0 / kSpines, 1 - (1 - kConfidence) / kSpines);
  lab.judge(row("ecmp", "flows lost without a dead way", 0, static_cast<double>(without->size()), {0, 0}, "flows"));
  lab.judge(row("ecmp", "flows that keep to one spine", all,
                static_cast<double>(std::count(ways.begin(), ways.end(), 1)), {all, all}, "flows"));
  lab.judge(row("ecmp", "on the spine that has fewest", each, *std::min_element(share.begin(), share.end()), allowed,
                "flows"));
  lab.judge(
      row("ecmp", "on the spine that has most", each, *std::max_element(share.begin(), share.end()), allowed, "flows"));
  return {};
}

FabricSpec delay_spec(const std::string& name, const Options& options, std::uint64_t delay_ns) {
  FabricSpec spec;
  spec.name = name;
  spec.hosts = 2;
  spec.rate_bps = options.rate_bps;
  spec.mtu = options.mtu;
  spec.delay_ns = delay_ns;
  return spec;
}

Result<void> check_delay(Lab& lab, const Fabric& fabric, std::uint64_t delay_ns) {
  constexpr int kPackets = 50;
  constexpr double kSlackUs = 1000;  // for forwarder and scheduler, on each way
  constexpr double kFirstUs = 0.5;   // the clocks' own steps
  auto near = Datagrams::open(fabric, 0), far = Datagrams::open(fabric, 1);
  if (!near) return tl::unexpected(near.error());
  if (!far) return tl::unexpected(far.error());
  for (int host = 0; host < 2; ++host) {
    if (const auto ok = remember_neighbour(fabric, host, 1 - host); !ok) return ok;
  }
  lab.before(fabric, "delay");
  const BusyWatch watch;
  const auto one_way = [&](Datagrams& from, const Datagrams& to, int host, std::uint32_t sequence) -> Result<double> {
    const std::int64_t before = now_ns();
    const auto sent = from.send(fabric, host, to.port(), tos_of(0), kSmall, sequence);
    if (!sent) return tl::unexpected(sent.error());
    for (std::vector<Arrival> all; now_ns() < before + 5'000'000'000;) {
      if (lab.signals().interrupted()) return tl::unexpected(Error{ErrorCode::kSystem, "interrupted"});
      to.take(all, 50);
      for (const Arrival& one : all) {
        if (one.sequence == sequence) return static_cast<double>(one.at_ns - before) / 1e3;
      }
    }
    return tl::unexpected(Error{ErrorCode::kSystem, "a packet over a long cable did not arrive within 5 s"});
  };
  std::vector<double> ways, rounds;
  for (std::uint32_t i = 0; i < kPackets; ++i) {
    const auto there = one_way(*near, *far, 1, i);
    if (!there) return tl::unexpected(there.error());
    const auto back = one_way(*far, *near, 0, i);
    if (!back) return tl::unexpected(back.error());
    ways.insert(ways.end(), {*there, *back});
    rounds.push_back(*there + *back);
  }
  std::sort(rounds.begin(), rounds.end());
  const double asked = 2 * static_cast<double>(delay_ns) / 1e3;  // two cables
  const std::string busy = watch.reason();
  lab.judge(row("delay", "least on one way, two cables", asked, *std::min_element(ways.begin(), ways.end()),
                {asked - kFirstUs, asked + kSlackUs}, "us"),
            Excused::kAbove, busy);
  lab.judge(row("delay", "median of the round trip", 2 * asked, rounds[rounds.size() / 2],
                {2 * (asked - kFirstUs), 2 * (asked + kSlackUs)}, "us"),
            Excused::kAbove, busy);
  return {};
}

}  // namespace clustar::bench::fabric::selftest
