// Sums gradient buckets over the ranks while backward still runs, and measures how much of that was hidden.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/trainer/buckets.h"
#include "bench/trainer/codec.h"
#include "bench/trainer/collective.h"
#include "bench/trainer/compute/on_device.h"
#include "bench/trainer/encoded_bucket.h"
#include "bench/trainer/graph/op.h"
#include "bench/trainer/timeline.h"
#include "transport/base/result.h"

namespace clustar::bench::trainer {

using Clock = std::chrono::steady_clock;

// One step's communication on this rank, in seconds.
struct StepCommunication {
  double total_s = 0;    // time in which at least one bucket was under way
  double exposed_s = 0;  // time that compute stood still for it: from the end of backward to the last bucket's arrival
  double codec_s = 0;    // encoding, which is part of compute, and decoding, which is part of exposed_s
  std::uint64_t missing_contributions = 0;  // see CollectiveOutcome
  std::uint64_t expected_contributions = 0;
  // Where the collective tells_lost(): sums of squares of the gradients that this rank gave to others, and of what was
  // lost of them.
  double given_squares = 0;
  double lost_squares = 0;
  BucketTimes buckets{};  // of those that arrived
};

// The last `buckets` of a plan, those of the front layers, go by a collective of their own.
struct FrontRoute {
  Collective* collective = nullptr;
  std::size_t buckets = 0;
};

// What a rank has of a bucket when it is settled: the sum, or its own shard of the sum (BucketCaps::shards).
enum class Reduction : std::uint8_t { kWhole, kShard };

// One step: tensor_ready() for every tensor, settle() for buckets that are wanted early, then finish(). `gradients` are
// float32; of 16 bits that travel a bucket has a rounded copy, of which it gets its sum back. The gradients
// must stay untouched in between, but for those of tensors that are not ready yet. Without a collective nothing is sent
// and nothing waits; a codec still encodes and decodes, so that one rank shows what it costs in accuracy.
class GradientReducer {
 public:
  // The collectives must outlive the reducer; both it and the gradients, of the plan's capacity(), their close().
  // `tensors`, those of the plan, are asked for by codecs only. A collective that tells_lost() needs a codec's path to
  // be kReduce; with Reduction::kShard there is neither, and the plan's shards are the collective's size(). `device`:
  // the gradients are there alone, and the collectives take it: float32, whole sums and no codec.
  GradientReducer(const BucketPlan& plan, std::span<float> gradients, Collective* collective,
                  const CodecOptions& codec = {}, const std::vector<graph::TensorSpec>& tensors = {},
                  FrontRoute front = {}, Reduction reduction = Reduction::kWhole, OnDevice* device = nullptr);

  // Between two steps: what codecs and losses left for later moves along. Front buckets stay as many, and fewer than
  // all.
  void set_plan(const BucketPlan& plan);
  const BucketPlan& plan() const { return plan_; }
  // By which a bucket goes; null: none.
  Collective* collective_of(std::size_t bucket) const { return route_of(bucket).collective; }

  // Starts each bucket whose last tensor this was, in bucket order whatever the order of tensors: collectives must
  // start in the same order on all ranks.
  void tensor_ready(std::size_t tensor);
  std::size_t bucket_of(std::size_t tensor) const { return bucket_of_[tensor]; }
  // After backward: waits until `bucket` holds its sum. False: it had already been waited for. What fails, finish()
  // reports.
  bool settle(std::size_t bucket);
  double waited_s() const { return step_.exposed_s; }  // of this step, so far
  // After backward: waits for the buckets that are left. Errors name the bucket. A gradient that a codec cannot encode
  // is an error on every rank in the same step, as long as its bucket or blob arrives.
  Result<StepCommunication> finish();

  // Between steps, for checkpoints. What codecs left out of a bucket so far, and what exchanges lost of the gradients:
  // as those lie, empty where none is kept.
  std::span<float> residual(std::size_t bucket) { return encodes() ? encoded_[bucket].residual() : std::span<float>(); }
  std::span<float> lost() { return lost_; }

 private:
  struct InFlight {
    std::unique_ptr<Pending> pending;  // null without a collective
    Clock::time_point started;
    std::optional<Clock::time_point> ended;
  };
  struct Route {
    Collective* collective = nullptr;
    Buffer mapped;  // what travels: the gradients, on the host or the device, or packed_
  };
  struct MappedBlobs {
    Buffer own;
    Buffer all;
  };
  bool encodes() const { return options_.codec != Codec::kNone; }
  bool gathers() const { return encodes() && options_.path == CodecPath::kGather; }
  bool keeps_lost() const { return !lost_.empty(); }
  Precision precision() const { return plan_.caps.precision; }
  bool packs() const { return precision() != Precision::kFloat32; }
  std::size_t travelling(const Bucket& bucket) const {
    return reduction_ == Reduction::kShard ? plan_.room(bucket) : bucket.elements;
  }
  const Route& route_of(std::size_t bucket) const { return bucket < front_from_ ? route_ : front_; }
  void prepare_buckets();
  std::vector<float> residuals();  // of the codecs, in the plan's layout
  MappedBlobs map_blobs(EncodedBucket& encoded, Collective& collective);
  void add_lost(std::size_t bucket);
  void encode(std::size_t bucket);
  std::unique_ptr<Pending> start(std::size_t bucket);
  void wait(std::size_t bucket);
  void decode(std::size_t bucket);
  void keep_error(std::size_t bucket, const std::string& what, const Error& error);

  BucketPlan plan_;
  std::span<float> gradients_;
  std::vector<std::uint16_t> packed_;  // as the gradients lie; empty where float32 travels
  Route route_, front_;
  std::size_t front_buckets_;
  std::size_t front_from_ = 0;  // the first bucket of front_
  CodecOptions options_;
  std::vector<graph::TensorSpec> tensors_;
  Reduction reduction_;
  OnDevice* device_;  // null: gradients are host memory
  // What the latest exchange lost of this rank's gradients, as they lie in those; empty: that is not kept.
  std::vector<float> lost_;
  std::vector<EncodedBucket> encoded_;  // by bucket; empty without a codec
  std::vector<EncodedBucket> retired_;  // of earlier plans: their blobs are mapped until close()
  std::vector<MappedBlobs> blobs_;      // by bucket; empty unless blobs are gathered
  std::vector<std::size_t> bucket_of_;  // by tensor
  std::vector<std::size_t> missing_;    // by bucket: tensors that are not ready
  std::vector<InFlight> in_flight_;     // by bucket, as far as started
  std::vector<bool> settled_;           // by bucket
  StepCommunication step_;
  std::optional<Error> error_;  // the step's first
};

}  // namespace clustar::bench::trainer
