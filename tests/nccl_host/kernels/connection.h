#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

namespace nccl_host {

// Slots between a kernel and the proxy thread of one peer.
inline constexpr uint64_t kSlots = 8;

// What of NCCL's connection a kernel uses; the words belong to NCCL, and its proxy thread uses them meanwhile.
struct Connection {
  char* buffer = nullptr;
  size_t slot_size = 0;      // of buffer, in bytes
  uint64_t* head = nullptr;  // the receiver's: so many steps are consumed
  uint64_t* tail = nullptr;  // the sender's: so many steps are filled
  void* fifo = nullptr;      // how much each slot holds, told to the proxy; nullptr where there is none
  uint64_t step = 0;
  std::vector<int64_t>* sizes = nullptr;  // where given: what each step sends, for a trace
};

// Thrown by a wait when the communicator was aborted.
struct Aborted {};

template <class T>
T Acquire(const T& word) {
  return std::atomic_ref<T>(const_cast<T&>(word)).load(std::memory_order_acquire);
}

template <class T>
void Release(T& word, T value) {
  std::atomic_ref<T>(word).store(value, std::memory_order_release);
}

// Waits for a condition that another thread makes true, and ends by Aborted when the flag is set.
class Poll {
 public:
  explicit Poll(const uint32_t* abort_flag) : abort_flag_(abort_flag) {}

  template <class Condition>
  void Until(Condition condition) const {
    // More threads than cores wait here: one that polls must not keep the one that it waits for from running. It sleeps
    // for an eighth of the time that it has waited, so that waiting costs little and takes little longer.
    using std::chrono::microseconds;
    constexpr microseconds kLeast{50}, kMost{1000};
    const auto begin = std::chrono::steady_clock::now();
    for (int tries = 0; !condition(); ++tries) {
      if (abort_flag_ && Acquire(*abort_flag_) != 0) throw Aborted();
      const auto waited = std::chrono::duration_cast<microseconds>(std::chrono::steady_clock::now() - begin);
      if (tries < 10)
        std::this_thread::yield();
      else
        std::this_thread::sleep_for(std::clamp(waited / 8, kLeast, kMost));
    }
  }

 private:
  const uint32_t* abort_flag_;
};

}  // namespace nccl_host
