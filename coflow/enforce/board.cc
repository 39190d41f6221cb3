#include "coflow/enforce/board.h"

#include <algorithm>
#include <limits>
#include <tuple>

namespace clustar::coflow::enforce {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;

Duration time_of(std::uint64_t bytes, std::uint64_t bytes_per_second) {
  if (bytes_per_second == 0) return Duration(0);
  return Duration(static_cast<std::int64_t>(static_cast<double>(bytes) * 1e9 / static_cast<double>(bytes_per_second)));
}

std::int64_t ns(TimePoint time) { return time.time_since_epoch().count(); }

TimePoint sane(std::int64_t time, TimePoint now) {
  constexpr Duration kMost = std::chrono::seconds(1);
  return time > ns(now + kMost) ? TimePoint{} : TimePoint(Duration(time));
}

constexpr Duration kLongestGap = std::chrono::milliseconds(10);
constexpr Duration kGapWindow = std::chrono::milliseconds(20);

// By more than largest coflows a job is neither owed nor owes.
constexpr std::uint64_t kCredits = 2;

}  // namespace

Board::Board(BoardState& state, std::size_t slot, const BoardOptions& options)
    : state_(state),
      mine_(state.slots.at(slot)),
      options_(options),
      // A process that sends asks once per chunk at least.
      lease_(std::max<Duration>(std::chrono::microseconds(500), 4 * time_of(options.chunk, options.bytes_per_second))),
      longest_turn_(options.bytes_per_second / 4),
      slack_(time_of(options.chunk, options.bytes_per_second) / 2),
      grace_(std::max<Duration>(std::chrono::microseconds(20), time_of(options.chunk, options.bytes_per_second))) {
  mine_.asked_at.store(0, kRelaxed);
  mine_.served.store(0, kRelaxed);
  mine_.left.store(0, kRelaxed);
  mine_.largest.store(0, kRelaxed);
  mine_.place.store(0, kRelaxed);
  mine_.job.store(options.job, kRelaxed);
  const auto enough = static_cast<std::uint32_t>(slot + 1);
  std::uint32_t used = state_.used.load(kRelaxed);
  while (used < enough && !state_.used.compare_exchange_weak(used, enough, kRelaxed)) {
  }
}

Board::~Board() { mine_.asked_at.store(0, kRelaxed); }

std::span<BoardSlot> Board::slots() const {
  return std::span(state_.slots).first(std::min<std::size_t>(state_.used.load(kRelaxed), state_.slots.size()));
}

std::uint64_t Board::served_by(std::uint32_t job) const {
  std::uint64_t sum = 0;
  for (const BoardSlot& slot : slots()) {
    if (slot.asked_at.load(kRelaxed) != 0 && slot.job.load(kRelaxed) == job) sum += slot.served.load(kRelaxed);
  }
  return sum;
}

void Board::wants(std::uint32_t urgency, std::uint64_t left, std::uint64_t in_all, std::uint64_t place, TimePoint now) {
  if (options_.bytes_per_second == 0) return;
  if (mine_.place.load(kRelaxed) != place) {
    mine_.place.store(place, kRelaxed);
    looked_at_ = TimePoint::min();
  }
  mine_.left.store(left / options_.weight, kRelaxed);
  if (in_all / options_.weight > mine_.largest.load(kRelaxed)) {
    mine_.largest.store(in_all / options_.weight, kRelaxed);
  }
  if (urgency != urgency_) looked_at_ = TimePoint::min();
  urgency_ = urgency;
  mine_.urgency.store(urgency, kRelaxed);
  if (wants_) return;
  wants_ = true;
  mine_.asked_at.store(std::max<std::int64_t>(ns(now), 1), kRelaxed);
  // Not for the time in which it wanted nothing.
  const std::uint64_t quantum_missed = std::uint64_t{options_.floor_turns} * options_.quantum;
  const std::uint64_t bulk = state_.bulk.load(kRelaxed);
  if (bulk - bulk_seen_ > quantum_missed) bulk_seen_ = bulk - quantum_missed;
  settle();
}

