// The send queue of a NIC: one message pushed, chosen and committed while `waiting` others wait.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <memory>

#include "transport/api/send_queue.h"

namespace clustar::bench::micro {
namespace {

using transport::FifoOrder;
using transport::FlowTag;
using transport::SendOrder;
using transport::SendQueue;

// Stands for a scheduler's order: least remaining bytes first.
class ShortestFirst final : public SendOrder {
 public:
  std::uint64_t rank(const FlowTag&, std::uint64_t remaining_bytes) const override { return remaining_bytes; }
};

constexpr std::uint64_t kMessage = 1 << 20;
constexpr std::uint64_t kChunk = 128 << 10;

template <class Order>
void push_next_commit(benchmark::State& state) {
  SendQueue queue(std::make_unique<Order>());
  const auto lanes = static_cast<SendQueue::LaneId>(state.range(0));
  const std::int64_t waiting = state.range(1);
  for (SendQueue::LaneId i = 0; i < lanes; ++i) queue.add_lane();
  std::uint64_t cookie = 0;
  SendQueue::LaneId lane = 0;
  const auto push = [&] {
    queue.push(lane, cookie++, {}, kMessage);
    lane = (lane + 1) % lanes;
  };
  for (std::int64_t i = 0; i < waiting; ++i) push();
  for (auto _ : state) {
    push();
    for (bool sent = false; !sent;) {
      const auto chunk = queue.next(kChunk);
      if (!chunk) {
        state.SkipWithError("a queue with messages offers none");
        return;
      }
      queue.commit(*chunk);
      sent = chunk->last;
    }
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(kMessage / kChunk));
}
// A lane is a connection, of which NCCL opens a few per channel and peer.
BENCHMARK(push_next_commit<FifoOrder>)
    ->Name("send_queue/fifo_1MiB_in_8_chunks")
    ->ArgNames({"lanes", "waiting"})
    ->Args({1, 0})
    ->Args({8, 64})
    ->Args({64, 512})
    ->Args({512, 4096});
BENCHMARK(push_next_commit<ShortestFirst>)
    ->Name("send_queue/ranked_1MiB_in_8_chunks")
    ->ArgNames({"lanes", "waiting"})
    ->Args({1, 0})
    ->Args({8, 64})
    ->Args({64, 512})
    ->Args({512, 4096});

}  // namespace
}  // namespace clustar::bench::micro
