#include "coflow/enforce/host_policy.h"

#include <algorithm>
#include <utility>

#include "coflow/enforce/push.h"

namespace clustar::coflow::enforce {

using transport::Flow;
using transport::Urgency;

namespace {

// What mice may be ahead of their share: barriers and small collectives come in bursts.
constexpr std::uint64_t kMouseBurst = 1024 * 1024;
constexpr std::uint64_t kMouseAgain = 64 * 1024;  // that they must have to go first again
// Unidentified messages that follow one another so fast are one coflow of unknown size.
constexpr Duration kLongestPeriod = std::chrono::minutes(10), kLongestHold = std::chrono::seconds(10);
// What a capped class may be behind its cap, so that its bytes leave in bursts that are worth a look.
constexpr Duration kCapBurst = std::chrono::milliseconds(1);
constexpr Duration kBurstGap = std::chrono::milliseconds(10);

}  // namespace

HostPolicy::HostPolicy(const HostPolicyOptions& options, std::unique_ptr<Board> board,
                       std::shared_ptr<control::ClassPlaces> places)
    : options_(options), board_(std::move(board)), places_(std::move(places)), mouse_credit_(kMouseBurst) {}

bool HostPolicy::is_mouse(const Flow& flow) const {
  if (flow.urgency == Urgency::kBackground) return false;
  if (flow.key.coflow == 0) return flow.key.small;
  return flow.coflow_bytes > 0 && flow.coflow_bytes <= options_.mouse_bytes;
}

std::uint64_t HostPolicy::size_level(const Flow& flow) const {
  if (!options_.by_size) return 0;
  if (flow.coflow_bytes > 0) return SizeLevels::of_size(flow.coflow_bytes);
  return levels_.of_attained(flow.key.coflow == 0 ? states_[flow.id].attained : flow.coflow_sent);
}

std::uint64_t HostPolicy::order_level(const Flow& flow) const {
  const Iterations::Id communicator = states_[flow.id].communicator;
  const auto level = communicator == Iterations::kNone ? std::nullopt : iteration_level_[communicator];
  return level ? *level : size_level(flow);
}

transport::SendPolicy::Turn HostPolicy::turn(const Flow& flow, TimePoint) {
  const bool mouse = states_[flow.id].mouse;
  if (mouse && !mice_policed_) return {};
  const TimePoint not_before = not_before_of(states_[flow.id]);
  if (flow.id == promoted_) return {.rank = kBand, .level = 1, .not_before = not_before};
  const std::uint64_t rank = 2 * kBand + static_cast<std::uint64_t>(flow.urgency) * kUrgency;
  // Credit and DSCP know 16 levels: mice, a floor's turn, then those of bulk, by the coflow's size: switches know
  // nothing of iterations.
  const std::uint64_t level = mouse ? kPoliced : size_level(flow);
  const std::uint64_t size = level == 0 ? 0 : std::min((level - 1) / 16, kLargest);
  const State& one = states_[flow.id];
  if (const auto place = place_of(one); place && !mouse) {
    const std::uint64_t told = one.record == nullptr ? size : one.record->level.load(std::memory_order_relaxed);
    return {.rank = rank + *place, .level = level_of(flow.urgency, std::min(told, kLargest)), .not_before = not_before};
  }
  const IterationForecast& iteration = one.iteration;
  const bool known = options_.push && !mouse && iteration.bytes > 0;
  return {.rank = rank + (mouse ? kPoliced : order_level(flow)),
          .level = level_of(flow.urgency, size),
          .push = known ? push_of(flow.remaining() + iteration.to_come, iteration.bytes) : Turn{}.push};
}

void HostPolicy::on_queued(const Flow& flow, std::uint64_t bytes, TimePoint now) {
  if (flow.id >= states_.size()) states_.resize(flow.id + 1);
  State& one = states_[flow.id];
  if (!one.waits) begin(flow, now);
  one.waits = one.waits || bytes > 0;
  one.queued += bytes;
  if (longest_ != latest_) shared_until_ = now + options_.mixed_for;
  if (one.mouse) mice_until_ = now + options_.mixed_for;
  if (one.mouse) {
    if (board_ != nullptr) board_->saw_mouse(now);
    if (mice_policed_) refill();
    if (mice_policed_ && !bulk_waits(now)) police(false);
    return;
  }
  classes_[one.urgency].queued += bytes;
  count_queued(one, bytes);
  tell_record(flow);
  tell_board(flow, now);
}

void HostPolicy::begin(const Flow& flow, TimePoint now) {
  State& one = states_[flow.id];
  const bool identified = flow.key.coflow != 0;
  const bool another = one.coflow != flow.key.coflow;
  if (another || (!identified && now - one.left_at > kBurstGap)) {
    levels_.saw(identified ? flow.coflow_bytes : one.attained);
    one.attained = 0;
    one.coflow = flow.key.coflow;
  }
  one.mouse = is_mouse(flow);
  one.urgency = static_cast<std::uint8_t>(flow.urgency);
  if (another) foresee(flow, now);
  if (places_ != nullptr && !one.mouse) open_record(flow, now);
  if (flow.queued == 0 || one.mouse) return;
  append(flow.id);
  if (one.communicator != Iterations::kNone) iterations_.sends(one.communicator);
}

// Mice are left out: they are no part of the bytes, and come now and then (losses to print, barriers).
void HostPolicy::foresee(const Flow& flow, TimePoint now) {
  State& one = states_[flow.id];
  one.communicator = Iterations::kNone;
  one.iteration = {};
  if (!options_.by_size || one.mouse || !flow.identity.known || flow.coflow_bytes == 0) return;
  one.communicator = iterations_.find(flow.identity.communicator, now);
  if (one.communicator == Iterations::kNone) return;
  one.iteration = iterations_.begins(one.communicator, flow.identity, flow.key.peer, flow.coflow_bytes, now);
  const bool known = one.iteration.bytes > 0;
  set_iteration_left(one.communicator, known ? one.iteration.to_come + flow.coflow_bytes : 0);
}

void HostPolicy::set_iteration_left(Iterations::Id communicator, std::uint64_t left) {
  if (communicator >= iteration_level_.size()) iteration_level_.resize(communicator + 1);
  const auto level = left > 0 ? std::optional(SizeLevels::of_size(left)) : std::nullopt;
  // Within a level nobody's place is another, and each that is asked costs a search.
  if (std::exchange(iteration_level_[communicator], level) == level) return;
  for (std::uint32_t id = longest_; id != kNone; id = states_[id].later) {
    if (states_[id].communicator == communicator) told_.push_back(id);
  }
}

void HostPolicy::end(std::uint32_t id, TimePoint now) {
  State& one = states_[id];
  one.waits = false;
  one.left_at = now;
  if (one.mouse) return;
  if (longest_ != latest_) shared_until_ = now + options_.mixed_for;
  take_out(id);
  if (one.communicator != Iterations::kNone) iterations_.rests(one.communicator, now);
  if (id == promoted_) promoted_ = kNone;
}

void HostPolicy::on_sent(const Flow& flow, std::uint64_t bytes, TimePoint now) {
  if (board_ != nullptr) board_->took_line(bytes, now);
  State& one = states_[flow.id];
  one.queued -= bytes;
  if (one.mouse) {
    count_mouse(bytes, now);
    if (one.queued == 0 && one.waits) end(flow.id, now);
    return;
  }
  if (one.coflow == 0) one.attained += bytes;
  classes_[one.urgency].queued -= bytes;
  classes_[one.urgency].passed = 0;
  for (std::size_t urgent = 0; urgent < one.urgency; ++urgent) classes_[urgent].passed += bytes;
  count_bulk(flow, bytes);
  count_left(one, bytes, bytes);
  count_capped(flow.id, bytes, now);
  if (one.queued == 0 && one.waits) end(flow.id, now);
  tell_record(flow);
  tell_board(flow, now);
}

void HostPolicy::count_mouse(std::uint64_t bytes, TimePoint now) {
  counters_.mice += bytes;
  if (mice_policed_) counters_.policed += bytes;
  refill();
  if (!bulk_waits(now)) return police(false);  // they are in nobody's way
  mouse_credit_ -= std::min(mouse_credit_, bytes);
  if (mouse_credit_ == 0) police(true);
}

// By what was sent of bulk, here and by the NIC's other processes.
void HostPolicy::refill() {
  const std::uint64_t bulk = board_ != nullptr ? board_->bulk() : counters_.bulk;
  const std::uint64_t more = (bulk - std::exchange(bulk_refilled_, bulk)) / (options_.mouse_share - 1);
  mouse_credit_ = std::min(kMouseBurst, mouse_credit_ + more);
  if (mouse_credit_ >= kMouseAgain) police(false);
}

bool HostPolicy::bulk_waits(TimePoint now) const {
  const auto waits = [](const Class& one) { return one.queued > 0; };
  return std::any_of(classes_.begin(), classes_.end(), waits) || (board_ != nullptr && board_->bulk_waits(now));
}

void HostPolicy::police(bool yes) {
  if (yes != mice_policed_) ++version_;  // mice that wait have another rank
  mice_policed_ = yes;
}

void HostPolicy::count_bulk(const Flow& flow, std::uint64_t bytes) {
  counters_.bulk += bytes;
  if (board_ != nullptr) board_->sent_bulk(bytes);
  if (mice_policed_) refill();
  if (flow.id == promoted_) {
    promoted_left_ -= std::min(promoted_left_, bytes);
    if (promoted_left_ == 0) promoted_ = kNone;  // its turn is asked for when this returns
  }
  if (latest_ != flow.id && states_[flow.id].waits) {
    take_out(flow.id);
    append(flow.id);
  }
  since_floor_ += bytes;
  if (options_.floor_turns > 0 && since_floor_ >= options_.floor_turns * options_.quantum) give_floor();
}

void HostPolicy::give_floor() {
  since_floor_ = 0;
  if (longest_ == latest_) return;
  if (promoted_ != kNone) {
    // It had its turn and could not send: its receiver does not take anything. The next one, then.
    told_.push_back(promoted_);
    take_out(promoted_);
    append(promoted_);
  }
  promoted_ = longest_;
  promoted_left_ = options_.quantum;
  told_.push_back(promoted_);
  ++counters_.floors;
}

void HostPolicy::on_finished(const Flow& flow, std::uint64_t unsent, TimePoint now) {
  State& one = states_[flow.id];
  one.queued -= unsent;
  if (!one.mouse) {
    classes_[one.urgency].queued -= unsent;
    count_left(one, unsent, 0);
  }
  if (one.queued > 0 || !one.waits) return;
  end(flow.id, now);
  if (!one.mouse) tell_board(flow, now);
}

std::optional<std::uint32_t> HostPolicy::changed(TimePoint) {
  if (told_.empty()) return std::nullopt;
  const std::uint32_t id = told_.back();
  told_.pop_back();
  return id;
}

void HostPolicy::tell_board(const Flow& flow, TimePoint now) {
  if (board_ == nullptr) return;
  Class& own = classes_[static_cast<std::size_t>(flow.urgency)];
  const IterationForecast& iteration = states_[flow.id].iteration;
  own.left = flow.remaining() + iteration.to_come;
  // A floor's turn says nothing of who is to go before whom.
  if (flow.id != promoted_) {
    const auto place = place_of(states_[flow.id]);
    own.place = place ? *place + 1 : 0;
  }
  own.in_all = std::max(iteration.bytes, flow.coflow_bytes > 0 ? flow.coflow_bytes : flow.queued);
  // The most urgent that can be sent; what is blocked, by a receiver that takes nothing, claims no line.
  std::uint32_t top = Board::kNobody;
  for (std::uint32_t urgency = Board::kNobody; urgency-- > 0;) {
    const bool sends = classes_[urgency].passed <= 2 * options_.quantum;
    if (classes_[urgency].queued > 0 && (sends || top == Board::kNobody)) top = urgency;
  }
  if (top == Board::kNobody) return board_->rests();
  board_->wants(top, classes_[top].left, classes_[top].in_all, classes_[top].place, now);
}

void HostPolicy::open_record(const Flow& flow, TimePoint now) {
  State& one = states_[flow.id];
  // Of an iteration is known what the whole communicator sends in it, so that is the class.
  const control::ClassKey key{.job = options_.job,
                              .group = flow.identity.known ? flow.identity.communicator : flow.key.coflow,
                              .function = control::kUnknownFunction};
  if (one.record == nullptr || one.record->key != key || one.record->retired.load(std::memory_order_acquire)) {
    one.record = places_->open(key);
    one.to_peer = nullptr;
  }
  if (one.record != nullptr && (one.to_peer == nullptr || one.peer != flow.key.peer)) {
    one.peer = flow.key.peer;
    one.to_peer = &one.record->queued_to(one.peer);
  }
  if (one.record == nullptr) return;
  const bool again = one.iteration.bytes > 0;
  one.record->urgency.store(one.urgency, std::memory_order_relaxed);
  one.record->repeats.store(again, std::memory_order_relaxed);
  one.record->in_all.store(again ? one.iteration.bytes : flow.coflow_bytes, std::memory_order_relaxed);
  if (again && one.iteration.to_come + flow.coflow_bytes >= one.iteration.bytes)
    begin_iteration(*one.record, flow, now);
}

// Flows of a coflow begin one after the other.
void HostPolicy::begin_iteration(control::ClassRecord& record, const Flow& flow, TimePoint now) {
  if (std::exchange(record.first_coflow, flow.key.coflow) == flow.key.coflow) return;
  const std::int64_t at = now.time_since_epoch().count();
  // Without what it was held back: that is no part of its period.
  const TimePoint began(Duration(record.began_at.exchange(at, std::memory_order_relaxed)));
  const Duration since = now - std::max(began, record.held_until);
  const bool plausible = since > Duration(0) && since < kLongestPeriod;
  const auto period = plausible ? static_cast<std::uint32_t>(since / std::chrono::microseconds(1)) : 0;
  record.period_us.store(period, std::memory_order_relaxed);
  const std::chrono::microseconds hold(record.hold_us.exchange(0, std::memory_order_relaxed));
  // A coordinator may be wrong: no longer than the iteration that it has seen, and than kLongestHold.
  if (hold.count() > 0 && hold.count() <= period && hold <= kLongestHold) record.held_until = now + hold;
}

void HostPolicy::count_queued(State& one, std::uint64_t bytes) {
  if (one.to_peer == nullptr) return;
  one.to_peer->store(one.to_peer->load(std::memory_order_relaxed) + bytes, std::memory_order_relaxed);
}

void HostPolicy::count_left(State& one, std::uint64_t bytes, std::uint64_t sent) {
  if (one.to_peer == nullptr) return;
  one.to_peer->store(one.to_peer->load(std::memory_order_relaxed) - bytes, std::memory_order_relaxed);
  std::atomic<std::uint64_t>& attained = one.record->attained;
  attained.store(attained.load(std::memory_order_relaxed) + sent, std::memory_order_relaxed);
}

void HostPolicy::count_capped(std::uint32_t id, std::uint64_t bytes, TimePoint now) {
  control::ClassRecord* const record = states_[id].record.get();
  const std::uint64_t cap = record == nullptr ? 0 : record->cap.load(std::memory_order_relaxed);
  if (cap == 0) return;
  const Duration takes(static_cast<Duration::rep>(static_cast<double>(bytes) * 1e9 / static_cast<double>(cap)));
  record->capped_until = std::max(record->capped_until, now - kCapBurst) + std::min(takes, kLongestHold);
  // The flow's own turn is asked for when this returns.
  for (std::uint32_t other = longest_; other != kNone; other = states_[other].later) {
    if (other != id && states_[other].record.get() == record) told_.push_back(other);
  }
}

TimePoint HostPolicy::not_before_of(const State& one) const {
  if (one.record == nullptr || places_ == nullptr || !places_->ordered()) return TimePoint::min();
  const bool capped = one.record->cap.load(std::memory_order_relaxed) > 0;
  return std::max(one.record->held_until, capped ? one.record->capped_until : TimePoint::min());
}

void HostPolicy::tell_record(const Flow& flow) {
  const State& one = states_[flow.id];
  if (one.record == nullptr) return;
  one.record->left.store(flow.remaining() + one.iteration.to_come, std::memory_order_relaxed);
}

std::optional<std::uint64_t> HostPolicy::place_of(const State& one) const {
  if (places_ == nullptr || !places_->ordered()) return std::nullopt;
  // More classes than are reported go last.
  if (one.record == nullptr) return std::uint64_t{1} << 32;
  return one.record->place.load(std::memory_order_relaxed);
}

transport::SendPolicy::Gate HostPolicy::gate(TimePoint now) {
  if (board_ == nullptr || !options_.knows_line) return {};
  const std::uint32_t waits_from = board_->waits_from(now);
  // The page is other processes' memory, too: what they say is no index before it was looked at.
  const std::uint32_t other = board_->most_urgent_other();
  if (other < others_until_.size()) others_until_[other] = now + options_.mixed_for;
  if (board_->has_floor()) return {};
  const bool contended = most_urgent_lately(now) < Board::kNobody;
  if (!contended && now - options_.mixed_for >= board_->mouse_at(now)) return {};
  const TimePoint free_at = board_->line_free_at(now);
  // A process that goes before all others hands on what the line takes until its next poll: nobody uses it meanwhile.
  const Duration burst = run_ahead(now) == RunAhead::kFree ? std::max(options_.burst, board_->gap()) : options_.burst;
  if (const TimePoint paced = free_at - burst; paced > now) {
    ++counters_.shut;
    return {kBand, paced};
  }
  if (const TimePoint idle = free_at + board_->grace(); waits_from != Board::kNobody && idle > now) {
    ++counters_.shut;
    return {2 * kBand + waits_from * kUrgency, idle};
  }
  return {};
}

transport::SendPolicy::RunAhead HostPolicy::run_ahead(TimePoint now) const {
  const bool mice = now < mice_until_ || (board_ != nullptr && now - options_.mixed_for < board_->mouse_at(now));
  // As urgent as the bulk here is at this moment, which the bulk before it may not have been.
  const std::uint32_t other = most_urgent_lately(now), own = board_ == nullptr ? Board::kNobody : board_->urgency();
  if (mice || other < own) return RunAhead::kNo;
  const bool equal = other == own && other < Board::kNobody;
  return equal || longest_ != latest_ || now < shared_until_ ? RunAhead::kFill : RunAhead::kFree;
}

std::uint32_t HostPolicy::most_urgent_lately(TimePoint now) const {
  std::uint32_t urgency = 0;
  while (urgency < Board::kNobody && now >= others_until_[urgency]) ++urgency;
  return urgency;
}

void HostPolicy::append(std::uint32_t id) {
  states_[id].earlier = latest_;
  states_[id].later = kNone;
  (latest_ == kNone ? longest_ : states_[latest_].later) = id;
  latest_ = id;
}

void HostPolicy::take_out(std::uint32_t id) {
  const State& one = states_[id];
  (one.earlier == kNone ? longest_ : states_[one.earlier].later) = one.later;
  (one.later == kNone ? latest_ : states_[one.later].earlier) = one.earlier;
}

}  // namespace clustar::coflow::enforce
