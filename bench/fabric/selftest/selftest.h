// Measures, by packets of its own, that a switch does what was asked of it: makes fabrics, sends numbered and
// time-stamped datagrams between their hosts, and holds what arrives against an interval that follows from the rule.
// The switch program's own counters are a second opinion and never the measurement. Needs root.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/fabric/fabric.h"
#include "transport/base/result.h"

namespace clustar::bench::fabric::selftest {

inline constexpr std::uint64_t kLeastBufferFrames = 24;

struct Options {
  std::uint64_t rate_bps = 200'000'000;  // kMinRateBps to kMaxRateBps
  int mtu = 1500;                        // kMinMtu to kMaxMtu
  std::uint64_t buffer_bytes = 0;        // kLeastBufferFrames frames at least; 0: default_buffer_bytes()
  std::vector<std::string> only = {};    // names of check_names(); empty: all
  bool quick = false;                    // fewer packets, wider intervals
  bool strict = false;                   // a row that was not measured counts as failed; see Report::good()
};

enum class Outcome { kPassed, kFailed, kSkipped };
const char* to_string(Outcome outcome);

// One measured quantity. `low` and `high` are the allowed ends, both included.
struct Check {
  std::string name;  // of check_names(); several rows may have the same
  std::string what;
  double asked = 0, low = 0, high = 0;
  std::optional<double> measured;  // none: it was not measured
  std::string unit;
  Outcome outcome = Outcome::kSkipped;
  std::string reason;  // of what did not pass; "" else
};

struct Report {
  Options options;  // with defaults filled in
  std::vector<Check> checks;
  std::string without_program;  // why there is no switch program; empty: there is one
  double seconds = 0;
  double load_average = 0;  // of the last minute, at the end
  double other_cores = 0;   // that processes of others used meanwhile, user time
  int cores = 0;

  int count(Outcome outcome) const;
  // Checks that were asked for and said nothing, not even that they were skipped.
  std::vector<std::string> without_row() const;
  // Nothing failed and, with options.strict, nothing was skipped and every check that was asked for has a row.
  bool good() const;
};

// For tests of the selftest itself.
struct Hooks {
  // Called when the fabric is up and the rules of `check` are set, before its packets.
  std::function<void(const Fabric& fabric, const std::string& check)> before_check;
  // Called when a burst of `check` into a standing queue has been sent: what it waits for is time that passes
  // meanwhile.
  std::function<void(const std::string& check)> burst_sent;
};

const std::vector<std::string>& check_names();
// The same with defaults; kInvalidArgument naming the option and what is allowed.
Result<Options> checked(Options options);

// Runs every check, also behind one that failed; `progress` gets one line each. The fabrics are called
// selftest-<pid>, and none is left, whatever happens. kUnavailable where fabrics cannot be made at all; kSystem after
// SIGINT, SIGTERM or SIGHUP, which takes its usual course on return.
Result<Report> run(const Options& options, const std::function<void(const std::string&)>& progress,
                   const Hooks& hooks = {});

}  // namespace clustar::bench::fabric::selftest
