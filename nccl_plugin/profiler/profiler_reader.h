// How the profiler looks at its objects: readers of a scope, and the word of a step. Part of profiler.cc and
// profiler_stop.cc only.
#pragma once

#include <cstdint>
#include <utility>

#include "nccl_plugin/profiler/profiler.h"

namespace clustar::nccl_plugin {

template <class Pool>
class Profiler::Reader {
 public:
  // False when the handle is not of `kind`, or names nothing.
  Reader(Pool& pool, const EventHandle& handle, HandleKind kind, bool even_ended = false)
      : pool_(pool), handle_(handle), object_(handle.kind == kind ? pool.acquire(handle, even_ended) : nullptr) {}
  ~Reader() {
    if (object_ != nullptr) pool_.release(handle_);
  }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  explicit operator bool() const { return object_ != nullptr; }
  auto& operator*() const { return *object_; }
  auto* operator->() const { return object_; }

 private:
  Pool& pool_;
  const EventHandle handle_;
  decltype(std::declval<Pool&>().acquire(std::declval<EventHandle>())) object_;
};

// A step is one word, so that its slot changes hands in one piece.
struct StepWord {
  enum State : std::uint64_t { kFree = 0, kBuilding = 1, kAlive = 2 };

  static std::uint64_t make(State state, bool in_order, std::uint32_t turn, std::uint32_t step) {
    return state << 62 | std::uint64_t{in_order} << 61 | std::uint64_t{turn} << 32 | step;
  }
  static State state(std::uint64_t word) { return static_cast<State>(word >> 62); }
  static bool in_order(std::uint64_t word) { return (word >> 61 & 1) != 0; }
  static std::uint32_t turn(std::uint64_t word) {
    return static_cast<std::uint32_t>(word >> 32) & EventHandle::kTurnMask;
  }
  static std::uint32_t step(std::uint64_t word) { return static_cast<std::uint32_t>(word); }
  static bool names(std::uint64_t word, std::uint32_t turn_of_handle) {
    return state(word) == kAlive && turn(word) == turn_of_handle;
  }
};

}  // namespace clustar::nccl_plugin
