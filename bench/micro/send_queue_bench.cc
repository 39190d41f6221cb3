// The send queue of a NIC: one message pushed, chosen and committed while `waiting` others wait.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <memory>

#include "coflow/enforce/host_policy.h"
#include "transport/api/send_policy.h"
#include "transport/message/send_queue.h"

namespace clustar::bench::micro {
namespace {

using transport::FifoPolicy;
using transport::Flow;
using transport::FlowTag;
using transport::SendPolicy;
using transport::SendQueue;

// Stands for a scheduler that goes by attained bytes: eight levels, each ten times as long as the one before.
class ByAttained final : public SendPolicy {
 public:
  Turn turn(const Flow& flow, TimePoint) override {
    std::uint64_t rank = 0;
    for (std::uint64_t bound = 10 << 20; flow.coflow_sent > bound && rank < 7; bound *= 10) ++rank;
    return {.rank = rank};
  }
};
// Each flow its share of the line.
class Fair final : public SendPolicy {
 public:
  Turn turn(const Flow& flow, TimePoint) override { return {.share = 1 + flow.key.peer % 4}; }
};

// CLUSTAR_SEND_ORDER=coflow, alone at a line of 100 Gbit/s.
struct OwnBoard {
  std::unique_ptr<coflow::enforce::BoardState> state = std::make_unique<coflow::enforce::BoardState>();
};
class Coflow final : private OwnBoard, public coflow::enforce::HostPolicy {
 public:
  Coflow()
      : HostPolicy({.knows_line = true}, std::make_unique<coflow::enforce::Board>(
                                             *state, 0, coflow::enforce::BoardOptions{.bytes_per_second = kRate})) {}

 private:
  static constexpr std::uint64_t kRate = 12'500'000'000;
};

constexpr TimePoint kNow = TimePoint(std::chrono::seconds(1));

constexpr std::uint64_t kMessage = 1 << 20;
constexpr std::uint64_t kChunk = 128 << 10;

template <class Policy>
void push_next_commit(benchmark::State& state) {
  SendQueue queue(std::make_unique<Policy>());
  const auto connections = static_cast<SendQueue::ConnectionId>(state.range(0));
  const std::int64_t waiting = state.range(1);
  for (SendQueue::ConnectionId i = 0; i < connections; ++i) queue.add_connection({.peer = i});
  std::uint64_t cookie = 0;
  SendQueue::ConnectionId connection = 0;
  const auto push = [&] {
    FlowTag tag;
    tag.coflow = 1 + cookie / 64;  // of a collective
    queue.push(connection, cookie++, tag, kMessage, kNow);
    connection = (connection + 1) % connections;
  };
  for (std::int64_t i = 0; i < waiting; ++i) push();
  for (auto _ : state) {
    push();
    for (bool sent = false; !sent;) {
      const auto chunk = queue.next(kChunk, kNow);
      if (!chunk) {
        state.SkipWithError("a queue with messages offers none");
        return;
      }
      queue.commit(*chunk, kNow);
      sent = chunk->last;
    }
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(kMessage / kChunk));
}
// A connection is a connection, of which NCCL opens a few per channel and peer.
BENCHMARK(push_next_commit<FifoPolicy>)
    ->Name("send_queue/fifo_1MiB_in_8_chunks")
    ->ArgNames({"connections", "waiting"})
    ->Args({1, 0})
    ->Args({8, 64})
    ->Args({64, 512})
    ->Args({512, 4096});
BENCHMARK(push_next_commit<ByAttained>)
    ->Name("send_queue/attained_1MiB_in_8_chunks")
    ->ArgNames({"connections", "waiting"})
    ->Args({1, 0})
    ->Args({8, 64})
    ->Args({64, 512})
    ->Args({512, 4096});
BENCHMARK(push_next_commit<Coflow>)
    ->Name("send_queue/coflow_1MiB_in_8_chunks")
    ->ArgNames({"connections", "waiting"})
    ->Args({1, 0})
    ->Args({8, 64})
    ->Args({64, 512})
    ->Args({512, 4096});
BENCHMARK(push_next_commit<Fair>)
    ->Name("send_queue/shares_1MiB_in_8_chunks")
    ->ArgNames({"connections", "waiting"})
    ->Args({8, 64})
    ->Args({512, 4096});

}  // namespace
}  // namespace clustar::bench::micro
