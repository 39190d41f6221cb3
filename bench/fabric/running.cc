#include "bench/fabric/running.h"

#include <fmt/format.h>

#include "bench/fabric/fabric.h"
#include "bench/fabric/places.h"
#include "bench/fabric/signals.h"
#include "bench/fabric/state.h"
#include "bench/fabric/switch/switch_program.h"

namespace clustar::bench::fabric {
namespace {

// Under the lock: the fabric, whole and with a switch program.
Result<FabricStatus> must_inspect(const std::string& fabric) {
  auto there = inspect(fabric);
  if (!there) return there;
  if (!there->exists || !there->problems.empty()) {
    return fail(ErrorCode::kUnavailable,
                fmt::format("the fabric '{0}' is {1}; make it: clustar fabric up --name {0}", fabric,
                            there->exists ? fmt::format("not whole ({})", there->problems.front()) : "not there"));
  }
  if (!there->switches.front().ports.front().program) {
    return fail(ErrorCode::kUnavailable,
                fmt::format("the fabric '{0}' has no switch program at its ports; where this build has one, make it "
                            "again: clustar fabric down --name {0}; clustar fabric up --name {0} ...",
                            fabric));
  }
  return there;
}

Result<void> set_rules(const SwitchPort& port, const SwitchRules& rules) {
  return run_inside(port.switch_namespace, [&] { return change_port(port.interface, rules.of(port_place(port))); });
}

}  // namespace

Result<FabricSpec> change_rules(const std::string& fabric, const std::string& place,
                                const std::function<Result<void>(PortRules&)>& edit) {
  if (const auto ok = check_name(fabric); !ok) return tl::unexpected(ok.error());
  if (const auto ok = check_root(); !ok) return tl::unexpected(ok.error());
  const HeldSignals signals;
  const auto lock = StateLock::take(StateLock::Mode::kChange, &signals);
  if (!lock) return tl::unexpected(lock.error());
  const auto there = must_inspect(fabric);
  if (!there) return tl::unexpected(there.error());
  FabricSpec spec = there->spec;
  if (const auto done = edit_rules(spec, place, edit); !done) return tl::unexpected(done.error());
  auto wanted = checked(spec);
  if (!wanted) return wanted;
  const auto ports = ports_at(topology_of(spec), place);
  if (!ports) return tl::unexpected(ports.error());
  Result<void> done;
  std::size_t changed = 0;
  for (; done && changed < ports->size(); ++changed) done = set_rules((*ports)[changed], wanted->rules);
  if (done) done = write_state(*wanted);
  if (done) return wanted;
  // All or nothing: a port that has failed may have changed, too. Newest first, and on after an error.
  std::string left;
  while (changed-- > 0) {
    const auto back = set_rules((*ports)[changed], there->spec.rules);
    if (!back)
      left += fmt::format("\nand port {} keeps the new rules: {}", port_place((*ports)[changed]), back.error().message);
  }
  return fail(done.error().code, done.error().message + left);
}

Result<void> reset_counters(const std::string& fabric) {
  if (const auto ok = check_name(fabric); !ok) return ok;
  if (const auto ok = check_root(); !ok) return ok;
  const auto lock = StateLock::take(StateLock::Mode::kChange);
  if (!lock) return tl::unexpected(lock.error());
  const auto there = must_inspect(fabric);
  if (!there) return tl::unexpected(there.error());
  for (const SwitchStatus& one : there->switches) {
    const auto done = run_inside(one.net_namespace, [] { return reset_counters(); });
    if (!done) return done;
  }
  return {};
}

}  // namespace clustar::bench::fabric