// What a job did not use while it computed is a claim, and what it had beyond its share a debt, within limits.
void Board::settle() {
  std::uint64_t least = std::numeric_limits<std::uint64_t>::max(), most = 0, largest = mine_.largest.load(kRelaxed);
  for (const BoardSlot& slot : slots()) {
    const std::uint32_t job = slot.job.load(kRelaxed);
    if (job == options_.job || slot.asked_at.load(kRelaxed) == 0) continue;
    const std::uint64_t served = served_by(job);
    least = std::min(least, served);
    most = std::max(most, served);
    largest = std::max(largest, slot.largest.load(kRelaxed));
  }
  if (least > most) return;  // there is no other job
  const std::uint64_t credit = kCredits * turn_bytes(largest);
  settle(served_by(options_.job), least > credit ? least - credit : 0, most + credit, 1);
}

// Each of the job's `siblings` does its part: they come at the same time.
void Board::settle(std::uint64_t served, std::uint64_t low, std::uint64_t high, std::uint64_t siblings) {
  const std::uint64_t own = mine_.served.load(kRelaxed);
  if (served < low) mine_.served.store(own + (low - served) / siblings, kRelaxed);
  if (served > high) mine_.served.store(own - std::min(own, (served - high) / siblings), kRelaxed);
}

std::uint64_t Board::turn_bytes(std::uint64_t largest) const {
  return std::max(std::min(largest, longest_turn_), options_.quantum);
}

void Board::rests() {
  wants_ = false;
  urgency_ = kNobody;
  floor_left_ = 0;
  waits_from_ = kNobody;
  others_ = 0;
  most_urgent_other_ = kNobody;
  looked_at_ = polled_at_ = TimePoint::min();
  gap_ = Duration(0);
  // It is not asked for: its lease ends now. What its job was served stays.
  if (mine_.asked_at.load(kRelaxed) != 0) mine_.asked_at.store(1, kRelaxed);
}

void Board::took_line(std::uint64_t bytes, TimePoint now) {
  if (options_.bytes_per_second == 0) return;
  const std::int64_t takes = time_of(bytes, options_.bytes_per_second).count();
  std::int64_t seen = state_.line_free_at.load(kRelaxed);
  const auto next = [&] { return std::max(ns(sane(seen, now)), ns(now) - std::max(slack_, gap_).count()) + takes; };
  while (!state_.line_free_at.compare_exchange_weak(seen, next(), kRelaxed)) {
  }
}

void Board::sent_bulk(std::uint64_t bytes) {
  mine_.served.fetch_add(bytes / options_.weight, kRelaxed);
  const std::uint64_t all = state_.bulk.fetch_add(bytes, kRelaxed) + bytes;
  if (floor_left_ > 0) {
    floor_left_ -= std::min(floor_left_, bytes);
    if (floor_left_ == 0) looked_at_ = TimePoint::min();
  }
  // A few bytes are worth as little of the floor: they do not put it off.
  bulk_seen_ = std::min(all, bulk_seen_ + bytes * (1 + std::uint64_t{options_.floor_turns} * std::max(others_, 1u)));
}

bool Board::bulk_waits(TimePoint now) {
  if (wants_) return true;
  if (bulk_asked_at_ != TimePoint::min() && now - bulk_asked_at_ < kLookAlone) return bulk_waits_;
  bulk_asked_at_ = now;
  const std::int64_t fresh = ns(now - lease_);
  const auto all = slots();
  bulk_waits_ =
      std::any_of(all.begin(), all.end(), [&](const BoardSlot& slot) { return slot.asked_at.load(kRelaxed) >= fresh; });
  return bulk_waits_;
}

void Board::saw_mouse(TimePoint now) { state_.mouse_at.store(ns(now), kRelaxed); }

// A time far ahead is of another clock, or of a process that died: it would never come.
TimePoint Board::mouse_at(TimePoint now) const { return sane(state_.mouse_at.load(kRelaxed), now); }
TimePoint Board::line_free_at(TimePoint now) const { return sane(state_.line_free_at.load(kRelaxed), now); }

