// The fabric of one scenario, removed when it ends however it ends.
#pragma once

#include <memory>
#include <string>

#include "bench/fabric/fabric.h"
#include "bench/lossy/arm.h"
#include "bench/lossy/scenario.h"
#include "transport/base/result.h"

namespace clustar::bench::lossy {

// Of the switch program, since its counters were reset.
struct SwitchCounts {
  fabric::ClassCounters to_receiver;                    // by the port that leads to host 0, all classes
  std::uint64_t lost = 0;                               // to loss rules, at all ports
  SwitchCounts& operator+=(const SwitchCounts& other);  // the depths: the larger
};

class Testbed {
 public:
  // Makes a fabric named lossy-<process id>, and removes those of runs that were killed. TCP in its hosts keeps its
  // window over pauses, learns nothing from other connections and has large buffers. kUnavailable: this build or
  // machine cannot make such a fabric.
  static Result<std::unique_ptr<Testbed>> make(const Scenario& scenario, std::uint64_t seed);
  ~Testbed();
  Testbed(const Testbed&) = delete;
  Testbed& operator=(const Testbed&) = delete;

  const fabric::Fabric& fabric() const { return fabric_; }
  // kUnavailable: this machine cannot run the arm, and why.
  Result<void> check(const Arm& arm) const;
  // From here on packets are lost as the scenario says.
  Result<void> begin_loss();

  Result<void> reset_counters() const;
  Result<SwitchCounts> counts() const;
  // What HTB dropped behind the switch program, at all ports, since the fabric was made: 0, unless the CPU was far
  // behind the lines.
  Result<std::uint64_t> backstop_drops() const;
  // Packets at any port of any switch, spines too, that were several in one, since the counters were reset; one counts
  // at each port that it passes. Looks at all of the fabric, so it takes longer than counts().
  Result<std::uint64_t> super_packets() const;
  // "queueing only", or who carries the links' delay.
  Result<std::string> delay_mode() const;

 private:
  Testbed(const Scenario& scenario, std::uint64_t seed, fabric::Fabric fabric)
      : scenario_(scenario), seed_(seed), fabric_(std::move(fabric)) {}

  Scenario scenario_;
  std::uint64_t seed_;
  fabric::Fabric fabric_;
  Result<void> subflows_;  // whether MPTCP may use several paths
};

// Lets MPTCP on the fabric use `paths` subflows to host 0.
Result<void> allow_subflows(const fabric::Fabric& fabric, int paths);

// "lossy-<process id>"
std::string own_fabric_name();

}  // namespace clustar::bench::lossy
