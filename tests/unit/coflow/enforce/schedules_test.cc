// Processes that share a NIC, in simulated time, by thousands of seeds: random urgencies, sizes, jobs, receivers that
// take nothing for a while, processes that die. Whatever happens, nothing starves and nobody waits without end.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <vector>

#include "coflow/enforce/host_policy.h"
#include "transport/base/rng.h"
#include "transport/message/send_queue.h"

namespace clustar::coflow::enforce {
namespace {

using std::chrono::microseconds;
using transport::FlowTag;
using transport::SendQueue;
using transport::Urgency;

constexpr std::uint64_t kPart = 16 * 1024;

struct Process {
  std::unique_ptr<SendQueue> queue;
  std::vector<SendQueue::ConnectionId> connections;
  std::vector<bool> blocked;
  std::vector<std::uint64_t> left, since;  // by connection: bytes to send; bytes of the process since its last chunk
  bool alive = true;
};

class Schedule {
 public:
  explicit Schedule(std::uint64_t seed) : rng_(seed) {
    rate_ = 10'000'000 << rng_.below(8);
    chunk_time_ = Duration(static_cast<std::int64_t>(kPart * 1'000'000'000 / rate_));
    const std::size_t processes = 1 + rng_.below(4);
    for (std::size_t i = 0; i < processes; ++i) add_process(i);
  }

  // False: nothing moved for longer than anybody may wait.
  testing::AssertionResult run() {
    TimePoint now(std::chrono::seconds(1));
    TimePoint moved = now;
    while (left() > 0) {
      bool any = false;
      for (Process& process : processes_) any = turn(process, now) || any;
      if (worst_ > bound_) return testing::AssertionFailure() << "starved: " << worst_ << " bytes, bound " << bound_;
      if (any || all_blocked()) moved = now;
      moved = std::max(moved, TimePoint(Duration(state_.line_free_at.load())));  // mice have the line
      // Lease, grace, and the line's own time, generously.
      if (now - moved > std::chrono::milliseconds(3) + 20 * chunk_time_) {
        return testing::AssertionFailure() << "nobody sends, " << left() << " bytes wait";
      }
      now += Duration(1 + static_cast<std::int64_t>(rng_.below(40'000)));
    }
    return testing::AssertionSuccess();
  }

 private:
  void add_process(std::size_t slot) {
    BoardOptions board;
    board.bytes_per_second = rate_;
    board.job = static_cast<std::uint32_t>(rng_.below(3));
    board.weight = 1 + static_cast<std::uint32_t>(rng_.below(3));
    HostPolicyOptions options;
    options.knows_line = true;
    options.burst = microseconds(20) + chunk_time_;
    Process& process = processes_.emplace_back();
    process.queue = std::make_unique<SendQueue>(
        std::make_unique<HostPolicy>(options, std::make_unique<Board>(state_, slot, board)));
    const std::size_t connections = 1 + rng_.below(4);
    std::size_t flows = 0;
    for (std::size_t i = 0; i < connections; ++i) {
      const auto connection = process.queue->add_connection({.peer = static_cast<std::uint32_t>(i), .job = board.job});
      FlowTag tag;
      tag.coflow = rng_.chance(0.3) ? 0 : 1 + slot * 100 + i;
      tag.urgency = static_cast<Urgency>(rng_.below(transport::kUrgencies));
      const std::uint64_t bytes = rng_.chance(0.2) ? 1 + rng_.below(1000) : 1 + rng_.below(1 << 20);
      tag.bytes = tag.coflow == 0 || rng_.chance(0.3) ? 0 : bytes;
      process.connections.push_back(connection);
      process.blocked.push_back(false);
      process.left.push_back(0);
      process.since.push_back(0);
      // Some are buckets that repeat, of which more is foreseen than comes.
      const bool repeats = tag.coflow != 0 && rng_.chance(0.3);
      const std::size_t buckets = repeats ? 1 + rng_.below(8) : 1;
      for (std::size_t bucket = 0; bucket < buckets; ++bucket, tag.coflow += repeats ? 10'000 : 0) {
        if (repeats) tag.identity = {.known = true, .communicator = slot * 100 + i, .number = bucket};
        process.left[i] += bytes;
        ++flows;
        process.queue->push(connection, i, tag, bytes, TimePoint(std::chrono::seconds(1)));
      }
    }
    // Mice do not count: they are policed at a fifth, and go before.
    bound_ = std::max<std::uint64_t>(bound_, 2 * 33 * 64 * 1024 * (flows + 1) + (2 << 20));
  }

  bool turn(Process& process, TimePoint now) {
    if (!process.alive || rng_.chance(0.3)) return false;  // it does not run now
    if (processes_.size() > 1 && rng_.chance(0.0005)) {
      process.alive = false;  // its slot stays as it is until somebody else takes it
      return false;
    }
    for (std::size_t i = 0; i < process.blocked.size(); ++i) {
      if (!rng_.chance(0.02)) continue;
      process.blocked[i] = !process.blocked[i];
      process.blocked[i] ? process.queue->block(process.connections[i])
                         : process.queue->unblock(process.connections[i]);
      process.since[i] = 0;
    }
    bool any = false;
    for (int chunks = 0; chunks < 8; ++chunks) {
      auto chunk = process.queue->next(kPart, now);
      if (!chunk) break;
      process.queue->commit(*chunk, now);
      for (std::size_t i = 0; i < process.since.size(); ++i) {
        const bool waits = process.left[i] > 0 && !process.blocked[i] && i != chunk->cookie;
        process.since[i] = waits ? process.since[i] + chunk->length : 0;
        worst_ = std::max(worst_, process.since[i]);
      }
      process.left[chunk->cookie] -= chunk->length;
      any = true;
    }
    return any;
  }

  std::uint64_t left() const {
    std::uint64_t sum = 0;
    for (const Process& process : processes_) {
      for (const std::uint64_t bytes : process.left) sum += process.alive ? bytes : 0;
    }
    return sum;
  }
  bool all_blocked() const {
    for (const Process& process : processes_) {
      for (std::size_t i = 0; process.alive && i < process.left.size(); ++i) {
        if (process.left[i] > 0 && !process.blocked[i]) return false;
      }
    }
    return true;
  }

  Rng rng_;
  BoardState state_;
  std::vector<Process> processes_;
  std::uint64_t rate_ = 0, worst_ = 0, bound_ = 0;
  Duration chunk_time_{};
};

// CLUSTAR_TEST_SCHEDULES: how many.
TEST(Schedules, NothingStarvesAndNobodyWaitsWithoutEnd) {
  const char* const wanted = std::getenv("CLUSTAR_TEST_SCHEDULES");
  const std::uint64_t count = wanted != nullptr ? std::strtoull(wanted, nullptr, 10) : 3000;
  for (std::uint64_t seed = 0; seed < count; ++seed) {
    ASSERT_TRUE(Schedule(seed).run()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace clustar::coflow::enforce