std::uint32_t Board::waits_from(TimePoint now) {
  if (!wants_ || options_.bytes_per_second == 0) return kNobody;
  if (now != polled_at_) {
    // On a busy processor the next poll may be milliseconds away: the line must not stand still for that.
    gap_ = polled_at_ == TimePoint::min() ? Duration(0) : std::min<Duration>(now - polled_at_, kLongestGap);
    polled_at_ = now;
    watch_gaps(now);
  }
  mine_.asked_at.store(std::max<std::int64_t>(ns(now), 1), kRelaxed);
  if (looked_at_ == TimePoint::min() || now - looked_at_ >= (others_ > 0 ? kLook : kLookAlone)) look(now);
  return has_floor() ? kNobody : waits_from_;
}

void Board::watch_gaps(TimePoint now) {
  if (window_at_ == TimePoint::min() || now - window_at_ >= kGapWindow) {
    // What is older than the window before says nothing of this processor now.
    const bool stale = window_at_ == TimePoint::min() || now - window_at_ >= 2 * kGapWindow;
    earlier_gap_ = stale ? Duration(0) : longest_gap_;
    longest_gap_ = Duration(0);
    window_at_ = now;
  }
  longest_gap_ = std::max(longest_gap_, gap_);
}

void Board::look(TimePoint now) {
  looked_at_ = now;
  waits_from_ = kNobody;
  others_ = 0;
  most_urgent_other_ = kNobody;
  const std::int64_t fresh = ns(now - lease_);
  const std::uint64_t own_served = served_by(options_.job);
  std::uint64_t least = own_served, most = 0, largest = mine_.largest.load(kRelaxed), siblings = 1;
  std::array<Standing, BoardState::kSlots> same;  // urgency, other jobs
  std::size_t count = 0;
  for (const BoardSlot& slot : slots()) {
    const std::int64_t asked_at = slot.asked_at.load(kRelaxed);
    if (&slot == &mine_ || asked_at < fresh || asked_at > ns(now + lease_)) continue;
    ++others_;
    const std::uint32_t urgency = slot.urgency.load(kRelaxed);
    const std::uint32_t job = slot.job.load(kRelaxed);
    // What is more urgent here goes all the same: the gate is behind it.
    waits_from_ = std::min(waits_from_, urgency + 1);
    most_urgent_other_ = std::min(most_urgent_other_, urgency);
    if (job == options_.job) ++siblings;
    if (urgency != urgency_) continue;
    largest = std::max(largest, slot.largest.load(kRelaxed));
    if (job == options_.job) continue;
    same[count] = {served_by(job), slot.left.load(kRelaxed), job, slot.place.load(kRelaxed)};
    least = std::min(least, same[count].served);
    most = std::max(most, same[count].served);
    ++count;
  }
  const std::uint64_t turn = turn_bytes(largest);
  const auto round = [&](std::uint64_t served) { return (served - least) / turn; };
  const auto mine = std::tuple(round(own_served), mine_.left.load(kRelaxed), options_.job);
  const std::uint64_t place = mine_.place.load(kRelaxed);
  for (std::size_t i = 0; i < count; ++i) {
    const Standing& other = same[i];
    if (place > 0 && other.place > 0) {
      if (other.place < place) waits_from_ = std::min(waits_from_, urgency_);
      continue;
    }
    if (std::tuple(round(other.served), other.left, other.job) < mine) waits_from_ = std::min(waits_from_, urgency_);
  }
  if (count > 0) settle(own_served, 0, most + kCredits * turn, siblings);
  // Others had floor_turns quanta for each of them since this process had one.
  const std::uint64_t missed = state_.bulk.load(kRelaxed) - bulk_seen_;
  const std::uint64_t allowed = std::uint64_t{options_.floor_turns} * options_.quantum * others_;
  if (others_ > 0 && options_.floor_turns > 0 && !has_floor() && missed >= allowed) floor_left_ = options_.quantum;
}

}  // namespace clustar::coflow::enforce
