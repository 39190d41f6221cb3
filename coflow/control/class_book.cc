#include "coflow/control/class_book.h"

#include <algorithm>
#include <limits>

namespace clustar::coflow::control {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;

}  // namespace

std::shared_ptr<ClassRecord> ClassBook::open(const ClassKey& key) {
  const std::lock_guard lock(mutex_);
  const auto found = records_.find(key);
  if (found != records_.end()) return found->second.record;
  if (records_.size() >= kMostClasses) return nullptr;
  auto record = std::make_shared<ClassRecord>(key);
  if (const auto placed = places_.find(key); placed != places_.end()) {
    record->place.store(placed->second.place, kRelaxed);
    record->level.store(placed->second.level, kRelaxed);
    record->cap.store(placed->second.cap, kRelaxed);
  }
  records_.emplace(key, Kept{record, 0, {}, 0});
  return record;
}

std::vector<ClassReport> ClassBook::collect(TimePoint now) {
  const std::lock_guard lock(mutex_);
  std::vector<ClassReport> all;
  for (auto at = records_.begin(); at != records_.end();) {
    Kept& kept = at->second;
    const ClassRecord& record = *kept.record;
    ClassReport report;
    report.key = record.key;
    report.urgency = record.urgency.load(kRelaxed);
    report.repeats = record.repeats.load(kRelaxed);
    report.in_all = record.in_all.load(kRelaxed);
    report.attained = record.attained.load(kRelaxed);
    report.period_us = record.period_us.load(kRelaxed);
    report.deadline_us = static_cast<std::uint32_t>(deadline_ / std::chrono::microseconds(1));
    const std::uint32_t used = record.peers_used.load(std::memory_order_acquire);
    for (std::uint32_t i = 0; i < used; ++i) {
      const std::uint64_t queued = record.peers[i].queued.load(kRelaxed);
      if (queued > 0) report.peers.push_back({record.peers[i].number.load(kRelaxed), queued});
    }
    report.waits = !report.peers.empty();
    if (report.waits || report.attained != kept.attained || kept.busy_at == TimePoint{}) kept.busy_at = now;
    kept.attained = report.attained;
    if (now - kept.busy_at >= (report.repeats ? kForgetRepeated : kForgetAfter)) {
      kept.record->retired.store(true, std::memory_order_release);
      at = records_.erase(at);
      continue;
    }
    if (report.waits) report.left = record.left.load(kRelaxed);
    if (report.period_us > 0) {
      const Duration since = now.time_since_epoch() - Duration(record.began_at.load(kRelaxed));
      constexpr Duration kMost = std::chrono::minutes(60);
      report.since_us =
          static_cast<std::uint32_t>(std::clamp(since, Duration(0), kMost) / std::chrono::microseconds(1));
    }
    if (ordered() && record.place.load(kRelaxed) == 0 && ++kept.unplaced >= kMostUnplaced) {
      kept.record->place.store(std::numeric_limits<std::uint32_t>::max(), kRelaxed);
      changed(true);
    }
    all.push_back(std::move(report));
    ++at;
  }
  return all;
}

void ClassBook::place(bool ordered, const std::map<ClassKey, Placed>& places) {
  const std::lock_guard lock(mutex_);
  places_ = ordered ? places : std::map<ClassKey, Placed>{};
  for (auto& [key, kept] : records_) {
    const auto placed = places_.find(key);
    if (placed != places_.end()) kept.unplaced = 0;
    const bool last = ordered && kept.unplaced >= kMostUnplaced;
    const std::uint32_t unplaced = last ? std::numeric_limits<std::uint32_t>::max() : 0;
    kept.record->place.store(placed == places_.end() ? unplaced : placed->second.place, kRelaxed);
    kept.record->level.store(placed == places_.end() ? std::uint8_t{0} : placed->second.level, kRelaxed);
    kept.record->cap.store(placed == places_.end() ? std::uint64_t{0} : placed->second.cap, kRelaxed);
  }
  changed(ordered);
}

void ClassBook::hold(const Placed& held) {
  const std::lock_guard lock(mutex_);
  if (const auto found = records_.find(held.key); found != records_.end()) {
    found->second.record->hold_us.store(held.hold_us, kRelaxed);
  }
}

}  // namespace clustar::coflow::control
