#include "bench/fabric/fabric.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <utility>

#include "bench/fabric/build.h"
#include "bench/fabric/delay/forwarder.h"
#include "bench/fabric/owner.h"
#include "bench/fabric/signals.h"
#include "bench/fabric/state.h"
#include "bench/fabric/tool.h"

namespace clustar::bench::fabric {
namespace {

// The fabric's own process is neither a reason to keep the fabric nor news when it ends.
std::vector<Inhabitant> strangers(const std::string& name, std::vector<Inhabitant> inside) {
  std::erase_if(inside, [&](const Inhabitant& one) {
    return one.where == wire_namespace(name) && one.command == kForwarderCommand;
  });
  return inside;
}

Result<void> check_outside(const std::string& name) {
  if (!caller_is_inside(namespaces_of(name))) return {};
  return fail(ErrorCode::kInvalidUsage,
              fmt::format("this command itself runs on a host of the fabric '{}'; leave that host first", name));
}

// Under the lock. Goes on after an error, so that as little as possible is left.
Result<Removed> remove_locked(const std::string& name) {
  Removed removed;
  if (const auto ok = check_outside(name); !ok) return tl::unexpected(ok.error());
  const std::vector<std::string> names = namespaces_of(name);
  auto ended = end_inhabitants(names);
  Result<void> done;
  if (!ended) done = tl::unexpected(ended.error());
  for (const std::string& one : names) {
    const auto gone = remove_namespace(one);
    if (gone) removed.namespaces.push_back(one);
    if (!gone && done) done = gone;
  }
  remove_state(name);
  if (!done) return tl::unexpected(done.error());
  removed.ended = strangers(name, std::move(*ended));
  return removed;
}

// "" when it is what is wanted.
std::string differs(const FabricStatus& there, const FabricSpec& wanted) {
  const std::string what = difference(there.spec, wanted);
  const DelayCarrier carrier = there.delay.carrier;
  if (!what.empty() || wanted.delay_by == DelayBy::kAuto ||
      to_string(wanted.delay_by) == std::string(to_string(carrier)))
    return what;
  return fmt::format("a delay by {} instead of {}", to_string(carrier), to_string(wanted.delay_by));
}

// What is wrong with the fabric that is there, or how it differs; empty when it is `wanted`.
std::string wrong_with(const FabricStatus& there, const FabricSpec& wanted) {
  if (!there.problems.empty()) return there.problems.front();
  const std::string what = differs(there, wanted);
  return what.empty() ? "" : fmt::format("{}: {}", describe(there.spec), what);
}

// Damaged in nothing but that its forwarder has died: then that one starts again, whatever runs on the hosts meanwhile.
// What is there afterwards.
Result<FabricStatus> revive_forwarder(const FabricStatus& there, const FabricSpec& wanted) {
  const bool only_that = there.exists && there.problems.size() == 1 && there.delay.forwarder_is_missing();
  if (!only_that || wanted.delay_by == DelayBy::kNetem || !differs(there, wanted).empty()) return there;
  if (const auto started = start_forwarder(wanted.name, wire_cables(topology_of(wanted))); !started) return there;
  return inspect(wanted.name);
}

Result<void> build_and_check(const FabricSpec& spec, const Tools& tools, const HeldSignals& signals, UpReport& report) {
  if (const auto done = build(spec, tools, signals, report.note); !done) return done;
  const auto there = inspect(spec.name);
  if (!there) return tl::unexpected(there.error());
  const std::string wrong = wrong_with(*there, spec);
  if (!wrong.empty()) {
    return fail(ErrorCode::kInternal, fmt::format("the kernel made something else of the fabric: {}", wrong));
  }
  report.delay = there->delay.carrier;
  if (const auto done = write_state(spec); !done) return done;
  if (signals.interrupted()) return fail(ErrorCode::kSystem, "interrupted");
  return {};
}

// Under the lock: in the place of what is there, unless somebody uses that.
Result<void> make_anew(const FabricSpec& spec, const Tools& tools, const HeldSignals& signals, UpReport& report) {
  if (const auto ok = check_outside(spec.name); !ok) return ok;
  const auto inside = strangers(spec.name, inhabitants(namespaces_of(spec.name)));
  if (!inside.empty()) {
    return fail(
        ErrorCode::kInvalidUsage,
        fmt::format("the fabric '{0}' is there with other arguments or damaged ({1}), and {2}. End them, or let "
                    "'clustar fabric down --name {0}' do so",
                    spec.name, report.before, to_string(inside)));
  }
  Result<void> made;
  if (const auto gone = remove_locked(spec.name); !gone) made = tl::unexpected(gone.error());
  if (made) made = build_and_check(spec, tools, signals, report);
  if (made) return {};
  const auto gone = remove_locked(spec.name);
  return fail(made.error().code, made.error().message + (gone ? "" : "\nand then: " + gone.error().message));
}

Error incomplete(const std::string& name, const FabricStatus& there) {
  const std::string fix = fmt::format(
      "make it again: clustar fabric up --name {0} ..., or remove it: clustar fabric down "
      "--name {0}",
      name);
  return {ErrorCode::kUnavailable,
          fmt::format("the fabric '{}' is not whole ({}); {}", name, there.problems.front(), fix)};
}

Error missing(const std::string& name) {
  std::string others;
  for (const std::string& other : fabric_names()) others += (others.empty() ? "" : ", ") + other;
  return {ErrorCode::kUnavailable, fmt::format("there is no fabric '{0}'{1}; make one: clustar fabric up --name {0}",
                                               name, others.empty() ? "" : fmt::format(" (there is: {})", others))};
}

}  // namespace

const char* to_string(Change change) {
  switch (change) {
    case Change::kMade: return "made";
    case Change::kUnchanged: return "unchanged";
    case Change::kRebuilt: return "rebuilt";
    case Change::kRepaired: return "repaired";
  }
  return "?";
}

Result<void> check_root() {
  if (geteuid() == 0) return {};
  return fail(ErrorCode::kUnavailable,
              "needs root, because only root can make and enter network namespaces: run it with sudo");
}

Result<Fabric> Fabric::up(const FabricSpec& asked, UpReport* report, Others others) {
  const auto begin = std::chrono::steady_clock::now();
  const auto spec = checked(asked);
  if (!spec) return tl::unexpected(spec.error());
  if (const auto ok = check_root(); !ok) return tl::unexpected(ok.error());
  const HeldSignals signals;
  const auto lock = StateLock::take(StateLock::Mode::kChange, &signals);
  if (!lock) return tl::unexpected(lock.error());
  if (others == Others::kKeep) {
    if (const auto ok = check_owner(spec->name); !ok) return tl::unexpected(ok.error());
  }
  const auto tools = Tools::find(signals, lock->fd());
  if (!tools) return tl::unexpected(tools.error());
  const auto found = inspect(spec->name);
  if (!found) return tl::unexpected(found.error());
  const auto there = revive_forwarder(*found, *spec);
  if (!there) return tl::unexpected(there.error());

  UpReport done;
  done.delay = there->delay.carrier;
  if (there->exists) {
    done.before = wrong_with(*there, *spec);
    done.change = done.before.empty()       ? Change::kUnchanged
                  : there->problems.empty() ? Change::kRebuilt
                                            : Change::kRepaired;
  }
  if (done.change == Change::kUnchanged) {
    if (const auto written = write_state(*spec, others == Others::kTake); !written) {
      return tl::unexpected(written.error());
    }
    if (!found->problems.empty()) {
      done.change = Change::kRepaired;
      done.before = found->problems.front();
    }
  } else if (const auto made = make_anew(*spec, *tools, signals, done); !made) {
    return tl::unexpected(made.error());
  }
  done.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (report != nullptr) *report = done;
  return Fabric(*spec);
}

Result<Fabric> Fabric::find(const std::string& name) {
  const auto there = status_of(name);
  if (!there) return tl::unexpected(there.error());
  if (!there->problems.empty()) return tl::unexpected(incomplete(name, *there));
  return Fabric(there->spec);
}

Result<Removed> Fabric::remove(const std::string& name, Others others) {
  if (const auto ok = check_name(name); !ok) return tl::unexpected(ok.error());
  if (const auto ok = check_root(); !ok) return tl::unexpected(ok.error());
  const HeldSignals signals;
  const auto lock = StateLock::take(StateLock::Mode::kChange, &signals);
  if (!lock) return tl::unexpected(lock.error());
  if (others == Others::kKeep) {
    if (const auto ok = check_owner(name); !ok) return tl::unexpected(ok.error());
  }
  return remove_locked(name);
}

std::vector<SwitchPort> Fabric::ports() const { return switch_ports(topology_of(spec_)); }

std::vector<std::string> Fabric::switch_namespaces() const {
  std::vector<std::string> names;
  for (const std::string& name : switches_of(spec_)) names.push_back(switch_namespace(spec_.name, name));
  return names;
}

std::vector<std::string> Fabric::names() { return fabric_names(); }

Result<void> Fabric::check_host(int host) const {
  if (host >= 0 && host < spec_.hosts) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("the fabric '{}' has no host {}; allowed: 0 to {}", spec_.name, host, spec_.hosts - 1));
}

