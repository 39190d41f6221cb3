#include "bench/trainer/codec.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <stdexcept>
#include <utility>

namespace clustar::bench::trainer {
namespace {

constexpr float kNotFinite = std::numeric_limits<float>::quiet_NaN();
constexpr std::uint32_t kMagnitudeBits = 0x7fffffff;

Result<void> require_finite(std::span<const float> values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i])) continue;
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("element {} of {} is {} and cannot be encoded: the training diverged; try a smaller rate",
                            i, values.size(), values[i]));
  }
  return {};
}

Error not_finite_elsewhere() {
  return {ErrorCode::kInvalidArgument,
          "the gradient that it was made of is not finite: the training diverged; try a smaller rate"};
}

std::size_t elements_of(const std::vector<Matrix>& matrices) {
  std::size_t elements = 0;
  for (const Matrix& matrix : matrices) elements += matrix.rows * matrix.columns;
  return elements;
}

template <class T>
T load(std::span<const std::byte> blob, std::size_t offset) {
  T value;
  std::memcpy(&value, blob.data() + offset, sizeof value);
  return value;
}

template <class T>
void store(std::span<std::byte> blob, std::size_t offset, T value) {
  std::memcpy(blob.data() + offset, &value, sizeof value);
}

Result<void> require_size(std::size_t is, std::size_t shall_be) {
  if (is == shall_be) return {};
  return fail(ErrorCode::kRemote, fmt::format("it has {} bytes; allowed: {}", is, shall_be));
}

// Per column of each matrix: float32 mean of its elements below 0, float32 mean of its others. Then a bit per element
// of the bucket, lowest bit of a byte first: 1 = not below 0. Bits behind the last element are 0.
class OneBitCodec final : public GradientCodec {
 public:
  explicit OneBitCodec(std::vector<Matrix> matrices)
      : matrices_(std::move(matrices)), elements_(elements_of(matrices_)), header_(0) {
    for (const Matrix& matrix : matrices_) header_ += matrix.columns * sizeof(Means);
  }

  std::size_t elements() const override { return elements_; }
  std::size_t encoded_bytes() const override { return header_ + (elements_ + 7) / 8; }

  Result<void> encode(std::span<const float> values, std::span<std::byte> blob) const override {
    if (values.empty()) return {};
    if (auto ok = require_finite(values); !ok) {
      store(blob, 0, kNotFinite);
      return ok;
    }
    encode_signs(values, blob.subspan(header_));
    std::size_t at = 0;
    std::size_t column = 0;
    for (const Matrix& matrix : matrices_) {
      const auto part = values.subspan(at, matrix.rows * matrix.columns);
      encode_means(part, matrix.columns, blob.subspan(column * sizeof(Means), matrix.columns * sizeof(Means)));
      at += part.size();
      column += matrix.columns;
    }
    return {};
  }

  Result<void> add_decoded(std::span<const std::byte> blob, std::span<float> sum) const override {
    if (auto ok = require_size(blob.size(), encoded_bytes()); !ok) return ok;
    std::vector<Means> means(header_ / sizeof(Means));
    if (!means.empty()) std::memcpy(means.data(), blob.data(), header_);
    for (const Means& pair : means) {
      if (!std::isfinite(pair[0]) || !std::isfinite(pair[1])) return tl::unexpected(not_finite_elsewhere());
    }
    const std::span<const std::byte> bits = blob.subspan(header_);
    std::size_t at = 0;
    const Means* of_matrix = means.data();
    for (const Matrix& matrix : matrices_) {
      for (std::size_t row = 0; row < matrix.rows; ++row) {
        for (std::size_t column = 0; column < matrix.columns; ++column, ++at) {
          sum[at] += of_matrix[column][std::to_integer<unsigned>(bits[at / 8]) >> at % 8 & 1];
        }
      }
      of_matrix += matrix.columns;
    }
    return {};
  }

 private:
  using Means = std::array<float, 2>;  // of the elements below 0, of the others

  static void encode_signs(std::span<const float> values, std::span<std::byte> bits) {
    for (std::size_t at = 0; at < values.size(); at += 8) {
      const std::size_t end = std::min(values.size(), at + 8);
      unsigned byte = 0;
      for (std::size_t i = at; i < end; ++i) byte |= (values[i] < 0 ? 0u : 1u) << (i - at);
      bits[at / 8] = static_cast<std::byte>(byte);
    }
  }

  static void encode_means(std::span<const float> values, std::size_t columns, std::span<std::byte> blob) {
    // In double, so that the sum of a long column keeps the small elements.
    std::vector<std::array<double, 2>> sums(columns);
    std::vector<std::array<std::size_t, 2>> counts(columns);
    for (std::size_t i = 0; i < values.size();) {
      for (std::size_t column = 0; column < columns; ++column, ++i) {
        const std::size_t side = values[i] < 0 ? 0 : 1;
        sums[column][side] += static_cast<double>(values[i]);
        ++counts[column][side];
      }
    }
    for (std::size_t column = 0; column < columns; ++column) {
      Means means{};
      for (std::size_t side = 0; side < 2; ++side) {
        const auto count = static_cast<double>(counts[column][side]);
        if (count > 0) means[side] = static_cast<float>(sums[column][side] / count);
      }
      store(blob, column * sizeof(Means), means);
    }
  }

  std::vector<Matrix> matrices_;
  std::size_t elements_;
  std::size_t header_;  // bytes
};

