// What the measured loops are made of. Part of driver.cc and mixed.cc only.
#pragma once

#include <fmt/format.h>
#include <sched.h>
#include <time.h>

#include <array>

#include "bench/perf/driver.h"

namespace clustar::bench::perf {

// NCCL reads the size of a receive only.
enum class Kind : std::uint8_t { kSend, kReceive };

// What to do when nothing moved, and for how long.
class Driver::Idle {
 public:
  Idle(bool spin, std::chrono::milliseconds stall, std::atomic<std::uint64_t>& progress)
      : spin_(spin), stall_(stall), progress_(progress) {}

  void moved() {
    progress_.store(progress_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    turns_ = 0;
  }
  Result<void> wait() {
    if (turns_++ == 0) since_ = Clock::now();
    if (spin_) {
      sched_yield();
    } else {
      const timespec pause{0, 20'000};
      nanosleep(&pause, nullptr);
    }
    // The clock is read rarely: a spinning driver turns here millions of times a second.
    if ((turns_ % (spin_ ? 4096 : 64)) == 0 && Clock::now() - since_ > stall_) {
      return fail(ErrorCode::kRemote,
                  fmt::format("nothing moved for {} s (--timeout)", std::chrono::duration<double>(stall_).count()));
    }
    return {};
  }

 private:
  bool spin_;
  std::chrono::milliseconds stall_;
  std::atomic<std::uint64_t>& progress_;
  std::uint64_t turns_ = 0;
  Clock::time_point since_;
};

// Messages in order, up to kPosted of them under way.
class Driver::Ring {
 public:
  Ring(Driver& driver, Kind kind, std::uint64_t count, std::size_t bytes)
      : driver_(driver), kind_(kind), count_(count), bytes_(bytes) {}

  bool done() const { return tested_ == count_; }
  std::uint64_t completed() const { return tested_; }
  // `post(i)` posts message i. True when something was posted or completed.
  template <class Post>
  Result<bool> post(Post&& post) {
    bool moved = false;
    while (posted_ < count_ && posted_ - tested_ < kPosted) {
      auto request = post(posted_);
      if (!request) return tl::unexpected(request.error());
      if (*request == nullptr) break;
      requests_[posted_++ % kPosted] = *request;
      moved = true;
    }
    return moved;
  }
  Result<bool> test_oldest() {
    if (tested_ == posted_) return false;
    const auto tested = driver_.wire_.test(requests_[tested_ % kPosted]);
    if (!tested) return tl::unexpected(tested.error());
    if (!tested->done) return false;
    if (kind_ == Kind::kReceive) {
      if (auto ok = driver_.check_size(*tested, bytes_); !ok) return tl::unexpected(ok.error());
    }
    ++tested_;
    return true;
  }
  template <class Post>
  Result<void> run(Post&& one, Idle& idle) {
    while (!done()) {
      const auto posted = post(one);
      if (!posted) return tl::unexpected(posted.error());
      const auto tested = test_oldest();
      if (!tested) return tl::unexpected(tested.error());
      if (*posted || *tested) {
        idle.moved();
      } else if (auto ok = idle.wait(); !ok) {
        return ok;
      }
    }
    return {};
  }

 private:
  Driver& driver_;
  Kind kind_;
  std::uint64_t count_;
  std::size_t bytes_;
  std::uint64_t posted_ = 0;
  std::uint64_t tested_ = 0;
  std::array<void*, kPosted> requests_{};
};

}  // namespace clustar::bench::perf
