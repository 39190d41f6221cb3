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

void Board::wants(std::uint32_t urgency, std::uint64_t left, std::uint64_t coflow_bytes, TimePoint now) {
  mine_.left.store(left / options_.weight, kRelaxed);
  if (coflow_bytes / options_.weight > mine_.largest.load(kRelaxed)) {
    mine_.largest.store(coflow_bytes / options_.weight, kRelaxed);
  }
  if (urgency != urgency_) looked_at_ = TimePoint::min();
  urgency_ = urgency;
  mine_.urgency.store(urgency, kRelaxed);
  mine_.asked_at.store(std::max<std::int64_t>(ns(now), 1), kRelaxed);
  if (wants_) return;
  wants_ = true;
  bulk_seen_ = state_.bulk.load(kRelaxed);
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
  const std::uint64_t now_served = served_by(options_.job);
  const std::uint64_t low = least > kCredits * largest ? least - kCredits * largest : 0;
  const std::uint64_t high = most + kCredits * largest;
  const std::uint64_t fair = std::clamp(now_served, low, high);
  const std::uint64_t own = mine_.served.load(kRelaxed);
  mine_.served.store(fair >= now_served ? own + (fair - now_served) : own - std::min(own, now_served - fair), kRelaxed);
}

void Board::rests() {
  wants_ = false;
  urgency_ = kNobody;
  floor_left_ = 0;
  waits_from_ = kNobody;
  contended_ = false;
  looked_at_ = TimePoint::min();
  // It is not asked for: its lease ends now. What its job was served stays.
  if (mine_.asked_at.load(kRelaxed) != 0) mine_.asked_at.store(1, kRelaxed);
}

void Board::took_line(std::uint64_t bytes, TimePoint now) {
  if (options_.bytes_per_second == 0) return;
  const std::int64_t takes = time_of(bytes, options_.bytes_per_second).count();
  std::int64_t seen = state_.line_free_at.load(kRelaxed);
  // A clock that ran ahead, of a process that died or had another idea of the line, holds up nobody.
  const auto next = [&] {
    const bool sane = seen - ns(now) < Duration(std::chrono::seconds(1)).count();
    return std::max(sane ? seen : 0, ns(now) - slack_.count()) + takes;
  };
  while (!state_.line_free_at.compare_exchange_weak(seen, next(), kRelaxed)) {
  }
}

void Board::sent_bulk(std::uint64_t bytes) {
  mine_.served.fetch_add(bytes / options_.weight, kRelaxed);
  const std::uint64_t before = state_.bulk.fetch_add(bytes, kRelaxed);
  if (floor_left_ > 0) {
    floor_left_ -= std::min(floor_left_, bytes);
    if (floor_left_ == 0) looked_at_ = TimePoint::min();
  }
  bulk_seen_ = before + bytes;
}

void Board::saw_mouse(TimePoint now) { state_.mouse_at.store(ns(now), kRelaxed); }

TimePoint Board::mouse_at() const { return TimePoint(Duration(state_.mouse_at.load(kRelaxed))); }

TimePoint Board::line_free_at() const { return TimePoint(Duration(state_.line_free_at.load(kRelaxed))); }

std::uint32_t Board::waits_from(TimePoint now) {
  if (!wants_ || options_.bytes_per_second == 0) return kNobody;
  mine_.asked_at.store(std::max<std::int64_t>(ns(now), 1), kRelaxed);
  if (looked_at_ == TimePoint::min() || now - looked_at_ >= (contended_ ? kLook : kLookAlone)) look(now);
  return floor_left_ > 0 ? kNobody : waits_from_;
}

void Board::look(TimePoint now) {
  looked_at_ = now;
  waits_from_ = kNobody;
  contended_ = false;
  const std::int64_t fresh = ns(now - lease_);
  const std::uint64_t own_served = served_by(options_.job);
  std::uint64_t least = own_served;
  std::uint64_t credit = mine_.largest.load(kRelaxed);
  std::uint32_t others = 0;
  std::array<Standing, BoardState::kSlots> same;  // urgency, other jobs
  std::size_t count = 0;
  for (const BoardSlot& slot : slots()) {
    if (&slot == &mine_ || slot.asked_at.load(kRelaxed) < fresh) continue;
    contended_ = true;
    ++others;
    const std::uint32_t urgency = slot.urgency.load(kRelaxed);
    const std::uint32_t job = slot.job.load(kRelaxed);
    if (urgency < urgency_) waits_from_ = std::min(waits_from_, urgency + 1);
    if (urgency != urgency_ || job == options_.job) continue;
    same[count] = {served_by(job), slot.left.load(kRelaxed), job};
    least = std::min(least, same[count].served);
    credit = std::max(credit, slot.largest.load(kRelaxed));
    ++count;
  }
  credit = std::max(std::min(credit, longest_turn_), options_.quantum);
  const auto round = [&](std::uint64_t served) { return (served - least) / credit; };
  for (std::size_t i = 0; i < count; ++i) {
    const Standing& other = same[i];
    const auto mine = std::tuple(round(own_served), mine_.left.load(kRelaxed), options_.job);
    if (std::tuple(round(other.served), other.left, other.job) < mine) waits_from_ = std::min(waits_from_, urgency_);
  }
  // Others had floor_turns quanta for each of them since this process sent: now one is its own.
  const std::uint64_t missed = state_.bulk.load(kRelaxed) - bulk_seen_;
  if (waits_from_ <= urgency_ && options_.floor_turns > 0 &&
      missed >= std::uint64_t{options_.floor_turns} * options_.quantum * others) {
    floor_left_ = options_.quantum;
  }
}

}  // namespace clustar::coflow::enforce
