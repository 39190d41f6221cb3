#include "bench/fabric/selftest/selftest.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "bench/fabric/process_fabric.h"
#include "bench/fabric/selftest/lab.h"
#include "bench/fabric/signals.h"

namespace clustar::bench::fabric::selftest {
namespace {

constexpr double kSlowSeconds = 0.3;  // in which the slow line empties a full buffer
constexpr std::uint64_t kDelayNs = 2'000'000;
constexpr const char* kPrefix = "selftest";
constexpr const char* kBackstop = "backstop";
constexpr const char* kCounters = "counters";

// Removes the fabric on the way out, whatever happened. While a signal waits, another's lock makes removal an error
// instead of a wait: so it is tried again.
class Removal {
 public:
  explicit Removal(std::string name) : name_(std::move(name)) {}
  ~Removal() { static_cast<void>(now()); }
  Result<void> now() {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (true) {
      const auto removed = Fabric::remove(name_);
      if (removed) return {};
      if (std::chrono::steady_clock::now() > until) return tl::unexpected(removed.error());
      poll(nullptr, 0, 20);
    }
  }

 private:
  std::string name_;
};

// The stages of one run, one fabric after another under one name.
class Run {
 public:
  Run(const Options& options, const Hooks& hooks, const std::function<void(const std::string&)>& progress)
      : options_(options), lab_(options_, hooks, signals_, progress), progress_(progress) {}

  Result<Report> all();

 private:
  Result<void> interrupted() const {
    return signals_.interrupted() ? fail(ErrorCode::kSystem, "interrupted; its fabric was removed") : Result<void>();
  }
  // kSystem when interrupted, kUnavailable when no fabric can be made at all. What else goes wrong is a failed check;
  // what the machine lacks for one fabric, when it could make others, is a skipped one.
  Result<void> ranged(const char* what, std::uint64_t rate_bps, const std::vector<RangeCheck>& checks);
  Result<void> alone(const char* check, bool needs_program, const FabricSpec& spec,
                     const std::function<Result<void>(const Fabric&)>& measure);
  Result<Fabric> up(const FabricSpec& spec, const std::vector<std::string>& checks);
  void second_opinions();
  std::uint64_t slow_rate() const {
    const double rate = 8 * static_cast<double>(options_.buffer_bytes) / kSlowSeconds;
    constexpr std::uint64_t kRound = 100'000;  // to be said in few digits
    return std::clamp(static_cast<std::uint64_t>(rate) / kRound * kRound, kMinRateBps, options_.rate_bps);
  }

