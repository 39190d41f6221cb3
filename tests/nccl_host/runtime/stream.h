#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace nccl_host {

// Work in order on a thread of its own, as a CUDA stream. Thread-safe.
class Stream {
 public:
  Stream();
  // Ends when what was added is done.
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // The number that Done and Wait know this work by; work is numbered from 1.
  uint64_t Add(std::function<void()> work);
  bool Done(uint64_t number) const;
  void Wait(uint64_t number) const;
  bool Idle() const;
  void Synchronize() const;

 private:
  void Run();

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  uint64_t added_ = 0;
  uint64_t done_ = 0;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace nccl_host
