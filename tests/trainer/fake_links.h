// Ranks as threads of one process: a communicator and a bootstrap that need no plugin and no socket.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "bench/proxy/bootstrap.h"
#include "bench/proxy/communicator.h"
#include "bench/trainer/proxy_collective.h"

namespace clustar::bench::trainer {

// What the ranks share. Sums in rank order, so every rank gets the same bits.
class FakeWorld {
 public:
  explicit FakeWorld(int ranks) : ranks_(static_cast<std::size_t>(ranks)) {}

  // Called with each finished all-reduce's number (from 0) and every rank's buffer, to damage what a transport would.
  // Of float32 only.
  std::function<void(std::uint64_t number, const std::vector<float*>& buffers, std::size_t count)> after_reduce;
  // Whether direct all-reduce `number` loses element i of what rank `from` sends to rank `to`, which adds it up. Null:
  // nothing is lost.
  std::function<bool(std::uint64_t number, int from, int to, std::size_t i)> loses;
  // Called on each rank with what its all-to-all `number` (from 0) brought, to damage it.
  std::function<void(std::uint64_t number, int rank, std::span<std::byte> received)> after_exchange;
  // From this all-reduce on, every one fails.
  std::uint64_t fail_from = UINT64_MAX;

  std::unique_ptr<Collective> collective(int rank, const ExchangeOptions& exchange = {});
  std::unique_ptr<proxy::Bootstrap> bootstrap(int rank);
  int size() const { return static_cast<int>(ranks_); }
  // The element counts of the all-reduces so far, in order.
  std::vector<std::size_t> reduced() const;
  // And what they summed.
  std::vector<proxy::DataType> types() const;

 private:
  friend class FakeCommunicator;
  friend class FakeBootstrap;
  friend class FakePending;
  struct Reduction {
    bool direct = false;
    proxy::DataType type = proxy::DataType::kFloat32;
    proxy::Missing missing = proxy::Missing::kZero;
    std::vector<void*> buffers;
    std::vector<float*> residuals;  // null: none
    std::vector<std::uint64_t> missing_contributions;
    std::vector<std::uint64_t> expected_contributions;
    std::size_t joined = 0;
    std::size_t count = 0;
    bool done = false;
  };
  struct Gathering {
    std::vector<std::byte> all;
    std::size_t joined = 0;
  };
  void join_reduction(std::uint64_t number, int rank, void* data, std::size_t count, proxy::DataType type);
  void join_exchange(std::uint64_t number, int rank, void* data, std::size_t count, proxy::DataType type,
                     proxy::Missing missing, float* residual);
  void join(Reduction& reduction, std::uint64_t number, int rank, void* data, std::size_t count, proxy::DataType type);
  void exchange(Reduction& reduction, std::uint64_t number, std::size_t i);
  bool reduction_done(std::uint64_t number);
  proxy::CollectiveStats wait_reduction(std::uint64_t number, int rank);
  // Of the bootstraps, and of the communicators.
  std::vector<std::byte> gather(std::uint64_t number, int rank, std::span<const std::byte> mine);
  std::vector<std::byte> gather_block(std::uint64_t number, int rank, std::span<const std::byte> mine);
  std::vector<std::byte> gather_into(std::map<std::uint64_t, Gathering>& gatherings, std::uint64_t number, int rank,
                                     std::span<const std::byte> mine);

  std::size_t ranks_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::uint64_t, Reduction> reductions_;
  std::map<std::uint64_t, Gathering> gatherings_;
  std::map<std::uint64_t, Gathering> gathered_blocks_;
};

}  // namespace clustar::bench::trainer
