// The engine's thread: when it works, and how long it sleeps.
#include <algorithm>
#include <thread>

#include "mlt/driver/engine.h"

namespace clustar::mlt::driver {

// With the mutex. A caller that comes seldom does not replace the thread: what comes between two calls would wait.
void Engine::note_caller(TimePoint now) {
  const auto at = now.time_since_epoch().count();
  const bool rare = at - caller_at_.load(std::memory_order_relaxed) > kSilence.count();
  if (rare != rare_.load(std::memory_order_relaxed)) rare_.store(rare, std::memory_order_relaxed);
  caller_at_.store(at, std::memory_order_relaxed);
}

bool Engine::callers_are_silent() const {
  if (rare_.load(std::memory_order_relaxed)) return true;
  const auto now = context_.clock.now().time_since_epoch().count();
  return now - caller_at_.load(std::memory_order_relaxed) > kSilence.count();
}

// Where more threads poll than there are processors, one loses its own in the middle of a turn. The others, which find
// the engine held, would use up their time slices before it goes on.
void Engine::give_way() const {
  const auto now = context_.clock.now().time_since_epoch().count();
  if (now - held_at_.load(std::memory_order_relaxed) > kLongTurn.count()) std::this_thread::yield();
}

void Engine::sleep(std::span<const int> readable, Duration timeout) {
  asleep_.store(true);
  if (!has_posts_.load() && !stop_) waker_.wait(readable, timeout);
  asleep_.store(false);
}

void Engine::wake_thread() {
  if (asleep_.exchange(false)) waker_.wake();
}

Duration Engine::sleep_time() {
  if (lost_) return kLongestSleep;
  const TimePoint now = context_.clock.now();
  const TimePoint next = core_.next_timeout();
  Duration time = next == TimePoint::max() ? kLongestSleep : std::min(next - now, kLongestSleep);
  // Nobody tells when there is room, or what was written.
  const bool blind = held_ahead_ || pending_count_ > 0 || device_->ready_fds().empty() || (writes_ && writes_->busy());
  if (shut_until_ != TimePoint::max()) time = std::min(time, shut_until_ - now);
  if (blind) time = std::min(time, device_->link().blind_sleep());
  return std::max(time, Duration(0));
}

// Awake once per kSilence while callers do the work; when they are silent, whenever something comes or is due.
void Engine::run() {
  TimePoint worked_at{};
  while (!stop_) {
    if (context_.mode == EngineMode::kAuto && !callers_are_silent()) {
      waker_.wait({}, kSilence);
      continue;
    }
    Duration time{};
    bool deaf = false;
    {
      const std::lock_guard lock(mutex_);
      const TimePoint now = context_.clock.now();
      held(now);
      if (turn(now, nullptr)) worked_at = now;
      time = sleep_time();
      if (time > Duration(0)) time = std::min(time, device_->before_sleep());
      // A device that is lost may be readable forever; one whose packets have no place is until there is one.
      deaf = lost_.has_value() || (writes_ && writes_->behind());
    }
    const bool spins = context_.mode == EngineMode::kThread && context_.clock.now() - worked_at < kSpin;
    if (spins) continue;
    sleep(deaf ? std::span<const int>() : device_->ready_fds(), time);
  }
}

}  // namespace clustar::mlt::driver
