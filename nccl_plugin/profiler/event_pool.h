// Where the profiler keeps events, and what it gives NCCL as their handles. No lock, no allocation, any thread.
//
//   handle  63 mark 52 | 51 kind 49 | 48 captured | 47 slot 45 | 44 turn 36 | 35 index 22 | 21 generation 0
//
// A handle is no pointer, so that one which NCCL hands back too late, twice or from another process is recognised. The
// mark's top bit is set, which no address of a process has on x86-64 and arm64.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace clustar::nccl_plugin {

enum class HandleKind : std::uint8_t {
  kNone = 0,
  kContext = 1,
  kCollective = 2,
  kOperation = 3,
  kStep = 4,
  kOther = 5,  // kept for the chained profiler only
  kApi = 6,    // names no object: it carries `captured` and nothing else
};

struct EventHandle {
  static constexpr std::uint32_t kGenerationMask = (1u << 22) - 1;
  static constexpr std::uint32_t kMaxIndex = (1u << 14) - 1;
  static constexpr std::uint32_t kTurnMask = (1u << 9) - 1;

  HandleKind kind = HandleKind::kNone;
  bool captured = false;         // of a collective's API call: a CUDA graph captured it
  std::uint32_t index = 0;       // in the pool of its kind
  std::uint32_t generation = 0;  // of the object there
  std::uint32_t slot = 0;        // steps: which of the operation's, 0 .. 7
  std::uint32_t turn = 0;        // steps: generation of that slot

  // `mark` of this process, 12 bits.
  void* encode(std::uint32_t mark) const {
    const std::uint64_t bits = std::uint64_t{mark} << 52 | std::uint64_t{static_cast<std::uint8_t>(kind)} << 49 |
                               std::uint64_t{captured} << 48 | std::uint64_t{slot} << 45 | std::uint64_t{turn} << 36 |
                               std::uint64_t{index} << 22 | generation;
    return reinterpret_cast<void*>(bits);
  }
  // kNone: not of this process.
  static EventHandle decode(const void* handle, std::uint32_t mark) {
    const auto bits = reinterpret_cast<std::uint64_t>(handle);
    EventHandle out;
    if (bits >> 52 != mark) return out;
    out.kind = static_cast<HandleKind>(bits >> 49 & 7);
    out.captured = (bits >> 48 & 1) != 0;
    out.slot = static_cast<std::uint32_t>(bits >> 45 & 7);
    out.turn = static_cast<std::uint32_t>(bits >> 36 & kTurnMask);
    out.index = static_cast<std::uint32_t>(bits >> 22 & kMaxIndex);
    out.generation = static_cast<std::uint32_t>(bits & kGenerationMask);
    return out;
  }
};
static_assert(sizeof(void*) == sizeof(std::uint64_t));

// Life of one object in a single atomic word, so that each change is seen whole:
//
//   55 generation 34 | 33 live | 32 stopped | 31 children 16 | 15 readers 0
//
// Claimed (not live, one reader: the claimer) -> live -> ended (stopped, no children) -> claimed by the next. The
// thread that reads or changes the object holds a reader, which keeps it from being claimed; what an object holds is
// written while claimed only.
class ObjectWord {
 public:
  enum class Stop : std::uint8_t { kStale, kStopped, kEnded };

  bool claim() {
    std::uint64_t word = word_.load(std::memory_order_relaxed);
    if (readers(word) != 0 || ((word & kLive) != 0 && !ended(word))) return false;
    const std::uint64_t next = (word >> kGenerationShift) + 1;
    return word_.compare_exchange_strong(word, (next & EventHandle::kGenerationMask) << kGenerationShift | 1,
                                         std::memory_order_acquire, std::memory_order_relaxed);
  }
  void publish() { word_.fetch_add(kLive - 1, std::memory_order_release); }
  void abandon() { word_.fetch_sub(1, std::memory_order_release); }

  // Takes a reader. `even_ended`: also of an object that ended and whose place nobody took yet.
  bool acquire(std::uint32_t generation, bool even_ended) {
    std::uint64_t word = word_.load(std::memory_order_relaxed);
    do {
      if (!names(word, generation) || (ended(word) && !even_ended) || readers(word) == kReaders) return false;
    } while (!word_.compare_exchange_weak(word, word + 1, std::memory_order_acquire, std::memory_order_relaxed));
    return true;
  }
  void release() { word_.fetch_sub(1, std::memory_order_release); }

