#include "bench/fabric/selftest/range.h"

#include <fmt/format.h>
#include <poll.h>
#include <sched.h>

#include <algorithm>

#include "bench/perf/other_cpu.h"

namespace clustar::bench::fabric::selftest {
namespace {

constexpr int kChunk = 100;  // far below what the kernel queues before a bridge, with what others' packets need
constexpr std::int64_t kBoundNs = 10'000'000'000;
constexpr int kQuietMs = 1000;               // the most that a busy machine keeps a queue from going on
constexpr int kQuietWithoutProgramMs = 400;  // nothing says how many come
constexpr int kWitnessClass = 6;

void sleep_ms(double ms) { poll(nullptr, 0, static_cast<int>(ms) + 1); }

Result<void> late(const char* what) { return fail(ErrorCode::kSystem, fmt::format("{}: no answer within 10 s", what)); }

}  // namespace

FabricSpec Range::spec(const std::string& name, std::uint64_t rate_bps, std::uint64_t buffer_bytes, int mtu) {
  FabricSpec spec;
  spec.name = name;
  spec.hosts = 3;
  spec.switches = {kSingleSwitch};
  spec.links = {{"h0", kSingleSwitch, rate_bps, rate_bps == 0 ? 0 : buffer_bytes, mtu},
                {"h1", kSingleSwitch, 0, 0, mtu},
                {"h2", kSingleSwitch, 0, 0, mtu}};
  return spec;
}

Result<Range> Range::open(const Fabric& fabric, const HeldSignals& signals) {
  Range range(fabric, signals);
  range.port_ = fabric.ports().front();
  Datagrams* const sockets[] = {&range.receiver_, &range.sender_, &range.witness_};
  for (int host = 0; host < 3; ++host) {
    auto opened = Datagrams::open(fabric, host);
    if (!opened) return tl::unexpected(opened.error());
    *sockets[host] = std::move(*opened);
    for (int other = 0; other < 3; ++other) {
      if (other == host) continue;
      if (const auto ok = remember_neighbour(fabric, host, other); !ok) return tl::unexpected(ok.error());
    }
  }
  const auto there = fabric.status();
  if (!there) return tl::unexpected(there.error());
  range.has_program_ = there->switches.front().ports.front().program.has_value();
  if (const auto ok = range.warm_up(); !ok) return tl::unexpected(ok.error());
  return range;
}

// A bridge sends what is for an unknown host to all ports, the one under test among them.
Result<void> Range::warm_up() {
  Datagrams* const from[] = {&receiver_, &witness_};
  const std::int64_t until = now_ns() + kBoundNs;
  for (std::uint32_t who = 0; who < 2; ++who) {
    std::vector<Arrival> heard;
    const auto has_come = [&] {
      return std::any_of(heard.begin(), heard.end(), [&](const Arrival& one) { return one.sequence == who; });
    };
    while (!has_come()) {
      if (const auto ok = check_signals(); !ok) return ok;
      if (now_ns() > until) return late("the hosts of the selftest do not reach each other");
      if (const auto ok = from[who]->send(fabric_, 1, sender_.port(), 0, kHeaderBytes + 4, who); !ok) return ok;
      sender_.take(heard, 20);
    }
  }
  return {};
}

Result<void> Range::check_signals() const {
  return signals_->interrupted() ? fail(ErrorCode::kSystem, "interrupted") : Result<void>();
}

Result<void> Range::begin(const PortRules& rules) {
  if (const auto ok = check_signals(); !ok) return ok;
  // HTB's bucket lets packets out before the virtual queue does; both are empty and full again after that time.
  if (rate_bps() != 0) {
    sleep_ms(static_cast<double>(bucket_bytes() + 2 * full_frame()) * 8e3 / static_cast<double>(rate_bps()) + 2);
  }
  receiver_.take(arrivals_, 0);
  arrivals_.clear();
  sent_.clear();
  if (!has_program_) return {};
  const auto wanted = checked(rules, {port_.rate_bps, port_.buffer_bytes});
  if (!wanted) return tl::unexpected(wanted.error());
  const auto done = run_inside(port_.switch_namespace, [&]() -> Result<void> {
    if (const auto ok = change_port(port_.interface, *wanted); !ok) return ok;
    return reset_counters();
  });
  if (!done) return done;
  const auto drops = backstop_drops();
  if (!drops) return tl::unexpected(drops.error());
  backstop_before_ = *drops;
  return {};
}

Result<void> Range::send_one(std::uint8_t tos, std::uint64_t frame_bytes) {
  const auto sequence = static_cast<std::uint32_t>(sent_.size());
  sent_.push_back({tos, frame_bytes, now_ns()});
  return sender_.send(fabric_, 0, receiver_.port(), tos, frame_bytes, sequence);
}

Result<void> Range::send(std::uint8_t tos, std::uint64_t frame_bytes, int count) {
  for (int i = 0; i < count; ++i) {
    if (const auto ok = send_one(tos, frame_bytes); !ok) return ok;
    if ((i + 1) % kChunk != 0) continue;
    if (const auto settled = settle(); !settled) return tl::unexpected(settled.error());
    take();
  }
  return {};
}

Result<std::int64_t> Range::settle() {
  const std::uint32_t wanted = ++settled_;
  const auto sent = sender_.send(fabric_, 2, witness_.port(), tos_of(kWitnessClass), kHeaderBytes + 4, wanted);
  if (!sent) return tl::unexpected(sent.error());
  std::vector<Arrival> heard;
  for (const std::int64_t until = now_ns() + kBoundNs; now_ns() < until;) {
    if (const auto ok = check_signals(); !ok) return tl::unexpected(ok.error());
    heard.clear();
    witness_.take(heard, 50);
    for (const Arrival& one : heard) {
      if (one.sequence == wanted) return one.at_ns;
    }
  }
  return tl::unexpected(late("the witness of the selftest").error());
}

Result<void> Range::collect() {
  std::int64_t quiet_since = now_ns();
  const int quiet_ms = (has_program_ ? kQuietMs : kQuietWithoutProgramMs) +
                       (rate_bps() == 0 ? 0 : static_cast<int>(full_frame() * 32'000 / rate_bps()));
  while (true) {
    if (const auto ok = check_signals(); !ok) return ok;
    const std::size_t before = arrivals_.size();
    receiver_.take(arrivals_, 10);
    if (arrivals_.size() != before) quiet_since = now_ns();
    // Only an end of waiting: a counter that lies is found out by disagreement().
    if (has_program_) {
      const auto found = counters();
      if (!found) return tl::unexpected(found.error());
      std::uint64_t passed = 0;
      for (int c = 0; c < kClasses - 1; ++c) {
        const ClassCounters& one = found->classes[static_cast<std::size_t>(c)];
        passed += one.packets + one.trimmed;
      }
      if (passed != 0 && arrivals_.size() >= passed) return {};
      // What was dropped behind the program never comes; asked late, since that reads all of the fabric.
      if (passed != 0 && now_ns() - quiet_since > 100'000'000) {
        const auto drops = backstop_drops();
        if (!drops) return tl::unexpected(drops.error());
        if (arrivals_.size() + *drops - backstop_before_ >= passed) return {};
      }
      if (passed == 0 && now_ns() - quiet_since > 100'000'000) return {};
    }
    if (now_ns() - quiet_since > std::int64_t{quiet_ms} * 1'000'000) return {};
  }
}

double Range::carried(std::int64_t end_ns) const {
  if (sent_.empty()) return 0;
  return static_cast<double>(rate_bps()) / 8e9 * static_cast<double>(end_ns - sent_.front().before_ns);
}

Result<PortCounters> Range::counters() const {
  PortCounters found;
  const auto done = run_inside(port_.switch_namespace, [&]() -> Result<void> {
    const auto ports = read_switch();
    if (!ports) return tl::unexpected(ports.error());
    for (const ProgramPort& port : *ports) {
      if (port.interface == port_.interface) found = port.counters;
    }
    return {};
  });
  if (!done) return tl::unexpected(done.error());
  return found;
}

Result<std::uint64_t> Range::backstop_drops() const {
  const auto there = inspect(fabric_.spec().name);
  if (!there) return tl::unexpected(there.error());
  if (there->switches.empty() || there->switches.front().ports.empty()) {
    return fail(ErrorCode::kUnavailable, "the fabric of the selftest was removed meanwhile");
  }
  return there->switches.front().ports.front().backstop_drops;
}

Result<std::string> Range::disagreement() const {
  const auto found = counters();
  const auto drops = backstop_drops();
  if (!found) return tl::unexpected(found.error());
  if (!drops) return tl::unexpected(drops.error());
  const std::uint64_t backstop = *drops - backstop_before_;
  // Class 7 has what the kernel sends unasked (ARP), so no probe is of it; trimmed ones are counted where they came.
  std::uint64_t came = 0, passed = 0, marked = 0;
  for (std::size_t c = 0; c + 1 < kClasses; ++c) {
    const ClassCounters& one = found->classes[c];
    came += one.packets + one.trimmed + one.dropped();
    passed += one.packets + one.trimmed;
    marked += one.marked;
  }
  const auto ce = static_cast<std::uint64_t>(
      std::count_if(arrivals_.begin(), arrivals_.end(), [](const Arrival& one) { return (one.tos & 3) == kCe; }));
  if (came == sent_.size() && passed == arrivals_.size() + backstop && (marked == ce || backstop != 0)) return "";
  return fmt::format(
      "probes: {} sent, {} arrived, {} marked; counters: {} came, {} passed, {} marked, {} backstop drops",
      sent_.size(), arrivals_.size(), ce, came, passed, marked, backstop);
}

Pinned::Pinned() : before_(perf::allowed_cores()) {
  cpu_set_t one;
  CPU_ZERO(&one);
  const int core = sched_getcpu();
  if (core < 0) return;
  CPU_SET(core, &one);
  sched_setaffinity(0, sizeof(one), &one);
}

Pinned::~Pinned() {
  cpu_set_t all;
  CPU_ZERO(&all);
  for (const int core : before_) CPU_SET(core, &all);
  if (!before_.empty()) sched_setaffinity(0, sizeof(all), &all);
}

}  // namespace clustar::bench::fabric::selftest
