// Lossy codecs for gradients with error feedback: what PyTorch calls a communication hook, between a bucket and its
// collective. Pure: no communication, no clock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "transport/base/result.h"

namespace clustar::bench::trainer {

enum class Codec : std::uint8_t { kNone, kOneBit, kTopK };

// How an encoded bucket reaches the other ranks.
enum class CodecPath : std::uint8_t {
  kGather,  // blobs by all-gather, always reliable; each rank decodes and sums them in rank order
  kReduce,  // the bucket becomes what its blob decodes to, and is all-reduced in float32: a tolerant transport applies
};

inline constexpr double kDefaultTopKFraction = 0.01;

struct CodecOptions {
  Codec codec = Codec::kNone;
  CodecPath path = CodecPath::kGather;
  double topk_fraction = kDefaultTopKFraction;  // of a bucket's elements that kTopK sends; above 0, at most 1
};

const char* to_string(Codec codec);     // "none", "onebit", "topk"
const char* to_string(CodecPath path);  // "gather", "reduce"

// One tensor of a bucket, row-major, one tensor after the other.
struct Matrix {
  std::size_t rows = 0;
  std::size_t columns = 0;
};

// One encoding of one bucket. A blob has the byte order of the machine, as the float32 buckets that it replaces. Any
// thread.
class GradientCodec {
 public:
  virtual ~GradientCodec() = default;

  virtual std::size_t elements() const = 0;
  // The same at every step, because an all-gather takes equal blocks of all ranks. 0 for 0 elements.
  virtual std::size_t encoded_bytes() const = 0;
  // elements() values into a blob of encoded_bytes(). A value that is not finite is kInvalidArgument, named by its
  // index; the blob is then one that add_decoded refuses, so that it can be sent and every rank learns of it in the
  // same step.
  virtual Result<void> encode(std::span<const float> values, std::span<std::byte> blob) const = 0;
  // Adds to `sum`, of elements() values, what the blob stands for. kInvalidArgument for a blob of a bucket that was not
  // finite, kRemote for one that no encoder makes; `sum` is then undefined.
  virtual Result<void> add_decoded(std::span<const std::byte> blob, std::span<float> sum) const = 0;
};

// 1-bit SGD (Seide et al., Interspeech 2014, section 3): a sign per element, and the means of either sign's elements of
// each column. Fewer means train worse: an element far smaller than the mean that stands for it gets mostly noise.
std::unique_ptr<GradientCodec> make_one_bit_codec(std::vector<Matrix> matrices);
// The elements of largest magnitude with their indices (Aji and Heafield, EMNLP 2017): ceil(fraction * elements) of
// them; of equal magnitudes the first. Throws std::invalid_argument unless 0 < fraction <= 1 and elements < 2^32.
std::unique_ptr<GradientCodec> make_top_k_codec(std::size_t elements, double fraction);
// For a bucket of these matrices. Null for Codec::kNone.
std::unique_ptr<GradientCodec> make_codec(const CodecOptions& options, const std::vector<Matrix>& matrices);

// Error feedback for one bucket: what an encoding left out is added to the next step's gradient, so it is late, not
// lost. On every rank for itself.
class ErrorFeedback {
 public:
  // `codec` must outlive it.
  explicit ErrorFeedback(const GradientCodec& codec);

  // Encodes gradient + residual; the residual becomes what the blob lacks of that sum. After an error it is unchanged.
  Result<void> encode(std::span<const float> gradient, std::span<std::byte> blob);

  std::span<const float> residual() const { return residual_; }
  std::span<float> residual() { return residual_; }  // for checkpoints

 private:
  const GradientCodec& codec_;
  std::vector<float> residual_;
  std::vector<float> corrected_;
  std::vector<float> sent_;
};

}  // namespace clustar::bench::trainer
