// All-reduces of gradients that do not wait long for any rank: a group that agreed to do without late and lost
// contributions, within bounds, and to make up for them later.
//
// Tolerant contract: a round of a bucket ends once a quorum of ranks gave to it and its deadline is over; its result is
// the sum, scaled by how many gradients came, the same bits on all ranks. What a rank gave too late, or the network
// lost of it, stays with that rank and is given with its next round. No rank misses more than `staleness` rounds in a
// row: then the others wait. What was summed and what is kept add up to all gradients that were given. A rank that
// dies, or contradicts the others, is an error on all ranks that names it.
//
// Of a group by direct exchange: each rank is the root of one part of each bucket, adds up what all give to it, and
// tells all the result. So a lost packet costs one rank's contribution to a few elements, never a sum of several.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "paraexpress/engine/engine.h"
#include "paraexpress/sums/reduce.h"
#include "paraexpress/tolerant/core/giver.h"
#include "transport/api/transport.h"
#include "transport/base/result.h"
#include "transport/base/time.h"

namespace clustar::paraexpress::tolerant {

struct Tolerance {
  std::uint32_t quorum = 0;  // 1 .. ranks; 0: all ranks but one
  Duration deadline = std::chrono::milliseconds(20);
  std::uint32_t staleness = 8;      // rounds in a row, 0 .. kMostStaleness; 0: every rank is in every round
  std::uint32_t tolerance_ppm = 0;  // what a lossy transport (MLT) may lose of contributions, 0 .. 100,000 (10 %)
  bool scales = true;               // false: sums are plain
};
inline constexpr std::uint32_t kMostStaleness = 1024;

struct GroupOptions {
  Member rank = 0;
  std::uint32_t ranks = 1;    // 1 .. kMostRanks
  std::uint32_t buckets = 1;  // 1 .. kMostBuckets
  Tolerance tolerance{};
  int device = 0;  // of the transport
  // While all connect, and while a round is open and nothing moves.
  Duration stall = std::chrono::seconds(60);
  std::uint64_t most_bytes = std::uint64_t{16} << 30;  // of memory for what is sent and received
  transport::ChannelOptions channel{};
};

// Whether a group of these can be; the error says what is allowed.
Result<void> check(const GroupOptions& options);

class Round {
 public:
  virtual ~Round() = default;
  virtual bool done() const = 0;  // true: wait() does not block any more
  virtual Result<Outcome> wait() = 0;
};

// Thread rule: any thread. Rounds of one bucket come one after the other, the same number of them on all ranks; buckets
// are in no order.
class Group {
 public:
  // Blocks until all ranks are connected. The transport outlives the group. Ranks that were told different things get
  // an error that says which.
  static Result<std::unique_ptr<Group>> create(transport::Transport& transport, const AllGather& all_gather,
                                               const GroupOptions& options);
  virtual ~Group() = default;  // as close()

  // The bucket's next round, in place: `count` floats of 32 or 64 bits, always the same count and type for a bucket.
  // They are the caller's again after wait(). `gives` false: they are not read; the rank gives what it has kept.
  virtual std::unique_ptr<Round> all_reduce(std::uint32_t bucket, void* elements, std::size_t count, DataType type,
                                            bool gives = true) = 0;
  // Before each step, which is a round of each bucket: whether to compute its gradients. False: this rank is late, and
  // they would be too. Its all_reduce() should give nothing in this step: it then ends at once where the others have
  // ended it, and otherwise brings in time what this rank has kept.
  virtual bool should_compute() = 0;

  // What this rank keeps of a bucket, between rounds; and to begin with it, before the bucket's first round: after a
  // restart, that no gradient is lost.
  virtual Result<Residual> residual(std::uint32_t bucket) = 0;
  virtual Result<void> restore(std::uint32_t bucket, Residual residual) = 0;

  virtual EngineTraffic traffic() const = 0;
  // Fails all rounds, on all ranks.
  virtual void abort(const std::string& why) = 0;
  // Brings to their end what others wait for, then waits for them to be done too, a few seconds at most. Idempotent.
  virtual void close() = 0;
};

}  // namespace clustar::paraexpress::tolerant