  // First in, last out: a signal takes its course when everything is removed.
  const HeldSignals signals_;
  const Options& options_;
  Lab lab_;
  const std::function<void(const std::string&)>& progress_;
  BusyWatch watch_;
  std::string name_ = process_fabric_name(kPrefix);
  std::string without_program_;
  bool made_ = false;
  int queued_ = 0;  // ranges whose port has a queue
  std::uint64_t backstop_drops_ = 0;
};

Result<Fabric> Run::up(const FabricSpec& spec, const std::vector<std::string>& checks) {
  UpReport report;
  auto made = Fabric::up(spec, &report);
  if (const auto ok = interrupted(); !ok) return tl::unexpected(ok.error());
  if (!made && !made_) return made;
  if (!made) {
    const bool lacks = made.error().code == ErrorCode::kUnavailable;
    const std::string reason = "the fabric could not be made: " + made.error().message;
    for (const std::string& check : checks) lacks ? lab_.skip(check, "", reason) : lab_.fail(check, reason);
    return made;
  }
  made_ = true;
  without_program_ = report.note;
  return made;
}

Result<void> Run::ranged(const char* what, std::uint64_t rate_bps, const std::vector<RangeCheck>& checks) {
  std::vector<RangeCheck> wanted;
  std::vector<std::string> names;
  for (const RangeCheck& check : checks) {
    if (!lab_.wants(check.name)) continue;
    wanted.push_back(check);
    names.emplace_back(check.name);
  }
  if (wanted.empty()) return {};
  if (progress_) progress_(fmt::format("{}:", what));
  Removal removal(name_);
  const auto fabric = up(Range::spec(name_, rate_bps, options_.buffer_bytes, options_.mtu), names);
  if (!fabric) return signals_.interrupted() || !made_ ? tl::unexpected(fabric.error()) : Result<void>();
  auto range = Range::open(*fabric, signals_);
  if (!range) {
    if (const auto ok = interrupted(); !ok) return ok;
    for (const std::string& check : names) lab_.fail(check, range.error().message);
    return removal.now();
  }
  for (const RangeCheck& check : wanted) {
    if (check.needs_program && !range->has_program()) {
      lab_.skip(check.name, "", without_program_);
      continue;
    }
    const auto done = check.run(lab_, *range);
    if (const auto ok = interrupted(); !ok) return ok;
    if (!done) lab_.fail(check.name, done.error().message);
  }
  if (rate_bps != 0 && range->has_program()) {
    const auto drops = range->backstop_drops();
    if (!drops) lab_.fail(kBackstop, drops.error().message);
    backstop_drops_ += drops.value_or(0);
    ++queued_;
  }
  return removal.now();
}

Result<void> Run::alone(const char* check, bool needs_program, const FabricSpec& spec,
                        const std::function<Result<void>(const Fabric&)>& measure) {
  if (!lab_.wants(check)) return {};
  Removal removal(name_);
  const auto fabric = up(spec, {check});
  if (!fabric) return signals_.interrupted() || !made_ ? tl::unexpected(fabric.error()) : Result<void>();
  if (needs_program && !without_program_.empty()) {
    lab_.skip(check, "", without_program_);
    return removal.now();
  }
  const auto done = measure(*fabric);
  if (const auto ok = interrupted(); !ok) return ok;
  if (!done) lab_.fail(check, done.error().message);
  return removal.now();
}

// Of everything that ran.
void Run::second_opinions() {
  const auto none = [&](const char* check) {
    lab_.skip(check, "", without_program_.empty() ? "none of the checks ran that it looks at" : without_program_);
  };
  if (lab_.wants(kBackstop)) {
    if (queued_ == 0) {
      none(kBackstop);
    } else {
      lab_.judge(
          row(kBackstop, "drops behind the switch program", 0, static_cast<double>(backstop_drops_), {0, 0}, "packets"),
          Excused::kAbove, watch_.reason());
    }
  }
  if (lab_.wants(kCounters)) {
    if (lab_.compared() == 0) return none(kCounters);
    const double all = lab_.compared();
    const auto wrong = static_cast<double>(lab_.disagreements().size());
    Check made =
        row(kCounters, "experiments in which they agree with the probes", all, all - wrong, {all, all}, "experiments");
    if (wrong > 0) made.reason = lab_.disagreements().front();
    lab_.judge(made);
  }
}

Result<Report> Run::all() {
  const auto begin = std::chrono::steady_clock::now();
  const std::string slow = fmt::format("on a line of {}, whose queue stands still", rate_text(slow_rate()));
  const std::string line = fmt::format("on a line of {}", rate_text(options_.rate_bps));
  Result<void> done = ranged(slow.c_str(), slow_rate(), slow_checks());
  if (done) done = ranged(line.c_str(), options_.rate_bps, line_checks());
  if (done) done = ranged("on a line without a rate", 0, loss_checks());
  if (done) {
    done = alone("ecmp", true, spread_spec(name_, options_.mtu),
                 [&](const Fabric& fabric) { return check_spread(lab_, fabric); });
  }
  if (done) {
    done = alone("delay", false, delay_spec(name_, options_, kDelayNs),
                 [&](const Fabric& fabric) { return check_delay(lab_, fabric, kDelayNs); });
  }
  if (!done) return tl::unexpected(done.error());
  second_opinions();
  Report report;
  report.options = options_;
  report.checks = lab_.take_rows();
  report.without_program = without_program_;
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (getloadavg(&report.load_average, 1) != 1) report.load_average = 0;
  if (const auto others = watch_.used()) {
    report.other_cores = others->used;
    report.cores = others->cores;
  }
  return report;
}

}  // namespace

const char* to_string(Outcome outcome) {
  switch (outcome) {
    case Outcome::kPassed: return "passed";
    case Outcome::kFailed: return "failed";
    case Outcome::kSkipped: return "skipped";
  }
  return "?";
}

int Report::count(Outcome outcome) const {
  return static_cast<int>(
      std::count_if(checks.begin(), checks.end(), [&](const Check& one) { return one.outcome == outcome; }));
}

std::vector<std::string> Report::without_row() const {
  std::vector<std::string> names;
  for (const std::string& name : options.only.empty() ? check_names() : options.only) {
    const bool there = std::any_of(checks.begin(), checks.end(), [&](const Check& one) { return one.name == name; });
    if (!there) names.push_back(name);
  }
  return names;
}

bool Report::good() const {
  if (count(Outcome::kFailed) > 0) return false;
  return !options.strict || (count(Outcome::kSkipped) == 0 && without_row().empty());
}

const std::vector<std::string>& check_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const auto& checks : {slow_checks(), line_checks(), loss_checks()}) {
      for (const RangeCheck& check : checks) all.emplace_back(check.name);
    }
    all.insert(all.end(), {"ecmp", "delay", kBackstop, kCounters});
    return all;
  }();
  return names;
}

Result<Options> checked(Options options) {
  const auto wrong = [](const std::string& message) {
    return tl::unexpected(Error{ErrorCode::kInvalidArgument, message});
  };
  if (options.rate_bps < kMinRateBps || options.rate_bps > kMaxRateBps) {
    return wrong("--rate: allowed: 1M to 400G; a line without a rate has nothing to measure");
  }
  if (options.mtu < kMinMtu || options.mtu > kMaxMtu) {
    return wrong(fmt::format("--mtu: allowed: {} to {}", kMinMtu, kMaxMtu));
  }
  const std::uint64_t least = kLeastBufferFrames * frame_bytes(options.mtu);
  if (options.buffer_bytes == 0) options.buffer_bytes = std::max(default_buffer_bytes(options.rate_bps), least);
  if (options.buffer_bytes < least || options.buffer_bytes > kMaxBufferBytes) {
    return wrong(fmt::format("--buffer: allowed: {} ({} frames) to {} bytes; less says nothing about thresholds", least,
                             kLeastBufferFrames, kMaxBufferBytes));
  }
  const auto& names = check_names();
  bool measures = options.only.empty();
  for (const std::string& name : options.only) {
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      return wrong(fmt::format("--only: there is no check '{}'; allowed: {}", name, fmt::join(names, ", ")));
    }
    measures = measures || (name != kBackstop && name != kCounters);
  }
  if (!measures) return wrong("--only: backstop and counters look at what other checks did; name one of those, too");
  return options;
}

Result<Report> run(const Options& asked, const std::function<void(const std::string&)>& progress, const Hooks& hooks) {
  const auto options = checked(asked);
  if (!options) return tl::unexpected(options.error());
  if (const auto ok = check_root(); !ok) return tl::unexpected(ok.error());
  for (const std::string& problem : remove_orphans(kPrefix)) {
    if (progress) progress("left of an earlier run: " + problem);
  }
  return Run(*options, hooks, progress).all();
}

}  // namespace clustar::bench::fabric::selftest
