// What does not leave: queue pairs that fail and go on, and those that are stopped so that memory is free.
#include <fmt/format.h>

#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "transport/io/verbs/ud_tx.h"

namespace clustar::transport::io::verbs {
namespace {

std::string seconds(Duration duration) {
  return fmt::format("{:g} s", std::chrono::duration<double>(duration).count());
}

}  // namespace

// What cannot be asked for counts as active: patience with the link is the longer one.
bool UdTx::port_active() const {
  const auto port = device_.port(options_.port);
  return !port || port->state == IBV_PORT_ACTIVE;
}

void UdTx::fail_path(PathState& path, const Error& why) {
  if (!path.problem) path.problem = why;
  troubled_ = true;
}

// SoftRoCE fails a queue pair with LOC_QP_OP_ERR for what is sent while its link is down, and so may others by an error
// of their own. What else there is stays an error of the request, or the device.
void UdTx::on_failed(PathState& path, const ibv_wc& completion) {
  ++trouble_.lost;
  const Error why = path.pair.explain(completion);
  if (completion.status == IBV_WC_LOC_QP_OP_ERR || completion.status == IBV_WC_WR_FLUSH_ERR) {
    fail_path(path, why);
  } else if (!lost_) {
    lost_ = why;
  }
}

void UdTx::on_flushed_receive(std::uint8_t path) {
  const std::lock_guard lock(mutex_);
  fail_path(paths_[path],
            {ErrorCode::kSystem, fmt::format("verbs UD: {} queue pair {} stopped receiving",
                                             device_.place(options_.port).to_string(), paths_[path].pair.number())});
}

void UdTx::notice(PathState& path, TimePoint now) {
  const UdCycle::Verdict verdict = path.cycle.on_failure(now, port_active());
  if (verdict != UdCycle::Verdict::kGoesOn) {
    const std::string place = device_.place(options_.port).to_string();
    const std::string since = verdict == UdCycle::Verdict::kPort
                                  ? fmt::format(
                                        "the link of {} is down for more than {}: check the cable, the "
                                        "switch's port, `ip link`, ibv_devinfo",
                                        place, seconds(options_.link_patience))
                                  : fmt::format("it fails again and again, though {} is active", place);
    lost_ = Error{ErrorCode::kSystem, path.problem->message + "; " + since};
    return;
  }
  const auto state = path.pair.state();
  path.sends_only = state && *state == IBV_QPS_SQE;
  // So that all that it has comes back. If that fails it shows by what does not.
  if (!path.sends_only) static_cast<void>(path.pair.to_error());
}

Result<UdTx::Trouble> UdTx::maintain(TimePoint now) {
  const std::lock_guard lock(mutex_);
  // Also where nothing is known to be wrong: who only listens would never look, and a queue pair that failed by what it
  // sent before receives nothing.
  if (troubled_ || next_ != oldest_) static_cast<void>(reap());
  const bool any = std::exchange(troubled_, false);
  for (std::size_t i = 0; any && i < paths_.size() && !lost_; ++i) {
    PathState& path = paths_[i];
    if (path.problem && !path.cycle.down()) {
      notice(path, now);
    } else if (path.problem && !path.batches.empty() && path.cycle.overdue(now)) {
      lost_ = Error{ErrorCode::kSystem, path.problem->message + "; what it was given did not come back within 1 s"};
    } else if (!path.problem && std::exchange(path.sent, false)) {
      path.cycle.on_success(now);
    }
    troubled_ = troubled_ || path.problem || path.cycle.troubled();
  }
  if (lost_) return tl::unexpected(*lost_);
  return trouble_;
}

void UdTx::resume(TimePoint swept, TimePoint now) {
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; troubled_ && i < paths_.size() && !lost_; ++i) {
    PathState& path = paths_[i];
    if (!path.problem || !path.cycle.due(swept) || !path.batches.empty()) continue;
    auto done = path.sends_only ? path.pair.resume_sending() : path.pair.to_reset();
    if (done && !path.sends_only) done = start(path.pair);
    if (!done) {
      path.problem->message += "; " + done.error().message;
      notice(path, now);
      continue;
    }
    path.problem.reset();
    path.sent = false;
    path.cycle.on_resumed(now);
    ++trouble_.restarts;
  }
}

Duration UdTx::until_due() {
  const std::lock_guard lock(mutex_);
  if (next_ != oldest_) static_cast<void>(reap());
  // What is under way may yet fail, and a queue pair that has receives no more.
  if (next_ != oldest_) return UdCycle::kPause;
  for (const PathState& path : paths_) {
    if (path.problem) return UdCycle::kPause / 4;
  }
  return Duration::max();
}

Error UdTx::stuck() const {
  return {
      ErrorCode::kSystem,
      fmt::format("verbs UD: queue pairs {} and its neighbours of {} did not send for 1 s what they were given, and "
                  "were stopped: is the link down, or paused by the switch (PFC counters)?",
                  paths_[0].pair.number(), device_.place(options_.port).to_string())};
}

void UdTx::stop() {
  const bool active = port_active();
  if (active && !lost_) lost_ = stuck();
  // Without a queue pair that can be stopped there is nothing left to try.
  for (PathState& path : paths_) {
    if (!active && path.batches.empty()) continue;
    static_cast<void>(path.pair.to_error());
    fail_path(path, stuck());
  }
}

void UdTx::quiesce() {
  using Clock = std::chrono::steady_clock;
  constexpr auto kPatience = std::chrono::seconds(1);
  const auto begin = Clock::now();
  std::uint64_t target = 0;
  for (bool first = true, stopped = false;; first = false) {
    {
      const std::lock_guard lock(mutex_);
      if (first) target = next_;
      static_cast<void>(reap());  // the next send() tells
      if (oldest_ >= target || given_up_) return;
      const auto waited = Clock::now() - begin;
      if (waited > 2 * kPatience) {
        given_up_ = true;
        if (!lost_) lost_ = stuck();
      }
      if (waited > kPatience && !std::exchange(stopped, true)) stop();
    }
    std::this_thread::yield();
  }
}

}  // namespace clustar::transport::io::verbs