// uint32 indices in rising order, then the float32 values in the same order.
class TopKCodec final : public GradientCodec {
 public:
  TopKCodec(std::size_t elements, double fraction)
      : elements_(elements),
        kept_(std::min(elements, static_cast<std::size_t>(std::ceil(fraction * static_cast<double>(elements))))) {}

  std::size_t elements() const override { return elements_; }
  std::size_t encoded_bytes() const override { return kept_ * (sizeof(std::uint32_t) + sizeof(float)); }

  Result<void> encode(std::span<const float> values, std::span<std::byte> blob) const override {
    const std::size_t k = kept_;
    if (k == 0) return {};
    if (auto ok = require_finite(values); !ok) {
      store(blob, 0, kNoIndex);
      return ok;
    }
    const auto [threshold, above] = smallest_kept(values, k);
    std::size_t equal_left = k - above;
    std::size_t slot = 0;
    for (std::size_t i = 0; i < values.size() && slot < k; ++i) {
      const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(values[i]) & kMagnitudeBits;
      if (magnitude < threshold || (magnitude == threshold && equal_left == 0)) continue;
      if (magnitude == threshold) --equal_left;
      store(blob, slot * sizeof(std::uint32_t), static_cast<std::uint32_t>(i));
      store(blob, k * sizeof(std::uint32_t) + slot * sizeof(float), values[i]);
      ++slot;
    }
    return {};
  }

  Result<void> add_decoded(std::span<const std::byte> blob, std::span<float> sum) const override {
    if (auto ok = require_size(blob.size(), encoded_bytes()); !ok) return ok;
    const std::size_t k = kept_;
    for (std::size_t slot = 0; slot < k; ++slot) {
      const auto index = load<std::uint32_t>(blob, slot * sizeof(std::uint32_t));
      const auto value = load<float>(blob, k * sizeof(std::uint32_t) + slot * sizeof(float));
      if (index == kNoIndex || !std::isfinite(value)) return tl::unexpected(not_finite_elsewhere());
      if (index >= sum.size()) {
        return fail(ErrorCode::kRemote, fmt::format("it names element {}; allowed: 0 to {}", index, sum.size() - 1));
      }
      sum[index] += value;
    }
    return {};
  }

 private:
  static constexpr std::uint32_t kNoIndex = 0xffffffff;

  // The k-th largest magnitude, as bits (finite floats of one sign are ordered as their bits are), and how many are
  // larger.
  static std::pair<std::uint32_t, std::size_t> smallest_kept(std::span<const float> values, std::size_t k) {
    std::vector<std::uint32_t> magnitudes(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      magnitudes[i] = std::bit_cast<std::uint32_t>(values[i]) & kMagnitudeBits;
    }
    const auto last = magnitudes.begin() + static_cast<std::ptrdiff_t>(k - 1);
    std::nth_element(magnitudes.begin(), last, magnitudes.end(), std::greater<>());
    const std::uint32_t threshold = *last;
    const auto above = std::count_if(magnitudes.begin(), last, [&](std::uint32_t m) { return m > threshold; });
    return {threshold, static_cast<std::size_t>(above)};
  }

  std::size_t elements_;
  std::size_t kept_;
};

}  // namespace

const char* to_string(Codec codec) {
  switch (codec) {
    case Codec::kNone: return "none";
    case Codec::kOneBit: return "onebit";
    case Codec::kTopK: return "topk";
  }
  return "?";
}

const char* to_string(CodecPath path) {
  switch (path) {
    case CodecPath::kGather: return "gather";
    case CodecPath::kReduce: return "reduce";
  }
  return "?";
}

std::unique_ptr<GradientCodec> make_one_bit_codec(std::vector<Matrix> matrices) {
  return std::make_unique<OneBitCodec>(std::move(matrices));
}

std::unique_ptr<GradientCodec> make_top_k_codec(std::size_t elements, double fraction) {
  if (!(fraction > 0 && fraction <= 1)) {
    throw std::invalid_argument(
        fmt::format("top-k cannot send {} of the elements; allowed: above 0, at most 1", fraction));
  }
  if (elements > std::numeric_limits<std::uint32_t>::max()) {
    throw std::invalid_argument(
        fmt::format("top-k takes buckets of less than 2^32 elements, not {}; make the buckets smaller", elements));
  }
  return std::make_unique<TopKCodec>(elements, fraction);
}

std::unique_ptr<GradientCodec> make_codec(const CodecOptions& options, const std::vector<Matrix>& matrices) {
  switch (options.codec) {
    case Codec::kNone: break;
    case Codec::kOneBit: return make_one_bit_codec(matrices);
    case Codec::kTopK: return make_top_k_codec(elements_of(matrices), options.topk_fraction);
  }
  return nullptr;
}

ErrorFeedback::ErrorFeedback(const GradientCodec& codec)
    : codec_(codec), residual_(codec.elements()), corrected_(codec.elements()), sent_(codec.elements()) {}

Result<void> ErrorFeedback::encode(std::span<const float> gradient, std::span<std::byte> blob) {
  for (std::size_t i = 0; i < residual_.size(); ++i) corrected_[i] = gradient[i] + residual_[i];
  if (auto ok = codec_.encode(corrected_, blob); !ok) return ok;
  std::fill(sent_.begin(), sent_.end(), 0.0f);
  if (auto ok = codec_.add_decoded(blob, sent_); !ok) return ok;
  for (std::size_t i = 0; i < residual_.size(); ++i) residual_[i] = corrected_[i] - sent_[i];
  return {};
}

}  // namespace clustar::bench::trainer
