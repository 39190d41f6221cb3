// Posts writes on pairs, and knows which of them the NIC may still be reading.
//
// Thread rule: quiesce() may run beside everything else, which belongs to one thread.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transport/base/ring.h"
#include "transport/io/verbs/queue_pair.h"

namespace clustar::transport::io::verbs::uc {

struct Write {
  ibv_sge from{};
  std::uint64_t address = 0;  // the peer's
  std::uint32_t rkey = 0;
  std::uint32_t number = 0;  // the immediate
};

class Writer {
 public:
  static constexpr std::size_t kMostChain = 64;
  // What quiesce() waits for a pair before it stops that, and then for the requests to be given back.
  static constexpr Duration kPatience = std::chrono::seconds(1);

  // `queue` is the send queue of every pair that is added, and outlives this.
  Writer(const CompletionQueue& queue, std::uint32_t requests_per_pair) : queue_(queue), requests_(requests_per_pair) {}

  std::uint32_t add(QueuePair pair);
  void remove(std::uint32_t pair);  // nothing is read for it any more
  // For so many writes; nothing: the pair has failed.
  std::optional<std::uint32_t> room(std::uint32_t pair);
  // At most kMostChain, and as many as there is room for. `taken`: which of all packets that send() took the first one
  // is. False: the pair has failed, problem() says why, and these and maybe some before are lost.
  bool post(std::uint32_t pair, std::span<const Write> writes, std::uint64_t taken);
  void poll();
  // Why the pair has failed; empty: it works.
  std::string problem(std::uint32_t pair);
  // The oldest packet, as post() named it, whose payload may still be read; nothing: none is.
  std::optional<std::uint64_t> oldest();
  // Returns when no payload is read any more of what was posted before. Pairs that do not send it are ended, so that is
  // certain, and nobody waits for them again.
  void quiesce();

 private:
  struct Chain {
    std::uint64_t taken = 0;
    std::uint32_t count = 0;
  };
  struct Pair {
    std::optional<QueuePair> pair{};
    std::uint32_t generation = 0;  // of completions
    std::uint64_t posted = 0;
    std::uint64_t finished = 0;
    Ring<Chain> chains{};  // each ends with a request that completes visibly
    std::string problem{};
  };
  void poll_locked();
  void on_failure(Pair& pair, std::string why);
  std::uint32_t outstanding(const Pair& pair) const { return static_cast<std::uint32_t>(pair.posted - pair.finished); }
  // Whether pairs have finished so many each.
  bool finished_locked(std::span<const std::uint64_t> targets) const;
  void stop_locked(std::span<const std::uint64_t> targets);
  void end_locked(std::span<const std::uint64_t> targets);

  const CompletionQueue& queue_;
  const std::uint32_t requests_;
  std::mutex mutex_;
  std::vector<Pair> pairs_;
  std::vector<std::uint32_t> free_;
};

}  // namespace clustar::transport::io::verbs::uc
