// The measured loops. They poll as NCCL's proxy does: up to 8 requests posted, test on the oldest, and when nothing
// moved either sched_yield (spinning, as NCCL) or a short sleep (to see what the transfer itself costs).
// Every loop is started by the receiver ("go"), timed by its clock, and ends with a message whose content is checked.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "bench/perf/memory.h"
#include "bench/perf/statistics.h"
#include "bench/perf/wire.h"
#include "transport/base/result.h"

namespace clustar::bench::perf {

inline constexpr std::size_t kPosted = 8;
// The start of each buffer is for "go"; messages lie behind it.
inline constexpr std::size_t kGoBytes = 8;
inline constexpr std::size_t kMessagesAt = 4096;
inline constexpr std::size_t kColdBytes = 64u << 20;
inline constexpr std::size_t kMaxMessageBytes = 256u << 20;
inline constexpr std::uint64_t kMaxCount = 4'000'000;
inline constexpr int kMaxPeers = 63;
inline constexpr std::size_t kElephantBytes = 1u << 20;  // a message of a mixed load

enum class Loop : std::uint8_t { kStream, kPingPong, kIncast, kMixed };

struct Task {
  Loop loop = Loop::kStream;
  std::size_t bytes = 0;
  std::uint64_t count = 0;  // messages, round trips, or rounds; of a mixed load, messages of each elephant
  std::uint64_t seed = 0;   // of this sample; decides the content of the last message
  bool spin = true;
  int peers = 1;  // rank 0: senders that take part; of a mixed load, both ranks: channels, the first being the mice's
  int rank = 0;
  std::chrono::microseconds gap{0};  // rank 0, mixed load: from one message's request to the next, at least
};

struct Sample {
  double seconds = 0;  // rank 0
  double cpu_s = 0;    // user and system time of this process, all its threads
  std::uint64_t delivered_bytes = 0;
  std::uint64_t unsized = 0;       // receives whose size the wire did not report
  Loss lost;                       // what the wire lost of them; not in delivered_bytes
  std::vector<double> message_us;  // each round trip, or each message of an incast
};

// How much memory each rank needs for a task.
struct Sizes {
  std::size_t send = 0;
  std::size_t receive = 0;
};
Sizes buffer_sizes(Loop loop, std::size_t bytes, int peers, int rank);

class Driver {
 public:
  // `progress` counts completions, for a watchdog. No message for `stall` is an error.
  Driver(Wire& wire, const Memory& send, const Memory& receive, std::atomic<std::uint64_t>& progress,
         std::chrono::milliseconds stall)
      : wire_(wire), send_(send), receive_(receive), progress_(progress), stall_(stall) {}

  Result<Sample> run(const Task& task);

 private:
  class Idle;
  class Ring;

  Result<void> stream_send(const Task& task, Idle& idle, Sample& sample);
  Result<void> stream_receive(const Task& task, Idle& idle, Sample& sample);
  Result<void> ping(const Task& task, Idle& idle, Sample& sample);
  Result<void> pong(const Task& task, Idle& idle, Sample& sample);
  Result<void> incast_send(const Task& task, Idle& idle);
  Result<void> incast_receive(const Task& task, Idle& idle, Sample& sample);
  struct Round;
  Result<void> mixed_send(const Task& task, Idle& idle);
  Result<void> mixed_receive(const Task& task, Idle& idle, Sample& sample);
  Result<bool> step_round(const Task& task, std::uint64_t round, Round& state, Sample& sample);

  // Posts and waits for one request.
  Result<void> send_one(int channel, std::size_t offset, std::size_t bytes, Idle& idle);
  Result<void> receive_one(int channel, std::size_t offset, std::size_t bytes, Idle& idle);
  Result<Tested> finish(void* request, Idle& idle);
  Result<void> settle(Idle& idle);
  Result<void> check_size(const Tested& tested, std::size_t expected);
  Result<void> check(std::size_t offset, const Task& task, int sender) const;
  Result<void> check(std::size_t offset, std::size_t bytes, std::uint64_t seed, const char* what) const;

  Wire& wire_;
  const Memory& send_;
  const Memory& receive_;
  std::atomic<std::uint64_t>& progress_;
  std::chrono::milliseconds stall_;
  std::uint64_t unsized_ = 0;
};

// User and system seconds of this process so far.
double cpu_seconds();

}  // namespace clustar::bench::perf
