#include "bench/trainer/paraexpress_exchange.h"

#include <chrono>
#include <cstring>
#include <future>
#include <numeric>
#include <utility>
#include <vector>

namespace clustar::bench::trainer {
namespace {

using std::chrono::steady_clock;

class ExchangePending final : public Pending {
 public:
  explicit ExchangePending(std::future<Result<double>> seconds) : seconds_(seconds.share()) {}
  Result<CollectiveOutcome> wait() override {
    const Result<double>& seconds = seconds_.get();
    if (!seconds) return tl::unexpected(seconds.error());
    return CollectiveOutcome{.seconds = *seconds};
  }
  Result<void> hold_back(Stream) override {
    const auto outcome = wait();
    return outcome ? Result<void>() : tl::unexpected(outcome.error());
  }

 private:
  std::shared_future<Result<double>> seconds_;
};

}  // namespace

std::unique_ptr<Pending> start_exchange(paraexpress::Communicator& communicator, paraexpress::Member self,
                                        const std::byte* send, std::byte* recv, const Collective::BlockSizes& bytes,
                                        Duration limit) {
  paraexpress::Task task;
  task.name = "all-to-all";
  task.kind = paraexpress::TaskKind::kExchange;
  task.use = paraexpress::Use::kAllToAll;
  const std::size_t sent = std::accumulate(bytes.send.begin(), bytes.send.end(), std::size_t{0});
  const std::size_t expected = std::accumulate(bytes.recv.begin(), bytes.recv.end(), std::size_t{0});
  std::size_t from = 0;
  std::size_t into = 0;
  for (paraexpress::Member peer = 0; peer < bytes.send.size(); ++peer) {
    if (peer == self) {
      if (bytes.send[peer] > 0) std::memcpy(recv + into, send + from, bytes.send[peer]);
    } else {
      // Empty ones, too: both ends count them.
      task.transfers.push_back({true, peer, from, bytes.send[peer]});
      task.transfers.push_back({false, peer, sent + into, bytes.recv[peer]});
    }
    from += bytes.send[peer];
    into += bytes.recv[peer];
  }
  task.staged = sent + expected;
  task.fill = [send, sent](std::byte* memory) {
    if (sent > 0) std::memcpy(memory, send, sent);
  };
  task.take = [recv, sent, self, sizes = bytes.recv](std::byte* memory) {
    std::size_t at = 0;
    for (paraexpress::Member peer = 0; peer < sizes.size(); ++peer) {
      if (peer != self && sizes[peer] > 0) std::memcpy(recv + at, memory + sent + at, sizes[peer]);
      at += sizes[peer];
    }
  };
  const auto started = steady_clock::now();
  task.deadline = started + std::chrono::duration_cast<steady_clock::duration>(limit);
  auto promise = std::make_shared<std::promise<Result<double>>>();
  auto pending = std::make_unique<ExchangePending>(promise->get_future());
  task.ended = [promise, started](const Result<paraexpress::Member>& result) {
    if (!result) return promise->set_value(tl::unexpected(result.error()));
    promise->set_value(std::chrono::duration<double>(steady_clock::now() - started).count());
  };
  communicator.start(std::move(task));
  return pending;
}

}  // namespace clustar::bench::trainer
