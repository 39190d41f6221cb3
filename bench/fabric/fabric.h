// An emulated fabric on one machine: hosts (network namespaces) around a switch (a bridge in a namespace of its own) or
// several (routers), each port with a rate and a buffer, packets of the MTU and no larger in every queue. Needs root.
//
//   auto fabric = Fabric::up({.hosts = 2, .rate_bps = 200'000'000});
//   const pid_t pid = fork();
//   if (pid == 0 && fabric->enter(1)) execv(...);  // on host 1, where fabric->address(0) is the other one
//   fabric->down();
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "bench/fabric/inspect.h"
#include "bench/fabric/namespaces.h"
#include "bench/fabric/probe.h"
#include "bench/fabric/spec.h"
#include "bench/fabric/topology.h"
#include "transport/base/result.h"

namespace clustar::bench::fabric {

enum class Change { kMade, kUnchanged, kRebuilt, kRepaired };
const char* to_string(Change change);

// What up() did.
struct UpReport {
  Change change = Change::kMade;
  std::string before;  // kRebuilt: what was there; kRepaired: what was wrong with it
  double seconds = 0;
  std::string note;  // what the fabric does without, and why; empty: nothing
  DelayCarrier delay = DelayCarrier::kNone;
};

// A fabric of that name which another user made (owner.h): refused, or treated as one's own.
enum class Others { kKeep, kTake };

// What remove() did.
struct Removed {
  std::vector<std::string> namespaces;
  std::vector<Inhabitant> ended;
};

// A handle, not an owner: the fabric lives until it is removed, by whomever. Thread-safe but for down().
class Fabric {
 public:
  // Makes the fabric; does nothing when just this one is there, and makes it again when it is another or half-made (but
  // kInvalidUsage when processes run in it, or when another user made it). After an error, also after SIGINT, SIGTERM
  // or SIGHUP, nothing is left; the signal takes its usual course on return. kInvalidArgument: the spec. kUnavailable:
  // the machine lacks something.
  static Result<Fabric> up(const FabricSpec& spec, UpReport* report = nullptr, Others others = Others::kKeep);
  // kUnavailable when there is none, or when it is not whole.
  static Result<Fabric> find(const std::string& name);
  // Ends the processes inside and removes everything of that name, half-made or whole. Nothing there is no error.
  static Result<Removed> remove(const std::string& name, Others others = Others::kTake);
  static std::vector<std::string> names();

  const FabricSpec& spec() const { return spec_; }
  int hosts() const { return spec_.hosts; }
  std::string address(int host) const { return host_address(host); }
  std::string namespace_of(int host) const { return host_namespace(spec_.name, host); }

  // Every port of every switch: what rules per port are attached to. Switch by switch, in the topology's order.
  std::vector<SwitchPort> ports() const;
  std::vector<std::string> switch_namespaces() const;

  // Moves the calling thread, and what it starts from then on, to the host. In a multi-threaded process or between fork
  // and exec alike; there is no way back but to end the thread.
  Result<void> enter(int host) const;
  // For a process of its own (a fork): also gives it a /sys that shows the host's interfaces, as programs expect that
  // look up speeds there.
  Result<void> enter_process(int host) const;

  // What is there, whole or not; kUnavailable when there is nothing of that name.
  static Result<FabricStatus> status_of(const std::string& name);
  Result<FabricStatus> status() const { return status_of(spec_.name); }
  Result<PacketProof> prove() const;  // see probe.h
  Result<Removed> down() { return remove(spec_.name); }

 private:
  explicit Fabric(FabricSpec spec) : spec_(std::move(spec)) {}
  Result<void> check_host(int host) const;

  FabricSpec spec_;
};

// kUnavailable with what to do, unless the process is root.
Result<void> check_root();

}  // namespace clustar::bench::fabric
