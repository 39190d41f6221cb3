// Network namespaces as `ip netns` keeps them: a file per namespace in /run/netns. Which of them are ours, entering
// them, who runs inside, removing them.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "transport/base/result.h"

namespace clustar::bench::fabric {

struct NamespaceName {
  std::string fabric;
  int host = -1;     // -1: a switch, or the wires
  std::string node;  // "h3", "sw", "leaf0"; "wire" for the cables that are cut

  bool is_switch() const { return host < 0 && node != "wire"; }
};
// "clustar-NAME-h3", "clustar-NAME-sw", "clustar-NAME-leaf0", "clustar-NAME-wire"; nothing for a name that is not ours.
std::optional<NamespaceName> parse_namespace(const std::string& name);

std::string namespace_path(const std::string& name);
// False for what is not there, and for the bare file that a killed `ip netns add` leaves.
bool is_namespace(const std::string& name);
// The names that belong to `fabric`, wires and hosts in order, then switches, half-made ones too. Empty: all fabrics.
std::vector<std::string> namespaces_of(const std::string& fabric);
std::vector<std::string> fabric_names();

// Moves the calling thread into the namespace; what it starts or makes from then on belongs there.
Result<void> enter_namespace(const std::string& name);
// The same for a process of its own, which also gets a /sys that shows the namespace's interfaces.
Result<void> enter_namespace_with_sys(const std::string& name);
// Runs `body` inside, on a thread of its own, and waits for it.
Result<void> run_inside(const std::string& name, const std::function<Result<void>()>& body);

struct Inhabitant {
  pid_t pid = 0;
  std::string command;
  std::string where;  // the namespace
};
// Processes, other than this one, with a thread in one of the namespaces.
std::vector<Inhabitant> inhabitants(const std::vector<std::string>& names);
// "2 processes run there: iperf3 (pid 11, h0), sh (pid 12, h1)"; names at most five.
std::string to_string(const std::vector<Inhabitant>& found);
bool caller_is_inside(const std::vector<std::string>& names);
// SIGTERM, and SIGKILL for what is still inside 2 s later; kSystem if even that leaves somebody.
Result<std::vector<Inhabitant>> end_inhabitants(const std::vector<std::string>& names);

// Takes the name away. The kernel removes the namespace with its interfaces when nobody is inside any more.
Result<void> remove_namespace(const std::string& name);

}  // namespace clustar::bench::fabric