  // The caller of these holds a reader.
  bool add_child(std::uint32_t generation) {
    std::uint64_t word = word_.load(std::memory_order_relaxed);
    do {
      if (!names(word, generation) || (word & kChildren) == kChildren) return false;
    } while (!word_.compare_exchange_weak(word, word + kChild, std::memory_order_relaxed));
    return true;
  }
  // Whether the object ended with this child.
  bool drop_child(std::uint32_t generation) {
    std::uint64_t word = word_.load(std::memory_order_relaxed);
    do {
      if (!names(word, generation) || (word & kChildren) == 0) return false;
    } while (!word_.compare_exchange_weak(word, word - kChild, std::memory_order_relaxed));
    return ended(word - kChild);
  }
  Stop stop(std::uint32_t generation) {
    std::uint64_t word = word_.load(std::memory_order_relaxed);
    do {
      if (!names(word, generation) || (word & kStopped) != 0) return Stop::kStale;
    } while (!word_.compare_exchange_weak(word, word | kStopped, std::memory_order_relaxed));
    return ended(word | kStopped) ? Stop::kEnded : Stop::kStopped;
  }
  // Whatever still holds the object, its handle names nothing from here on.
  void discard(std::uint32_t generation) {
    std::uint64_t word = word_.load(std::memory_order_relaxed);
    while (names(word, generation) &&
           !word_.compare_exchange_weak(word, word & ~(kLive | kStopped | kChildren), std::memory_order_relaxed)) {
    }
  }

  bool alive() const {
    const std::uint64_t word = word_.load(std::memory_order_relaxed);
    return (word & kLive) != 0 && !ended(word);
  }
  std::uint32_t generation() const {
    return static_cast<std::uint32_t>(word_.load(std::memory_order_relaxed) >> kGenerationShift);
  }
  std::uint32_t reader_count() const { return readers(word_.load(std::memory_order_acquire)); }

 private:
  static constexpr std::uint64_t kReaders = 0xffff;
  static constexpr std::uint64_t kChild = 1ull << 16;
  static constexpr std::uint64_t kChildren = 0xffffull << 16;
  static constexpr std::uint64_t kStopped = 1ull << 32;
  static constexpr std::uint64_t kLive = 1ull << 33;
  static constexpr int kGenerationShift = 34;

  static std::uint32_t readers(std::uint64_t word) { return static_cast<std::uint32_t>(word & kReaders); }
  static bool ended(std::uint64_t word) { return (word & kStopped) != 0 && (word & kChildren) == 0; }
  static bool names(std::uint64_t word, std::uint32_t generation) {
    return (word & kLive) != 0 && word >> kGenerationShift == generation;
  }

  std::atomic<std::uint64_t> word_{0};
};

// Objects of one kind, taken in turn, so that an ended one stays readable for as long as possible: NCCL stops a
// collective when its operations are handed to the proxy, and the proxy starts them when it comes to them.
template <class Object, std::size_t kCapacity>
class EventPool {
 public:
  static_assert(kCapacity <= EventHandle::kMaxIndex + 1);
  struct Place {
    std::uint32_t index = 0;
    std::uint32_t generation = 0;
    Object* object = nullptr;
  };

  // Uses the first `limit` places, 1 .. kCapacity.
  explicit EventPool(std::uint32_t limit) : limit_(std::clamp<std::uint32_t>(limit, 1, kCapacity)) {}

  // The caller fills the object, then publishes or abandons it. nullopt: the next kProbes places are all taken.
  std::optional<Place> claim() {
    for (std::uint32_t probe = 0; probe < std::min(limit_, kProbes); ++probe) {
      const std::uint32_t index = next_.fetch_add(1, std::memory_order_relaxed) % limit_;
      if (slots_[index].word.claim()) return Place{index, slots_[index].word.generation(), &slots_[index].object};
    }
    return std::nullopt;
  }
  ObjectWord* word(std::uint32_t index) { return index < limit_ ? &slots_[index].word : nullptr; }
  // Takes a reader: the caller releases it. Null: the handle names nothing here.
  Object* acquire(const EventHandle& handle, bool even_ended = false) {
    ObjectWord* const at = word(handle.index);
    return at != nullptr && at->acquire(handle.generation, even_ended) ? &slots_[handle.index].object : nullptr;
  }
  void release(const EventHandle& handle) { slots_[handle.index].word.release(); }

  // Discards what `condition(object)` names; what is claimed meanwhile may escape.
  template <class Condition>
  void discard_if(const Condition& condition) {
    for (std::uint32_t index = 0; index < limit_; ++index) {
      ObjectWord& at = slots_[index].word;
      const std::uint32_t generation = at.generation();
      if (!at.acquire(generation, true)) continue;
      if (condition(slots_[index].object)) at.discard(generation);
      at.release();
    }
  }
  std::uint64_t alive() const {
    std::uint64_t sum = 0;
    for (std::uint32_t index = 0; index < limit_; ++index) sum += slots_[index].word.alive() ? 1 : 0;
    return sum;
  }

 private:
  // A bound for the time of one start: places in turn are the oldest, so that more of them are as unlikely to be free.
  static constexpr std::uint32_t kProbes = 64;
  struct alignas(64) Slot {
    ObjectWord word;
    Object object;
  };

  const std::uint32_t limit_;
  alignas(64) std::atomic<std::uint32_t> next_{0};
  std::array<Slot, kCapacity> slots_;
};

}  // namespace clustar::nccl_plugin
