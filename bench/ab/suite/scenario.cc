#include "bench/ab/suite/scenario.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <utility>

#include "bench/fabric/places.h"
#include "bench/lossy/scenario.h"

namespace clustar::bench::ab::suite {
namespace {

constexpr std::uint64_t kMbit = 1'000'000;
constexpr std::uint64_t kMs = 1'000'000;  // ns
constexpr std::uint64_t kRate = 200 * kMbit;
constexpr std::uint64_t kShortestBurst = 5 * kMs, kLongestBurst = 50 * kMs;
// Of a port's time, and so of the bytes that pass it at a steady rate.
constexpr double kBurstShare = 0.05;

fabric::FabricSpec star(int hosts) { return {.name = {}, .hosts = hosts, .rate_bps = kRate}; }

Scenario clean() {
  Scenario s;
  s.name = "clean";
  s.title = "A clean network";
  s.question = "What does each transport cost where nothing goes wrong?";
  s.ranks = 8;
  s.fabric = star(8);
  return s;
}

Scenario gray() {
  Scenario s;
  s.name = "gray";
  s.title = "One gray link: 1 % random loss, both ways";
  s.question = "What does one bad cable cost the whole job?";
  s.ranks = 8;
  s.fabric = star(8);
  PortLoss loss{"h1", {}, {}};
  loss.to_host.random = loss.from_host.random = 0.01;
  s.losses = {loss};
  s.notes = {
      "The link is the cable between the switch and the host of rank 1: each packet that leaves the switch by it, and "
      "each that comes in there, data and acknowledgements alike, is lost with 1 %."};
  return s;
}

void lose_everywhere(const PortLoss& loss, Scenario& s) {
  s.loses_everywhere = true;
  s.losses.assign(static_cast<std::size_t>(s.ranks), loss);
  for (int host = 0; host < s.ranks; ++host) s.losses[static_cast<std::size_t>(host)].place = fabric::host_name(host);
}

Scenario lossy_everywhere() {
  Scenario s;
  s.name = "lossy";
  s.title = "2 % random loss at each port towards a host";
  s.question = "Does the model get as good where the whole network loses packets?";
  s.fabric = star(s.ranks);
  PortLoss loss{"", {}, {}};
  loss.to_host.random = 0.02;
  lose_everywhere(loss, s);
  s.notes = {"Each packet passes one such port: the network loses 2 %, of data and acknowledgements alike."};
  return s;
}

// Bursts of 5 to 50 ms, evenly, at every port to a host, each port for itself, that take `share` of a port's time.
PortLoss bursts_of(double share) {
  PortLoss loss{"", {}, {}};
  const std::uint64_t mean = (kShortestBurst + kLongestBurst) / 2;
  const auto period = static_cast<std::uint64_t>(static_cast<double>(mean) / share);
  loss.to_host.bursts = {.every_ns = period,
                         .length_ns = kShortestBurst,
                         .loss = 0.6,
                         .longest_ns = kLongestBurst,
                         .highest_loss = 0.9,
                         .jitter_ns = period - kLongestBurst};
  return loss;
}

Scenario bursts(double share, std::string name, std::string title, std::string note) {
  Scenario s;
  s.name = std::move(name);
  s.title = std::move(title);
  s.question = "How much longer does a step take when a port loses most packets for a moment now and then?";
  s.ranks = 8;
  s.fabric = star(8);
  lose_everywhere(bursts_of(share), s);
  s.notes = {std::move(note)};
  return s;
}

Scenario bursts_everywhere() {
  return bursts(kBurstShare, "bursts", "Micro-bursts: 60 to 90 % loss for 5 to 50 ms, at each port 5 % of the time",
                "Each port towards a host has bursts of its own, one in every 550 ms at a random moment of it: 27.5 ms "
                "of 550 on average, so bursts meet 5 % of the bytes. With 8 ports some burst is under way for a third "
                "of the time, and a ring waits for each.");
}

Scenario bursts_somewhere() {
  return bursts(kBurstShare / 8, "bursts-light",
                "Micro-bursts: 60 to 90 % loss for 5 to 50 ms, at some port 5 % of the time",
                "Each of 8 ports towards hosts has one burst in every 4.4 s: all together they take 5 % of the time, "
                "and meet 0.6 % of the bytes.");
}

// 0.42 of the port's rate, whatever that is: together 21 ms of the line every 50 ms.
void set_incast(Scenario& s) {
  s.background = {
      .senders = 4,
      .target = 0,
      .bytes = static_cast<std::uint32_t>(std::max<std::uint64_t>(4096, 131'072 * s.fabric.rate_bps / kRate)),
      .every_ms = 50};
  const double offered = 8.0 * s.background.senders * s.background.bytes / s.background.every_ms / 1000;
  s.title = fmt::format("Others' incast into one rank: 4 x {} KiB every 50 ms", s.background.bytes / 1024);
  s.notes = {fmt::format(
      "The four senders are hosts that do not train; they use TCP as the kernel is set up. {:.0f} Mbit/s of "
      "the port's {:.0f} when all arrives; what arrived is in the table.",
      offered, static_cast<double>(s.fabric.rate_bps) / 1e6)};
}

Scenario incast() {
  Scenario s;
  s.name = "incast";
  s.question = "Does the job keep its pace beside bursts of others, and do they get theirs?";
  s.ranks = 8;
  s.fabric = star(s.ranks + 4);
  s.fabric.buffer_bytes = 100'000;
  set_incast(s);
  return s;
}

std::string spine_title(int ranks) { return fmt::format("Two leaves, oversubscribed {:g}:1", ranks / 2.0); }

std::string shuffled_title(int ranks) { return spine_title(ranks) + ", ranks at random"; }

Scenario spine() {
  Scenario s;
  s.name = "spine";
  s.ranks = 8;
  s.title = spine_title(s.ranks);
  s.question = "What is left when half of the ranks are behind a narrow spine?";
  s.fabric = star(8);
  s.fabric.spines = 1;
  s.fabric.leaves = 2;
  s.fabric.uplink_rate_bps = kRate;  // which the hosts of a leaf share
  s.notes = {"Half of the hosts on each leaf; both leaves meet at one spine by a line as fast as a host's."};
  return s;
}

// As jobs get their hosts from a scheduler that knows no racks.
Scenario shuffled_spine() {
  Scenario s = spine();
  s.name = "spine-shuffled";
  s.title = shuffled_title(s.ranks);
  s.question = "What does an all-reduce cost whose ranks lie at random behind a narrow spine?";
  s.shuffled = true;
  s.notes.emplace_back(
      "Which rank runs on which host is random, by the seed of the round, and the same for all arms of it. A ring goes "
      "by "
      "rank; ParaExpress measures who shares an uplink.");
  return s;
}

Scenario long_haul() {
  Scenario s;
  s.name = "long-haul";
  s.title = "Between sites: 40 ms there and back, 0.1 % random loss at each port towards a host";
  s.question = "What do a long round trip and a little loss cost together?";
  s.fabric = star(s.ranks);
  s.fabric.delay_ns = 10 * kMs;  // of four cables, there and back
  s.fabric.buffer_bytes = kRate / 8 * 4 * s.fabric.delay_ns / (1000 * kMs);
  PortLoss loss{"", {}, {}};
  loss.to_host.random = 0.001;
  lose_everywhere(loss, s);
  s.notes = {"The buffer of a port holds what the line carries in a round trip, 1 MB."};
  return s;
}

struct Entry {
  const char* name;
  Scenario (*make)();
  bool by_default;
};
constexpr Entry kEntries[]{{"clean", clean, true},
                           {"gray", gray, true},
                           {"bursts", bursts_everywhere, true},
                           {"bursts-light", bursts_somewhere, false},
                           {"lossy", lossy_everywhere, false},
                           {"incast", incast, true},
                           {"spine", spine, true},
                           {"spine-shuffled", shuffled_spine, false},
                           {"long-haul", long_haul, false}};

Result<void> apply(const Changes& changes, Scenario& s) {
  if (changes.ranks > 0) {
    s.ranks = changes.ranks;
    s.fabric.hosts = s.ranks + s.background.senders;
    if (s.fabric.spines > 0) s.title = s.shuffled ? shuffled_title(s.ranks) : spine_title(s.ranks);
    std::erase_if(s.losses, [&](const PortLoss& loss) { return fabric::host_number(loss.place) >= s.ranks; });
    if (s.loses_everywhere) lose_everywhere(PortLoss(s.losses.front()), s);
  }
  if (!changes.rate.empty()) {
    const auto rate = fabric::parse_rate(changes.rate);
    if (!rate) return fail(rate.error().code, "--rate: " + rate.error().message);
    if (*rate == 0) return fail(ErrorCode::kInvalidArgument, "--rate off: a scenario needs a line, e.g. 200M");
    s.fabric.rate_bps = *rate;
    if (s.fabric.uplink_rate_bps != 0) s.fabric.uplink_rate_bps = *rate;
    if (s.background.senders > 0) set_incast(s);
  }
  if (!changes.buffer.empty()) {
    const auto buffer = fabric::parse_size(changes.buffer);
    if (!buffer) return fail(buffer.error().code, "--buffer: " + buffer.error().message);
    s.fabric.buffer_bytes = *buffer;
  }
  if (changes.mtu > 0) s.fabric.mtu = changes.mtu;
  const auto ok = lossy_fabric_of(s, "check", 1);
  if (!ok) return fail(ok.error().code, fmt::format("scenario {}: {}", s.name, ok.error().message));
  return {};
}

}  // namespace

std::vector<std::string> scenario_names() {
  std::vector<std::string> names;
  for (const Entry& entry : kEntries) names.emplace_back(entry.name);
  return names;
}

std::vector<std::string> default_scenarios() {
  std::vector<std::string> names;
  for (const Entry& entry : kEntries) {
    if (entry.by_default) names.emplace_back(entry.name);
  }
  return names;
}

Result<std::vector<Scenario>> choose_scenarios(const std::vector<std::string>& names, const Changes& changes) {
  const std::vector<std::string> all = scenario_names();
  for (const std::string& name : names) {
    if (std::find(all.begin(), all.end(), name) != all.end()) continue;
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--scenario: there is no '{}'; there are: {}", name, fmt::join(all, ", ")));
  }
  const std::vector<std::string> wanted = names.empty() ? default_scenarios() : names;
  std::vector<Scenario> chosen;
  for (const Entry& entry : kEntries) {
    if (std::find(wanted.begin(), wanted.end(), entry.name) == wanted.end()) continue;
    chosen.push_back(entry.make());
    if (const auto ok = apply(changes, chosen.back()); !ok) return tl::unexpected(ok.error());
  }
  return chosen;
}

Result<fabric::FabricSpec> fabric_of(const Scenario& scenario, const std::string& name) {
  // The marks of the lossy suite, so that both speak of the same switch.
  lossy::Scenario same;
  same.fabric = scenario.fabric;
  return lossy::clean_fabric(same, name);
}

Result<fabric::FabricSpec> lossy_fabric_of(const Scenario& scenario, const std::string& name, std::uint64_t seed) {
  auto spec = fabric_of(scenario, name);
  if (!spec) return spec;
  for (const PortLoss& loss : scenario.losses) {
    const auto done = fabric::edit_rules(*spec, loss.place, [&](fabric::PortRules& rules) -> Result<void> {
      set_loss(loss, seed, rules);
      return {};
    });
    if (!done) return tl::unexpected(done.error());
  }
  return fabric::checked(*spec);
}

void set_loss(const PortLoss& loss, std::uint64_t seed, fabric::PortRules& rules) {
  rules.to_host = loss.to_host;
  rules.from_host = loss.from_host;
  rules.seed = seed;
}

std::vector<int> hosts_of(const Scenario& scenario, std::uint64_t seed) {
  std::vector<int> hosts(static_cast<std::size_t>(scenario.ranks));
  std::iota(hosts.begin(), hosts.end(), 0);
  if (!scenario.shuffled) return hosts;
  std::mt19937_64 random(seed);
  // Not std::shuffle, whose order is the library's own affair.
  for (std::size_t left = hosts.size(); left > 1; --left) std::swap(hosts[left - 1], hosts[random() % left]);
  return hosts;
}

std::vector<std::string> describe_losses(const Scenario& scenario) {
  std::vector<std::string> lines;
  for (const PortLoss& loss : scenario.losses) {
    fabric::PortRules rules;
    set_loss(loss, 1, rules);
    lines.push_back(fmt::format("{}: {}", loss.place, fabric::describe(rules)));
  }
  return lines;
}

}  // namespace clustar::bench::ab::suite
