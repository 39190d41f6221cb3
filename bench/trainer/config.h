// What to train and how. All ranks of a run need the same TrainConfig; RankOptions differ from rank to rank.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "bench/trainer/buckets.h"
#include "bench/trainer/codec.h"
#include "bench/trainer/compute/options.h"
#include "bench/trainer/data/loader.h"
#include "bench/trainer/exchange.h"
#include "bench/trainer/model.h"
#include "bench/trainer/paraexpress_options.h"
#include "bench/trainer/parallel/layer_terms.h"
#include "bench/trainer/parallel/optimizer.h"
#include "bench/trainer/precision/loss_scaler.h"
#include "bench/trainer/precision/precision.h"
#include "paraexpress/tolerant/tolerant.h"

namespace clustar::bench::trainer {

// Of the first step. kOne: a single bucket, as DDP has it without find_unused_parameters.
enum class InitialBuckets : std::uint8_t { kCaps, kOne };
enum class CheckEqual : std::uint8_t { kEvery, kEpoch, kOff };  // after which steps replicas are compared

// Not with tolerance, whose engines keep what is late, nor with no_communication, where every rank has parameters of
// its own.
struct CheckpointOptions {
  std::string file{};    // written; empty: none is
  int every = 1;         // epochs, and after the last
  std::string resume{};  // read; empty: none is
};

struct TrainConfig {
  std::string model = "mlp";
  ModelOptions model_options;
  int epochs = 20;
  int batch = 128;  // global: all ranks together
  double rate = 0.1;
  double momentum = 0.9;
  double weight_decay = 0;
  // 16 bits: not with kPs, `tolerance`, a codec or Missing::kResidual.
  Precision precision = Precision::kFloat32;
  LossScaleOptions loss_scale{};  // of 16 bits
  std::uint64_t seed = 1;         // of initialisation, split, order of examples and generated data
  std::size_t first_bucket_bytes = kDefaultFirstBucketBytes;
  std::size_t bucket_bytes = kDefaultBucketBytes;
  InitialBuckets initial_buckets = InitialBuckets::kCaps;
  // After the first step buckets are planned again, by the order in which gradients came. Not with `tolerance`, which
  // knows buckets by their place.
  bool rebuild_buckets = true;
  int accumulate = 1;  // micro-batches of a step, of which only the last communicates (DDP's no_sync)
  // kZero1: not with kPs, `tolerance`, a codec or kAllToAll; of more than one rank.
  parallel::Sharding sharding = parallel::Sharding::kNone;
  parallel::LayerOptions layers{};  // all-to-alls beside the gradients; as kZero1, but with codecs and kAllToAll
  CheckEqual check_equal = CheckEqual::kEvery;
  // The same steps without any collective: the ranks train apart, which shows what the best possible transport could
  // reach. Its loss and accuracy mean nothing, and check_equal has to be kOff.
  bool no_communication = false;
  // The next forward pass waits for each bucket when its layers need it, instead of for all of them first: the same
  // bits. Not with kPs, which overlaps nothing.
  bool overlap_forward = false;
  // So many of the last buckets, which are the front layers', have a communicator of their own (kFrontCommName), so
  // that they need not wait for the buckets before them. kProxy only; fewer than there are buckets.
  std::size_t front_buckets = 0;
  CodecOptions codec;  // of every bucket; kNone with no_communication
  // A replay loads no data and learns nothing: `generated` says how many examples it stands for.
  ComputeOptions compute;
  std::string record_compute;  // where rank 0 writes how long its layers took; empty: nowhere
  CollectiveKind collective = CollectiveKind::kProxy;
  ExchangeOptions
      exchange;  // kAllToAll not with CodecPath::kGather; of kProxy, and of kNccl on a device, without kResidual
  ParaexpressOptions paraexpress;  // of kParaexpress
  // Of kParaexpress, in place of a plan: late and lost contributions are done without, and made up for later.
  std::optional<paraexpress::tolerant::Tolerance> tolerance{};
  // So many times as long as it needs to compute a step, by rank: the rest it sleeps, as a slower machine would take.
  std::map<int, double> slow{};
  std::optional<double> target_accuracy;  // 0 to 1: stop after the epoch that reaches it
  std::string data;                       // what load() takes; empty = generated
  bool skip_damaged = false;              // images of a folder that cannot be decoded are left out
  std::optional<std::size_t> prefetch{};  // of Loader; nothing: usual_prefetch()
  CheckpointOptions checkpoint{};
  // What the environment makes the plugin inject, for the report: as FaultSpec's text, and its fraction of loss.
  std::string inject_faults;
  double inject_loss = 0;
  // What the environment lets the plugin lose of the bytes that are eligible on each rank: parts per million. More is a
  // failure of the run. 0: nothing.
  std::uint32_t loss_bound_ppm = 0;
  // How many examples, when `data` is empty; 0: as many as are usual for the kind.
  std::size_t generated = 0;
};

struct RankOptions {
  int rank = 0;
  int size = 1;
  std::string root;        // host:port of rank 0's bootstrap; empty when size is 1
  std::string plugin;      // path of the net plugin; not opened when size is 1
  int plugin_version = 0;  // 0 = the newest it exports
  int channels = 1;
  std::string nccl_library;  // for CollectiveKind::kNccl; empty: libnccl.so.2, where the loader finds it
  std::chrono::milliseconds join_timeout{60000};
  // A transfer or an exchange without progress for this long fails the run; 0 = wait forever.
  std::chrono::milliseconds stall_timeout{120000};
};

}  // namespace clustar::bench::trainer
