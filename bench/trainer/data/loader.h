// Prepares batches ahead of the steps that use them.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "bench/trainer/data/dataset.h"
#include "transport/base/result.h"

namespace clustar::bench::trainer {

inline constexpr std::size_t kDefaultPrefetch = 2;
inline constexpr std::size_t kMaxPrefetch = 1024;

// kDefaultPrefetch where images are decoded or resampled. What is in memory as it is needed takes less time than waking
// a thread, which besides would take a processor from other ranks.
std::size_t usual_prefetch(const Dataset& dataset);

// A queue of what is expected, and a thread that prepares the next batches of it, at most `prefetch` of them beside the
// one in use. Without prefetch there is no thread, and next() prepares: the same batches, with the same bits.
// Thread rule: one caller; the thread is the loader's own, and touches nothing but the data set and the queue.
class Loader {
 public:
  // `dataset` must outlive the loader, and not change.
  Loader(const Dataset& dataset, std::size_t prefetch);
  ~Loader();  // what was not asked for is dropped; waits for the example that is being read
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // The examples of the batch after all that are expected already.
  void expect(std::span<const std::uint32_t> examples);
  // The next expected batch, valid until the next call; at least one has to be expected. An error is the one of
  // gather() for this batch, not for one that was prepared early.
  Result<const Batch*> next();
  // Drops the next expected batch.
  void skip();
  std::size_t prefetch() const { return prefetch_; }
  double waited_s() const { return waited_s_; }  // in next(), over all calls

 private:
  struct Slot {
    std::vector<std::uint32_t> examples;
    Batch batch;
    Result<void> outcome;
  };
  void prepare_ahead();
  static void prepare(const Dataset& dataset, Slot& slot);
  bool has_work() const { return !expected_.empty() && prepared_.size() + (preparing_ ? 1 : 0) < prefetch_; }
  Slot take();

  const Dataset& dataset_;
  const std::size_t prefetch_;
  double waited_s_ = 0;
  Slot current_;

  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_: batches in the order of their turn, first those that are prepared, then the one that is being
  // prepared, then those that are not begun. Their buffers go round.
  std::deque<Slot> prepared_;
  bool preparing_ = false;
  std::deque<std::vector<std::uint32_t>> expected_;
  std::vector<Batch> spare_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace clustar::bench::trainer
