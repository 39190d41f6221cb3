#include "bench/lossy/scenario.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "bench/fabric/places.h"
#include "mlt/core/wire.h"

namespace clustar::bench::lossy {
namespace {

constexpr std::uint64_t kMbit = 1'000'000;
constexpr std::size_t kKiB = 1024;
constexpr std::size_t kMiB = 1024 * kKiB;
constexpr std::uint64_t kMs = 1'000'000;  // ns
constexpr std::size_t kEthernet = 14, kIp = 20, kUdp = 8;

// Of those with paths, bad_path() has more.
const std::vector<std::string> kEveryArm{"tcp-cubic",   "tcp-bbr", "tcp-cubic-rto5", "tcp-bbr-rto5", "tcp-cubic-ecn",
                                         "clustar-tcp", "mlt-p0",  "mlt-p1",         "mlt-gbn",      "mlt-deadline"};
const std::vector<std::string> kByDpdk{"mlt-p0-dpdk", "mlt-p1-dpdk", "mlt-p0-xdp", "mlt-p1-xdp"};
const std::vector<std::string> kQuickArms{"tcp-cubic", "tcp-cubic-rto5", "tcp-bbr", "mlt-p0", "mlt-p1"};

using Kind = BarSpec::Kind;

BarSpec at_most(Kind kind, std::string arm, double limit, std::string other = "") {
  return {kind, std::move(arm), std::move(other), limit, false};
}
BarSpec at_least(Kind kind, std::string arm, double limit, std::string other = "") {
  return {kind, std::move(arm), std::move(other), limit, true};
}

LossAt random_loss(std::string place, double fraction) {
  LossAt loss{std::move(place), {}};
  loss.rules.random = fraction;
  return loss;
}

Scenario loss(double fraction) {
  Scenario s;
  s.name = "loss";
  s.title = fmt::format("1 MiB messages, {:g} % random loss", fraction * 100);
  s.question = "What does the loss of single packets do to the tail of a message?";
  s.fabric = {.name = {}, .hosts = 2, .rate_bps = 200 * kMbit};
  if (fraction > 0) s.losses = {random_loss("h0", fraction)};
  s.message_bytes = kMiB;
  s.expected_ms = 60;
  s.arms = kEveryArm;
  s.named_arms = kByDpdk;
  s.quick_arms = kQuickArms;
  return s;
}

Scenario loss_with_bars() {
  Scenario s = loss(0.01);
  s.bars = {at_most(Kind::kP99OverP50, "mlt-p0", 1.15), at_most(Kind::kP99OverP50, "mlt-p1", 1.15),
            at_least(Kind::kP99Over, "mlt-p0", 4, "tcp-bbr"), at_least(Kind::kP99Over, "mlt-p0", 1, "tcp-cubic-rto5")};
  return s;
}

std::vector<Scenario> more_loss() {
  std::vector<Scenario> more;
  for (const auto& [name, fraction] : {std::pair("loss-0", 0.0), {"loss-0.1", 0.001}, {"loss-5", 0.05}}) {
    more.push_back(loss(fraction));
    more.back().name = name;
    more.back().rounds = 300;
  }
  return more;
}

Scenario incast() {
  Scenario s;
  s.name = "incast";
  s.title = "15-to-1 incast, 128 KiB each, 100 KB buffer";
  s.question = "How close to the line's own time is a round in which all send to one?";
  s.fabric = {.name = {}, .hosts = 16, .rate_bps = 200 * kMbit, .mtu = 1500, .buffer_bytes = 100'000};
  s.message_bytes = 128 * kKiB;
  s.senders = 15;
  s.quick_rounds = 24;
  s.expected_ms = 150;
  s.arms = kEveryArm;
  s.named_arms = kByDpdk;
  s.quick_arms = {"tcp-cubic", "tcp-cubic-rto5", "mlt-p0"};
  s.bars = {at_most(Kind::kP99OverIdeal, "mlt-p0", 1.05), at_least(Kind::kP99Over, "mlt-p0", 3, "tcp-cubic"),
            at_least(Kind::kP99Over, "mlt-p0", 1, "tcp-cubic-rto5")};
  return s;
}

Scenario micro_bursts() {
  Scenario s;
  s.name = "micro-bursts";
  s.title = "1 MiB messages through micro-bursts of 60 to 90 % loss";
  s.question = "What is a bounded part of missing bytes worth when most packets of a moment are lost?";
  s.fabric = {.name = {}, .hosts = 2, .rate_bps = 200 * kMbit};
  // Begins from 0 to 350 ms after each period's, so that gaps are from none to two periods.
  LossAt bursts{"h0", {}};
  bursts.rules.bursts = {.every_ns = 400 * kMs,
                         .length_ns = 5 * kMs,
                         .loss = 0.6,
                         .longest_ns = 50 * kMs,
                         .highest_loss = 0.9,
                         .jitter_ns = 350 * kMs};
  s.losses = {bursts};
  s.message_bytes = kMiB;
  s.expected_ms = 70;
  s.arms = kEveryArm;
  s.quick_arms = {"tcp-cubic-rto5", "mlt-p0", "mlt-p1"};
  s.bars = {at_least(Kind::kP99Over, "mlt-p1", 3, "mlt-p0")};
  s.notes = {"Bursts come at moments of their own, so which rounds they hit differs from arm to arm."};
  return s;
}

Scenario bad_path() {
  Scenario s;
  s.name = "bad-path";
  s.title = "One of four spines loses 5 %";
  s.question = "Does a transport with many paths keep away from the one that is bad?";
  // The receiver on one leaf, the sender on the other; each path as fast as the hosts' lines, so that an arm that uses
  // only one loses nothing but the choice.
  s.fabric = {
      .name = {}, .hosts = 2, .rate_bps = 200 * kMbit, .spines = 4, .leaves = 2, .uplink_rate_bps = 200 * kMbit};
  // Where packets leave the spine: each way through it loses 5 %, not 5 % at each of its links.
  s.losses = {random_loss("spine0:leaf0", 0.05), random_loss("spine0:leaf1", 0.05)};
  s.fresh_connections = true;
  s.blocks = 20;
  s.message_bytes = kMiB;
  s.expected_ms = 60;
  s.arms = kEveryArm;
  s.arms.insert(s.arms.end(), {"mptcp", "mlt-1path"});
  s.quick_arms = {"tcp-cubic-rto5", "mlt-1path", "mlt-p0"};
  s.bars = {at_least(Kind::kP99Over, "mlt-p0", 1.5, "mlt-1path"),
            at_least(Kind::kP99Over, "mlt-p0", 1.5, "tcp-cubic-rto5")};
  s.notes = {"Each block has new connections: a quarter of those that use one path meet the bad spine."};
  return s;
}

Scenario shared() {
  Scenario s;
  s.name = "shared";
  s.title = "Two jobs through one port";
  s.question = "Does each of two jobs get its fair share of a bottleneck?";
  s.fabric = {.name = {}, .hosts = 3, .rate_bps = 200 * kMbit};
  s.message_bytes = 256 * kKiB;
  s.messages = 160;  // 40 MiB: some 3.5 s at half of the rate
  s.window = 4;
  s.rounds = 10;
  s.quick_rounds = 1;
  s.expected_ms = 4500;
  s.arms = {"tcp-cubic+tcp-cubic", "tcp-cubic+tcp-bbr",     "mlt-p0+tcp-cubic",
            "mlt-p0+tcp-bbr",      "mlt-p0+tcp-cubic-ecn",  "mlt-p1+tcp-cubic",
            "mlt-p1+tcp-bbr",      "clustar-tcp+tcp-cubic", "mlt-p0+mlt-p0"};
  s.quick_arms = {"mlt-p0+tcp-cubic"};
  s.notes = {
      "A share is taken while both jobs send; 1 is half of what both got together. The bar holds each job of each "
      "round "
      "to it: with two jobs, nobody below 0.5 also means nobody above 1.5."};
  s.bars = {at_least(Kind::kShare, "mlt-p0+tcp-cubic", 0.5), at_least(Kind::kShare, "mlt-p0+tcp-bbr", 0.5)};
  return s;
}

// Of a few hundred round trips: what begins late or loses much needs so long until its share is what it stays.
Scenario shared_far(std::uint64_t round_trip_ms) {
  Scenario s = shared();
  s.name = fmt::format("shared-{}ms", round_trip_ms);
  s.title = fmt::format("Two jobs through one port, {} ms away", round_trip_ms);
  s.fabric.buffer_bytes = 1'000'000;
  s.fabric.delay_ns = round_trip_ms * kMs / 4;  // two links there, two back
  s.message_bytes = kMiB;
  s.messages = 256;
  s.rounds = 4;
  s.expected_ms = 24'000;
  s.arms = {"tcp-cubic+tcp-cubic", "tcp-cubic+tcp-bbr", "mlt-p0+tcp-cubic", "mlt-p0+tcp-bbr", "mlt-p0+mlt-p0"};
  s.bars = {at_least(Kind::kShare, "mlt-p0+tcp-cubic", 0.3), at_least(Kind::kShare, "mlt-p0+tcp-bbr", 0.3),
            at_least(Kind::kShare, "mlt-p0+mlt-p0", 0.5)};
  return s;
}

// As the scenario of this name in bench/ab.
Scenario long_haul() {
  Scenario s = loss(0.001);
  s.name = "long-haul";
  s.title = "1 MiB messages, 0.1 % random loss, 40 ms away";
  s.question = "What does the loss of single packets cost where a round trip is long?";
  s.fabric.buffer_bytes = 1'000'000;
  s.fabric.delay_ns = 10 * kMs;  // of each of two links, there and back
  s.rounds = 300;
  s.quick_rounds = 20;
  s.expected_ms = 120;
  s.arms = {"tcp-cubic", "tcp-bbr", "tcp-cubic-rto5", "tcp-bbr-rto5", "mlt-p0", "mlt-p1"};
  s.quick_arms = {"tcp-bbr", "mlt-p0"};
  return s;
}

Scenario cpu() {
  Scenario s;
  s.name = "cpu";
  s.title = "CPU of a stream of 1 MiB messages at 1 Gbit/s";
  s.question = "What does a Gbit cost both ends, with drivers that sleep?";
  s.fabric = {.name = {}, .hosts = 2, .rate_bps = 1000 * kMbit};
  s.message_bytes = kMiB;
  s.messages = 120;
  s.window = 4;
  s.rounds = 20;
  s.quick_rounds = 2;
  s.expected_ms = 1100;
  s.arms = {"tcp-cubic", "tcp-bbr", "clustar-tcp", "mlt-p0", "mlt-p1"};
  s.quick_arms = {"tcp-cubic", "mlt-p0"};
  s.notes = {
      "Two figures: user and system time of the processes at both ends, and the time that all cores were busy, soft "
      "interrupts included. What the kernel does on receipt is charged to whom it interrupts or to nobody, so the bar "
      "goes by the machine's, unless others used the CPU. No packets are lost here, so arms that differ in that alone "
      "are left out."};
  s.bars = {at_most(Kind::kCpuOver, "mlt-p0", 1.2, "tcp-cubic")};
  return s;
}

}  // namespace

std::vector<Scenario> scenarios(bool full) {
  std::vector<Scenario> all{loss_with_bars(), incast(), micro_bursts(), bad_path(), shared(), cpu()};
  if (full) {
    for (Scenario& more : more_loss()) all.push_back(std::move(more));
    for (const std::uint64_t round_trip_ms : {8, 40}) all.push_back(shared_far(round_trip_ms));
    all.push_back(long_haul());
  }
  return all;
}

Result<std::vector<Scenario>> choose_scenarios(const std::vector<std::string>& names, bool full) {
  std::vector<Scenario> chosen;
  std::string known;
  const auto everything = scenarios(true);
  for (const std::string& name : names) {
    const auto same = [&](const Scenario& one) { return one.name == name; };
    if (std::any_of(everything.begin(), everything.end(), same)) continue;
    for (const Scenario& one : everything) known += (known.empty() ? "" : ", ") + one.name;
    return fail(ErrorCode::kInvalidArgument, fmt::format("there is no scenario '{}'; there are: {}", name, known));
  }
  for (const Scenario& one : names.empty() ? scenarios(full) : everything) {
    if (names.empty() || std::find(names.begin(), names.end(), one.name) != names.end()) chosen.push_back(one);
  }
  return chosen;
}

Result<fabric::FabricSpec> clean_fabric(const Scenario& scenario, const std::string& name) {
  fabric::FabricSpec wanted = scenario.fabric;
  wanted.name = name;
  auto spec = fabric::checked(wanted);
  if (!spec) return spec;
  const auto marked = fabric::edit_rules(*spec, "", [&](fabric::PortRules& rules) -> Result<void> {
    for (fabric::ClassRules& one : rules.classes) {
      one.mark_min_bytes = one.mark_max_bytes =
          static_cast<std::uint64_t>(kMarkAbove * static_cast<double>(spec->buffer_bytes));
      one.mark_probability = 1;
    }
    return {};
  });
  if (!marked) return tl::unexpected(marked.error());
  return fabric::checked(*spec);
}

Result<fabric::FabricSpec> lossy_fabric(const Scenario& scenario, const std::string& name, std::uint64_t seed) {
  auto spec = clean_fabric(scenario, name);
  if (!spec) return spec;
  for (const LossAt& loss : scenario.losses) {
    const auto done = fabric::edit_rules(*spec, loss.place, [&](auto& rules) { return add_loss(loss, seed, rules); });
    if (!done) return tl::unexpected(done.error());
  }
  return fabric::checked(*spec);
}

Result<void> add_loss(const LossAt& loss, std::uint64_t seed, fabric::PortRules& rules) {
  rules.to_host = loss.rules;
  rules.seed = seed;
  return {};
}

std::vector<std::string> jobs_of(const std::string& arm) {
  std::vector<std::string> jobs;
  std::size_t begin = 0;
  for (std::size_t plus; (plus = arm.find('+', begin)) != std::string::npos; begin = plus + 1) {
    jobs.push_back(arm.substr(begin, plus - begin));
  }
  jobs.push_back(arm.substr(begin));
  return jobs;
}

std::vector<std::string> choose_arms(const std::vector<std::string>& arms, const std::vector<std::string>& names) {
  if (names.empty()) return arms;
  std::vector<std::string> chosen;
  for (const std::string& arm : arms) {
    const auto jobs = jobs_of(arm);
    const auto wanted = [&](const std::string& job) {
      return std::find(names.begin(), names.end(), job) != names.end();
    };
    if (std::any_of(jobs.begin(), jobs.end(), wanted)) chosen.push_back(arm);
  }
  return chosen;
}

std::uint64_t mlt_wire_bytes(std::size_t message_bytes, int mtu) {
  // As the driver cuts: a full packet has room for the opening record, in multiples of 8 bytes.
  constexpr std::size_t kRecord = mlt::DataHeader::kSize + mlt::OpenRecord::kSize;
  const std::size_t room = static_cast<std::size_t>(mtu) - kIp - kUdp - kRecord;
  const std::size_t segment = std::min<std::size_t>(room, 8900) / 8 * 8;
  const std::size_t packets = std::max<std::size_t>((message_bytes + segment - 1) / segment, 1);
  // The record rides on the first packets; counted once.
  return message_bytes + packets * (mlt::DataHeader::kSize + kUdp + kIp + kEthernet) + mlt::OpenRecord::kSize;
}

double ideal_ms(const Scenario& scenario, double one_way_ms) {
  const auto bytes = mlt_wire_bytes(scenario.message_bytes, scenario.fabric.mtu) *
                     static_cast<std::uint64_t>(scenario.senders * scenario.messages);
  return static_cast<double>(bytes) * 8e3 / static_cast<double>(scenario.fabric.rate_bps) + one_way_ms;
}

}  // namespace clustar::bench::lossy
