#include "transport/verbs/link.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "transport/io/verbs/completion.h"

namespace clustar::transport::verbs {

Link::Link(Nic& nic, Side side, QueuePairs pairs, net::Socket control, std::string peer)
    : nic_(nic),
      side_(side),
      pairs_(std::move(pairs)),
      control_(std::move(control)),
      peer_(std::move(peer)),
      usable_pairs_(pairs_.size()) {
  const Duration horizon = io::verbs::retry_horizon(nic_.context().settings.retry);
  for (State& state : states_) state.reminder = Reminder(horizon);
}

Link::~Link() {
  if (!closed_ && !failed_) say(Farewell::Kind::kChannel, 0);
}

std::size_t Link::usable_from(std::size_t from) const {
  for (std::size_t i = 0; i < pairs_.size(); ++i) {
    const std::size_t pair = (from + i) % pairs_.size();
    if (usable(pair)) return pair;
  }
  return 0;
}

std::span<const Link::Arrival> Link::poll() {
  arrival_count_ = 0;
  std::array<ibv_wc, kBatch> completions;
  const auto taken = pairs_.poll(completions);
  if (!taken) {
    more_ = false;
    fail_with(ErrorCode::kSystem, taken.error().message);
    return {};
  }
  more_ = *taken == kBatch;
  short_polls_ = more_ ? 0 : short_polls_ + 1;
  for (std::size_t i = 0; i < *taken; ++i) on_completion(completions[i]);
  if (arrival_count_ > 0) ++marks_;
  return std::span<const Arrival>(arrivals_).first(arrival_count_);
}

void Link::on_completion(const ibv_wc& completion) {
  const WorkId id = WorkId::of(completion.wr_id);
  State& state = states_[id.pair];
  if (completion.status == IBV_WC_SUCCESS) {
    // The peer was told that this did not arrive.
    if (id.receive && state.phase == Phase::kTold) return;
    Arrival& arrival = arrivals_[arrival_count_++];
    arrival = {id, 0};
    if (!id.receive) return;
    arrival.immediate = network_order(completion.imm_data);
    ++state.arrived;
    if (++state.receives_taken >= kRepost && usable(id.pair)) repost(id.pair);
    return;
  }
  if (id.receive) state.flushed = true;
  if (!usable(id.pair)) return;
  Error why = pairs_.pair(id.pair).explain(completion);
  // The cause behind the cause, if this end knows it.
  if (const auto link = nic_.link_state_now(pairs_.port(id.pair))) why.message += "; " + *link;
  end_pair(id.pair, why);
}

void Link::repost(std::size_t pair) {
  const std::uint32_t count = std::exchange(states_[pair].receives_taken, 0);
  if (const auto posted = pairs_.post_receives(pair, count); !posted) end_pair(pair, posted.error());
}

void Link::end_pair(std::size_t pair, const Error& why) {
  State& state = states_[pair];
  if (state.phase != Phase::kUsable) return;
  state.phase = Phase::kStopped;
  state.stopped = nic_.context().clock.now();
  pairs_.stop(pair);
  --usable_pairs_;
  nic_.counters().failed_queue_pairs.fetch_add(1, std::memory_order_relaxed);
  if (!first_error_) first_error_ = why;
  if (usable_pairs_ == 0) {
    if (failed_) return tell_failed();
    failed_ = Error{first_error_->code, fmt::format("{} ({} {})", first_error_->message,
                                                    side_ == Side::kSender ? "sending to" : "receiving from", peer_)};
    nic_.context().log.warn(failed_->message);
    tell_failed();
  } else if (!failed_) {
    nic_.context().log.warn(
        fmt::format("{}; {} of {} queue pairs to {} go on", why.message, usable_pairs_, pairs_.size(), peer_));
  }
}

void Link::fail_with(ErrorCode code, const std::string& what) {
  if (!failed_) {
    failed_ = Error{code, fmt::format("verbs: {}: {} {}: {}", nic_.name(),
                                      side_ == Side::kSender ? "sending to" : "receiving from", peer_, what)};
    nic_.context().log.warn(failed_->message);
  }
  for (std::size_t pair = 0; pair < pairs_.size(); ++pair) end_pair(pair, *failed_);
}

bool Link::watch() {
  nic_.watch();
  check_ports();
  const bool silent = check_states();
  tell_stopped();
  read_control();
  return silent;
}

bool Link::check_states() {
  const TimePoint now = nic_.context().clock.now();
  if (marks_ + posts_ != moves_at_check_) {
    moves_at_check_ = marks_ + posts_;
    next_check_ = now + kSilence;
  }
  if (now < next_check_) return false;
  next_check_ = now + kSilence;
  for (std::size_t pair = 0; pair < pairs_.size(); ++pair) {
    const auto state = usable(pair) ? pairs_.pair(pair).state() : Result<ibv_qp_state>(IBV_QPS_RTS);
    if (state && *state != IBV_QPS_ERR && *state != IBV_QPS_SQE) continue;
    end_pair(pair, state ? Error{ErrorCode::kSystem,
                                 fmt::format("verbs: {} queue pair {} to {}: failed without a completion that says "
                                             "why; see the events of the device in this log, and `dmesg`",
                                             nic_.ports()[pairs_.port(pair)].name(), pairs_.pair(pair).number(), peer_)}
                         : state.error());
  }
  return true;
}

bool Link::remind(std::size_t pair, bool open, std::uint32_t acknowledged) {
  if (!usable(pair)) return false;
  Reminder& reminder = states_[pair].reminder;
  const Reminder::Due due = reminder.due(open, acknowledged, nic_.context().clock.now());
  if (due == Reminder::Due::kOverdue) {
    end_pair(pair,
             {ErrorCode::kSystem,
              fmt::format("verbs: {} queue pair {} to {}: the device has neither completed nor failed a write for "
                          "{:.1f} s; see `dmesg`, and its driver's and firmware's versions",
                          nic_.ports()[pairs_.port(pair)].name(), pairs_.pair(pair).number(), peer_,
                          std::chrono::duration<double>(reminder.patience()).count())});
  }
  return due == Reminder::Due::kWrite;
}

void Link::reminded(std::size_t pair, std::uint32_t number) {
  states_[pair].reminder.posted(number, nic_.context().clock.now());
}

void Link::check_ports() {
  for (std::size_t pair = 0; pair < pairs_.size(); ++pair) {
    if (!usable(pair)) continue;
    const auto trouble = nic_.trouble(pairs_.port(pair));
    if (trouble) {
      end_pair(pair, {ErrorCode::kSystem,
                      fmt::format("verbs: queue pair {} to {}: {}", pairs_.pair(pair).number(), peer_, *trouble)});
    }
  }
}

// Only what comes back unused is behind all that arrived. Where it does not come, all completion queues must have been
// found empty since the time was over: this thread may have stood still meanwhile.
bool Link::is_final(State& state) {
  if (side_ == Side::kSender || state.flushed) return true;
  if (state.overdue) return short_polls_ >= kMaxPorts;
  if (nic_.context().clock.now() - state.stopped <= kFlushTimeout) return false;
  state.overdue = true;
  short_polls_ = 0;
  return false;
}

// Nothing is asked of this end any more, so nobody would tell it later; the peer may have no other way to notice.
void Link::tell_failed() {
  if (!closed_) say(Farewell::Kind::kFailed, 0);
}

void Link::tell_stopped() {
  for (std::size_t pair = 0; pair < pairs_.size(); ++pair) {
    State& state = states_[pair];
    if (failed_ || state.phase != Phase::kStopped || !is_final(state)) continue;
    state.phase = Phase::kTold;
    say(Farewell::Kind::kQueuePair, pair);
  }
}

void Link::say(Farewell::Kind kind, std::size_t pair) {
  if (!control_) return;
  Farewell farewell{.kind = kind, .queue_pair = static_cast<std::uint8_t>(pair)};
  for (std::size_t i = 0; i < pairs_.size(); ++i) farewell.arrived[i] = states_[i].arrived;
  std::array<std::byte, Farewell::kSize> bytes;
  farewell.serialize_to(bytes);
  // At most one per queue pair and one at the end: they fit the socket's buffer. If the peer is gone, reading tells.
  net::write_some(control_.fd(), std::span<const std::byte>(bytes));
}

void Link::read_control() {
  while (!closed_) {
    const net::IoResult got = net::read_some(control_.fd(), std::span(heard_).subspan(heard_bytes_));
    if (got.kind == net::IoResult::Kind::kWouldBlock) return;
    if (got.kind == net::IoResult::Kind::kClosed) {
      close("its process ended, or it closed the connection");
      return;
    }
    if (got.kind == net::IoResult::Kind::kError) {
      close("control connection: " + describe_errno(got.error));
      return;
    }
    ++marks_;
    heard_bytes_ += got.bytes;
    if (heard_bytes_ < heard_.size()) continue;
    heard_bytes_ = 0;
    const auto farewell = Farewell::parse(heard_);
    if (!farewell || farewell->queue_pair >= pairs_.size()) {
      fail_with(ErrorCode::kRemote, "the peer said something on the control connection that fits no queue pair");
      return;
    }
    on_farewell(*farewell);
  }
}

void Link::on_farewell(const Farewell& farewell) {
  const bool all = farewell.kind != Farewell::Kind::kQueuePair;
  for (std::size_t pair = 0; pair < pairs_.size(); ++pair) {
    if (!all && pair != farewell.queue_pair) continue;
    if (!states_[pair].peer_arrived) {
      states_[pair].peer_arrived = farewell.arrived[pair];
      states_[pair].exact = !all;
    }
    if (all) continue;
    end_pair(pair, {ErrorCode::kRemote,
                    fmt::format("verbs: {} queue pair {} to {}: the peer's end of it failed, see its log for the cause",
                                nic_.ports()[pairs_.port(pair)].name(), pairs_.pair(pair).number(), peer_)});
  }
  tell_stopped();
  if (farewell.kind == Farewell::Kind::kChannel) close("it closed the channel");
  if (farewell.kind == Farewell::Kind::kFailed) close("its end of the channel failed, see its log for the cause");
}

void Link::close(const std::string& why) {
  closed_ = true;
  why_closed_ = why;
}

std::optional<Link::Drained> Link::take_drained() {
  for (std::size_t pair = 0; pair < pairs_.size(); ++pair) {
    State& state = states_[pair];
    if (state.drained || !state.peer_arrived || (state.phase != Phase::kTold && !closed_)) continue;
    state.drained = true;
    return Drained{pair, *state.peer_arrived, state.exact};
  }
  return std::nullopt;
}

bool Link::undrained() const {
  return std::any_of(states_.begin(), states_.begin() + static_cast<std::ptrdiff_t>(pairs_.size()),
                     [](const State& state) { return state.phase != Phase::kUsable && !state.drained; });
}

}  // namespace clustar::transport::verbs
