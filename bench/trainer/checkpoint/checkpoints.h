// Checkpoints of a run on disk: the state that all ranks share in one file, what each rank has of its own beside it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "bench/proxy/bootstrap.h"
#include "bench/trainer/checkpoint/file.h"
#include "bench/trainer/config.h"
#include "transport/base/result.h"

namespace clustar::bench::trainer {

// Between two epochs, in memory that the trainer owns: read by save(), written by load(). Names are those of tensors,
// so that files do not depend on how gradients lie in buckets.
struct TrainingState {
  struct Array {
    std::string name;
    std::span<float> values;
  };
  int epochs = 0;             // that are over
  std::uint64_t passes = 0;   // of Network
  double accuracy = 0;        // of the last epoch
  std::vector<Array> shared;  // bit-equal on all ranks
  std::vector<Array> own;     // of this rank: what codecs and transports left out so far
};

// FILE has what is shared, and rank 0 writes it: a copy per rank of what is equal would be as large times the ranks.
// FILE.epochE.rankR.CHECKSUM has what is rank R's own, where there is any; gathering that would take rank 0's memory
// and the network's time, and it is of no use to other ranks. FILE names the checksums of those, and is written when
// all of them are on the disk: whenever a run is killed, FILE and its parts are of one epoch of one run. Each file is
// written beside its place, synced, and renamed. Parts that FILE does not name are removed last. Ranks on several hosts
// have to see FILE, by a shared file system or a copy, to resume. Thread rule: calls of one thread; load() and save()
// are collective, by `bootstrap` (null: one rank).
class Checkpoints {
 public:
  // `run`: what has to be equal for a continuation to have the same bits, by names for people.
  Checkpoints(CheckpointOptions options, Facts run, proxy::Bootstrap* bootstrap);

  // After `epochs` of the run's.
  bool is_due(int epochs, bool last) const;
  // kInvalidArgument: what parse_checkpoint() says; another run, with each difference; arrays of other sizes; a part
  // that is not the one that FILE names; another FILE than rank 0's. Then `state` is undefined.
  Result<void> load(TrainingState& state);
  // An error on one rank is one on all.
  Result<void> save(const TrainingState& state);

  std::uint64_t saved() const { return saved_; }
  double seconds() const { return seconds_; }  // in save()

 private:
  Result<std::uint64_t> load_mine(TrainingState& state);
  Result<void> load_part(const Checkpoint& checkpoint, TrainingState& state);
  Result<std::vector<std::uint64_t>> agree(const char* what, const Result<std::uint64_t>& mine) const;
  int rank() const { return bootstrap_ != nullptr ? bootstrap_->rank() : 0; }
  int size() const { return bootstrap_ != nullptr ? bootstrap_->size() : 1; }

  CheckpointOptions options_;
  Facts run_;
  proxy::Bootstrap* bootstrap_;
  std::uint64_t saved_ = 0;
  double seconds_ = 0;
};

// Whether there is anything left to train after `state`; kInvalidArgument says what would leave something.
Result<void> check_goes_on(const TrainConfig& config, const TrainingState& state);

// Whether `path` can be written as a checkpoint, to be found out before long work. Leaves nothing behind.
Result<void> check_checkpoint_path(const std::string& path);

}  // namespace clustar::bench::trainer
