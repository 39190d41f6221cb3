#include "bench/lossy/testbed.h"

#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <utility>
#include <vector>

#include "bench/fabric/process_fabric.h"
#include "bench/fabric/render_ports.h"
#include "bench/fabric/running.h"
#include "bench/fabric/switch/switch_program.h"
#include "bench/lossy/tool.h"
#include "bench/lossy/tune_hosts.h"

namespace clustar::bench::lossy {
namespace {

constexpr const char* kPrefix = "lossy";

void tidy_up() {
  for (const std::string& problem : fabric::remove_orphans(kPrefix)) {
    std::cerr << fmt::format("clustar perf: left of an earlier run: {}\n", problem);
  }
}

}  // namespace

std::string own_fabric_name() { return fabric::process_fabric_name(kPrefix); }

Result<std::unique_ptr<Testbed>> Testbed::make(const Scenario& scenario, std::uint64_t seed) {
  if (const auto ok = fabric::check_root(); !ok) return tl::unexpected(ok.error());
  const auto spec = clean_fabric(scenario, own_fabric_name());
  if (!spec) return tl::unexpected(spec.error());
  tidy_up();
  auto made = fabric::Fabric::up(*spec);
  if (!made) return tl::unexpected(made.error());
  std::unique_ptr<Testbed> testbed(new Testbed(scenario, seed, std::move(*made)));
  if (const auto tuned = tune_tcp(testbed->fabric_); !tuned) return tl::unexpected(tuned.error());
  if (spec->spines > 1) testbed->subflows_ = allow_subflows(testbed->fabric_, spec->spines);
  return testbed;
}

Testbed::~Testbed() {
  const auto removed = fabric_.down();
  if (removed) return;
  std::cerr << fmt::format("clustar perf: cannot remove its fabric: {}; try: clustar fabric down --name {}\n",
                           removed.error().message, fabric_.spec().name);
}

Result<void> Testbed::check(const Arm& arm) const {
  if (arm.carrier != Carrier::kMptcp || subflows_) return {};
  return fail(ErrorCode::kUnavailable, fmt::format("MPTCP's subflows cannot be set up, which needs a kernel with MPTCP "
                                                   "and an iproute2 that knows it (5.8): {}",
                                                   subflows_.error().message));
}

Result<void> Testbed::begin_loss() {
  for (const LossAt& loss : scenario_.losses) {
    const auto changed = fabric::change_rules(fabric_.spec().name, loss.place,
                                              [&](auto& rules) { return add_loss(loss, seed_, rules); });
    if (!changed) return tl::unexpected(changed.error());
  }
  return {};
}

// Straight at the programs: the fabric's own functions look at all that is there first, which takes longer than a
// round.
Result<void> Testbed::reset_counters() const {
  for (const std::string& where : fabric_.switch_namespaces()) {
    const auto done = fabric::run_inside(where, [] { return fabric::reset_counters(); });
    if (!done) return done;
  }
  return {};
}

Result<SwitchCounts> Testbed::counts() const {
  const std::vector<fabric::SwitchPort> ports = fabric_.ports();
  SwitchCounts counts;
  for (const std::string& where : fabric_.switch_namespaces()) {
    const auto done = fabric::run_inside(where, [&]() -> Result<void> {
      const auto read = fabric::read_switch();
      if (!read) return tl::unexpected(read.error());
      for (const fabric::ProgramPort& port : *read) {
        counts.lost += port.counters.to_host().dropped_loss + port.counters.from_host.dropped_loss;
        const auto same = [&](const fabric::SwitchPort& one) {
          return one.switch_namespace == where && one.interface == port.interface && one.peer == fabric::host_name(0);
        };
        if (std::any_of(ports.begin(), ports.end(), same)) counts.to_receiver = port.counters.to_host();
      }
      return {};
    });
    if (!done) return tl::unexpected(done.error());
  }
  return counts;
}

SwitchCounts& SwitchCounts::operator+=(const SwitchCounts& other) {
  to_receiver += other.to_receiver;
  lost += other.lost;
  return *this;
}

Result<std::uint64_t> Testbed::backstop_drops() const {
  const auto status = fabric_.status();
  if (!status) return tl::unexpected(status.error());
  std::uint64_t sum = 0;
  for (const fabric::SwitchStatus& one : status->switches) {
    for (const fabric::SwitchPortStatus& port : one.ports) sum += port.backstop_drops;
  }
  return sum;
}

Result<std::uint64_t> Testbed::super_packets() const {
  const auto status = fabric_.status();
  if (!status) return tl::unexpected(status.error());
  return fabric::super_packets(*status);
}

Result<std::string> Testbed::delay_mode() const {
  const auto status = fabric_.status();
  if (!status) return tl::unexpected(status.error());
  const fabric::DelayCarrier carrier = status->delay.carrier;
  if (carrier == fabric::DelayCarrier::kNone) return "queueing only";
  return fmt::format("{}, {} per link", fabric::to_string(carrier), fabric::delay_text(fabric_.spec().delay_ns));
}

// Hosts have one address each, so further subflows go to further ports of the receiver, which it announces.
Result<void> allow_subflows(const fabric::Fabric& fabric, int paths) {
  constexpr int kFirstPort = 30000;
  for (int host = 0; host < fabric.hosts(); ++host) {
    std::string lines = fmt::format("mptcp limits set subflow {0} add_addr_accepted {0}\n", std::min(paths, 8));
    for (int i = 1; i < paths && host == 0; ++i) {
      lines += fmt::format("mptcp endpoint add {} port {} signal\n", fabric.address(0), kFirstPort + i);
    }
    const auto done = run_tool({"ip", "-batch", "-"}, lines, fabric.namespace_of(host), "iproute2");
    if (!done) return tl::unexpected(done.error());
  }
  return {};
}

}  // namespace clustar::bench::lossy
