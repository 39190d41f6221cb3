// Floating-point and threading settings of a thread that trains.
#pragma once

namespace clustar::bench::trainer {

// For as long as it lives: oneDNN computes on the calling thread only, and denormal numbers count as zero on it and on
// the threads it starts meanwhile. The momentum of a weight whose gradient stays zero decays into denormals, and
// arithmetic on those is many times slower: a run would become visibly slower from epoch to epoch.
class ComputeThread {
 public:
  ComputeThread();
  ~ComputeThread();
  ComputeThread(const ComputeThread&) = delete;
  ComputeThread& operator=(const ComputeThread&) = delete;

 private:
  unsigned long long before_;  // the floating-point control register
};

}  // namespace clustar::bench::trainer
