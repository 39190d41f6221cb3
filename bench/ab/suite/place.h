// The hands of conduct(): the fabric of a scenario, the kernel's settings of an arm, the losses and the traffic of
// others during a run.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "bench/ab/suite/conduct.h"
#include "bench/ab/testbed.h"

namespace clustar::bench::ab::suite {

class FabricPlace {
 public:
  // `plan` outlives it. `on_record`: what rank 0 tells during a run; may be empty.
  FabricPlace(const SuitePlan& plan, std::function<void(const nlohmann::json&)> on_record);

  // Makes the scenario's fabric. kUnavailable: none can be made here, and why.
  Result<nlohmann::json> open(const Scenario& scenario);
  // Trains once. Losses begin before the ranks start, from the same random numbers for all arms of a round, and end
  // with them; so do the settings of TCP and the traffic of others. kUnavailable: the kernel lacks what the arm needs.
  Result<nlohmann::json> run(const Scenario& scenario, const SuiteArm& arm, int round);
  // Removes the fabric.
  void close() { testbed_.reset(); }

  // As conduct() takes them. This outlives them.
  Hands hands();

 private:
  Result<void> set_tcp(const SuiteArm& arm, int ranks, bool on) const;
  Result<void> begin_loss(const Scenario& scenario, std::uint64_t seed) const;
  Result<void> end_loss(const Scenario& scenario) const;
  Result<nlohmann::json> train(const Scenario& scenario, const SuiteArm& arm, int round);
  Result<nlohmann::json> switch_counts() const;

  const SuitePlan& plan_;
  std::function<void(const nlohmann::json&)> on_record_;
  std::optional<Testbed> testbed_;
};

}  // namespace clustar::bench::ab::suite
