#include "mlt/core/importance.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "mlt/core/bitmap.h"
#include "mlt/core/options_check.h"
#include "mlt/core/ppm.h"
#include "mlt/core/wire.h"

namespace clustar::mlt {

namespace {

// 1/16 octave: fine against the spread of the scores (about 1/4 octave for means of 16 normal values), coarse enough to
// follow a tenfold fall of the gradients within about 1,000 packets.
constexpr std::int64_t kStep = (1 << 23) / 16;

template <class Bits>
Bits load(const std::byte* at) {
  Bits bits;
  std::memcpy(&bits, at, sizeof(bits));
  return bits;
}

float from_f16(std::uint16_t half) {
  const std::uint32_t exponent = half >> 10 & 0x1f;
  const std::uint32_t fraction = half & 0x3ffu;
  if (exponent == 0) return static_cast<float>(fraction) * 0x1p-24f;  // denormal, or 0
  const std::uint32_t wide = exponent == 0x1f ? 0xff : exponent - 15 + 127;
  return std::bit_cast<float>(wide << 23 | fraction << 13);  // the sign does not matter
}

float magnitude(const std::byte* at, FloatType type) {
  switch (type) {
    case FloatType::kF32: return std::bit_cast<float>(load<std::uint32_t>(at) & 0x7fffffffu);
    case FloatType::kF16: return from_f16(load<std::uint16_t>(at) & 0x7fffu);
    case FloatType::kBf16: return std::bit_cast<float>((load<std::uint16_t>(at) & 0x7fffu) << 16);
  }
  return 0;
}

}  // namespace

MagnitudeSampler::MagnitudeSampler(const Options& options) : options_(options) {
  require_option(options.fraction_ppm <= kMillion, "MagnitudeSampler: fraction_ppm must be 0 .. 1000000");
  require_option(options.samples >= 1 && options.samples <= kMaxSamples, "MagnitudeSampler: samples must be 1 .. 64");
}

// NaN or infinity when one of the samples is.
double MagnitudeSampler::sampled_mean(std::span<const std::byte> payload, FloatType type) {
  const std::size_t size = size_of(type);
  const std::size_t values = payload.size() / size;
  const std::size_t samples = std::min<std::size_t>(values, options_.samples);
  if (samples == 0) return 0;
  // Equally spaced, from a start that moves by the golden ratio, so that no column of a matrix is always or never seen.
  const std::size_t stride = values / samples;
  const std::uint32_t turn = packets_++ * 0x9e3779b9u;
  std::size_t index = static_cast<std::size_t>(std::uint64_t{turn} * stride >> 32);
  double sum = 0;
  for (std::size_t i = 0; i < samples; ++i, index += stride) sum += magnitude(payload.data() + index * size, type);
  return sum / static_cast<double>(samples);
}

bool MagnitudeSampler::important(std::span<const std::byte> payload, FloatType type) {
  const double mean = sampled_mean(payload, type);
  if (!std::isfinite(mean)) return true;
  const auto score = std::int64_t{std::bit_cast<std::int32_t>(static_cast<float>(mean))} * kMillion;
  if (score == 0 || options_.fraction_ppm == 0) return false;
  if (!started_) {
    started_ = true;
    threshold_ = score;
  }
  const bool above = score > threshold_;
  const std::int64_t fraction = options_.fraction_ppm;
  threshold_ += above ? kStep * (kMillion - fraction) : -kStep * fraction;
  // The ends of the scale; from -1 all scores are above.
  threshold_ = std::clamp(threshold_, std::int64_t{-1}, std::int64_t{0x7f800000} * kMillion);
  return above;
}

double MagnitudeSampler::threshold() const {
  return threshold_ <= 0 ? 0
                         : static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(threshold_ / kMillion)));
}

bool mark_important(MagnitudeSampler& sampler, std::span<const std::byte> message, FloatType type,
                    std::uint16_t segment, PacketBitmap& important) {
  if (segment < kMinSegment || segment % size_of(type) != 0 || message.size() > kMaxMessageBytes) return false;
  const auto bytes = static_cast<std::uint32_t>(message.size());
  if (!important.reset(packet_count(bytes, segment))) return false;
  for (std::uint32_t i = 0; i < important.size(); ++i) {
    const auto packet = message.subspan(std::size_t{i} * segment, packet_bytes(i, bytes, segment));
    if (sampler.important(packet, type)) important.set(i);
  }
  return true;
}

}  // namespace clustar::mlt