Result<void> Fabric::enter(int host) const {
  if (const auto ok = check_host(host); !ok) return ok;
  return enter_namespace(namespace_of(host));
}

Result<void> Fabric::enter_process(int host) const {
  if (const auto ok = check_host(host); !ok) return ok;
  return enter_namespace_with_sys(namespace_of(host));
}

Result<FabricStatus> Fabric::status_of(const std::string& name) {
  if (const auto ok = check_name(name); !ok) return tl::unexpected(ok.error());
  if (const auto ok = check_root(); !ok) return tl::unexpected(ok.error());
  const auto lock = StateLock::take(StateLock::Mode::kLook);
  if (!lock) return tl::unexpected(lock.error());
  auto there = inspect(name);
  if (!there) return there;
  if (!there->exists) return tl::unexpected(missing(name));
  const auto asked = read_state(name);
  const std::string changed = asked ? difference(there->spec, *asked) : "";
  if (!changed.empty()) {
    there->problems.push_back(
        fmt::format("it was made as {}; somebody has changed it since: {}", describe(*asked), changed));
  }
  return there;
}

Result<PacketProof> Fabric::prove() const {
  const auto lock = StateLock::take(StateLock::Mode::kLook);
  if (!lock) return tl::unexpected(lock.error());
  return prove_packets(spec_);
}

}  // namespace clustar::bench::fabric
