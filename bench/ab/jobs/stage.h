// Runs jobs on the hosts of a fabric, several at once.
#pragma once

#include <functional>
#include <string>

#include "bench/ab/jobs/conduct.h"
#include "bench/ab/testbed.h"

namespace clustar::bench::ab::jobs {

class Stage {
 public:
  // Both outlive it; the testbed has a fabric. `on_tick` hears, now and then, how far jobs are; it may be empty.
  Stage(const JobsPlan& plan, Testbed& testbed, std::function<void(const std::string& how_far)> on_tick)
      : plan_(plan), testbed_(testbed), on_tick_(std::move(on_tick)) {}

  // By its return all processes of all jobs have ended. A job that fails ends the others: what they would still measure
  // is another mix. Errors: interrupted (see Interrupt, one of which has to live), or counters that cannot be read.
  Result<Run> run(const Slot& slot, int round);

 private:
  const JobsPlan& plan_;
  Testbed& testbed_;
  std::function<void(const std::string&)> on_tick_;
};

}  // namespace clustar::bench::ab::jobs
