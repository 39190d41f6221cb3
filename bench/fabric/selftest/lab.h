// What a check is given: the options, how busy others keep the cores, and where its rows go.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "bench/fabric/selftest/intervals.h"
#include "bench/fabric/selftest/range.h"
#include "bench/fabric/selftest/selftest.h"
#include "bench/perf/other_cpu.h"

namespace clustar::bench::fabric::selftest {

// A busy machine is late and slow, never early and fast: on which side of the interval it excuses a miss.
enum class Excused { kNothing, kBelow, kAbove };

// Watches what others use of the cores, and how late this machine's timers are, from its construction on. A virtual
// machine that does not run has late timers, and so late queues, while its cores look idle.
class BusyWatch {
 public:
  BusyWatch();
  // "" unless others used more than 0.05 cores, or timers of 1 ms were late for more than a hundredth of the time.
  std::string reason() const;
  std::optional<perf::OtherCpu> used() const;

 private:
  void watch_timers(const std::stop_token& stop);

  std::int64_t begin_ns_;
  perf::Usage before_;
  std::atomic<std::int64_t> late_ns_ = 0;
  std::jthread timers_;  // last: it ends before what it writes to
};

class Lab {
 public:
  Lab(const Options& options, const Hooks& hooks, const HeldSignals& signals,
      std::function<void(const std::string&)> progress)
      : options_(options), hooks_(hooks), signals_(signals), progress_(std::move(progress)) {}

  const Options& options() const { return options_; }
  const HeldSignals& signals() const { return signals_; }
  bool wants(const std::string& check) const;
  // Sets the rules and calls the test's hook.
  Result<void> begin(Range& range, const std::string& check, const PortRules& rules);
  // To be called by every check whose packets passed the port under test: the counters' second opinion.
  Result<void> compare(const Range& range, const std::string& check);
  void before(const Fabric& fabric, const std::string& check) const;
  // Calls the test's hook: a burst of `check` has been sent, and may not have met the switch yet.
  void burst_sent(const std::string& check) const;

  // `row` has all but outcome and reason. A miss on the excused side while `busy` says something is a skip.
  void judge(Check row, Excused excused = Excused::kNothing, const std::string& busy = "");
  void skip(const std::string& check, const std::string& what, const std::string& reason);
  void fail(const std::string& check, const std::string& reason);

  std::vector<Check> take_rows() { return std::move(rows_); }
  int compared() const { return compared_; }
  const std::vector<std::string>& disagreements() const { return disagreements_; }

 private:
  void add(Check row);

  const Options& options_;
  const Hooks& hooks_;
  const HeldSignals& signals_;
  std::function<void(const std::string&)> progress_;
  std::vector<Check> rows_;
  int compared_ = 0;
  std::vector<std::string> disagreements_;
};

Check row(const std::string& name, const std::string& what, double asked, double measured, Interval allowed,
          const std::string& unit);

// One check on a range. An error is of the probes: the machine, or a fabric that does not work at all.
struct RangeCheck {
  const char* name;
  bool needs_program;
  Result<void> (*run)(Lab& lab, Range& range);
};

// See the .cc of each.
std::vector<RangeCheck> slow_checks();  // queue_checks.cc: on a line so slow that its queue stands still
std::vector<RangeCheck> line_checks();  // line_checks.cc: at the rate that was asked for
std::vector<RangeCheck> loss_checks();  // loss_checks.cc: without a rate
Result<void> check_spread(Lab& lab, const Fabric& fabric);  // path_checks.cc: equal-cost paths of two tiers
Result<void> check_delay(Lab& lab, const Fabric& fabric, std::uint64_t delay_ns);
FabricSpec spread_spec(const std::string& name, int mtu);
FabricSpec delay_spec(const std::string& name, const Options& options, std::uint64_t delay_ns);

// What all of loss_checks and others share: how many of `range`'s packets of that class arrived.
std::uint64_t arrived(const Range& range, int traffic_class);
std::uint64_t sent(const Range& range, int traffic_class);

}  // namespace clustar::bench::fabric::selftest
