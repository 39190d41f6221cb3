#include "bench/fabric/selftest/lab.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

namespace clustar::bench::fabric::selftest {

BusyWatch::BusyWatch()
    : begin_ns_(now_ns()),
      before_(perf::usage_now()),
      timers_([this](const std::stop_token& stop) { watch_timers(stop); }) {}

void BusyWatch::watch_timers(const std::stop_token& stop) {
  using std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kTick(1);
  while (!stop.stop_requested()) {
    const auto due = steady_clock::now() + kTick;
    std::this_thread::sleep_until(due);
    const auto late = steady_clock::now() - due;
    if (late > kTick) late_ns_ += std::chrono::nanoseconds(late).count();
  }
}

std::optional<perf::OtherCpu> BusyWatch::used() const {
  const double seconds = static_cast<double>(now_ns() - begin_ns_) / 1e9;
  return perf::other_cpu({{before_, perf::usage_now(), perf::allowed_cores()}}, before_.machine, seconds);
}

std::string BusyWatch::reason() const {
  constexpr double kLateShare = 0.01;
  const double late = static_cast<double>(late_ns_), all = static_cast<double>(now_ns() - begin_ns_);
  if (late > kLateShare * all) {
    return fmt::format("the machine was busy: its timers were late for {:.0f} of {:.0f} ms (more than 1 % disturbs)",
                       late / 1e6, all / 1e6);
  }
  const auto others = used();
  if (!others || !others->disturbs()) return "";
  return fmt::format("the machine was busy: others used {:.2f} of {} cores (more than 0.05 disturbs)", others->used,
                     others->cores);
}

bool Lab::wants(const std::string& check) const {
  return options_.only.empty() || std::find(options_.only.begin(), options_.only.end(), check) != options_.only.end();
}

void Lab::before(const Fabric& fabric, const std::string& check) const {
  if (hooks_.before_check) hooks_.before_check(fabric, check);
}

void Lab::burst_sent(const std::string& check) const {
  if (hooks_.burst_sent) hooks_.burst_sent(check);
}

Result<void> Lab::begin(Range& range, const std::string& check, const PortRules& rules) {
  if (const auto ok = range.begin(rules); !ok) return ok;
  before(range.fabric(), check);
  return {};
}

Result<void> Lab::compare(const Range& range, const std::string& check) {
  if (!range.has_program()) return {};
  const auto found = range.disagreement();
  if (!found) return tl::unexpected(found.error());
  ++compared_;
  if (!found->empty()) disagreements_.push_back(fmt::format("{}: {}", check, *found));
  return {};
}

void Lab::judge(Check row, Excused excused, const std::string& busy) {
  const double value = row.measured.value();
  const bool below = value<row.low, above = value> row.high;
  const bool excuse = (below && excused == Excused::kBelow) || (above && excused == Excused::kAbove);
  row.outcome = !below && !above ? Outcome::kPassed : excuse && !busy.empty() ? Outcome::kSkipped : Outcome::kFailed;
  if (row.outcome == Outcome::kSkipped) row.reason = busy;
  if (row.outcome == Outcome::kFailed && row.reason.empty()) {
    row.reason = below ? "less than allowed" : "more than allowed";
  }
  if (row.outcome == Outcome::kPassed) row.reason.clear();
  add(std::move(row));
}

void Lab::skip(const std::string& check, const std::string& what, const std::string& reason) {
  Check row;
  row.name = check;
  row.what = what;
  row.reason = reason;
  add(std::move(row));
}

void Lab::fail(const std::string& check, const std::string& reason) {
  Check row;
  row.name = check;
  row.outcome = Outcome::kFailed;
  row.reason = reason;
  add(std::move(row));
}

void Lab::add(Check row) {
  if (progress_) {
    progress_(fmt::format("{} {}{}{}{}", to_string(row.outcome), row.name, row.what.empty() ? "" : ", " + row.what,
                          row.reason.empty() ? "" : ": ", row.reason));
  }
  rows_.push_back(std::move(row));
}

Check row(const std::string& name, const std::string& what, double asked, double measured, Interval allowed,
          const std::string& unit) {
  Check made;
  made.name = name;
  made.what = what;
  made.asked = asked;
  made.measured = measured;
  made.low = allowed.low;
  made.high = allowed.high;
  made.unit = unit;
  return made;
}

std::uint64_t arrived(const Range& range, int traffic_class) {
  std::uint64_t count = 0;
  for (const Arrival& one : range.arrivals()) count += one.tos >> 5 == traffic_class ? 1U : 0U;
  return count;
}

std::uint64_t sent(const Range& range, int traffic_class) {
  std::uint64_t count = 0;
  for (const Sent& one : range.sent()) count += one.tos >> 5 == traffic_class ? 1U : 0U;
  return count;
}

}  // namespace clustar::bench::fabric::selftest
