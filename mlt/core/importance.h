// Which packets matter more than others: by the magnitude of their gradients.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace clustar::mlt {

enum class FloatType : std::uint8_t { kF32, kF16, kBf16 };
constexpr std::size_t size_of(FloatType type) { return type == FloatType::kF32 ? 4 : 2; }

// Tells the packets with the largest gradients: their loss costs most (MLT, NSDI 2024; DGT, FGCS 2021). Value type;
// reads about 16 values of each packet. Only for payload in host memory.
//
// A packet's score is the mean magnitude of the values sampled. It is important when the score is above a threshold
// that follows the (1 - fraction) quantile by stochastic approximation (Robbins and Monro, 1951): up by step * (1 -
// fraction) after an important packet, down by step * fraction after another. Scores and threshold live on a
// logarithmic scale, so one step suits gradients of any size. Because important packets push it up exactly as far as
// the others let it down, the fraction holds over a long run whatever the distribution is, also when all values are
// equal; a jump of the gradients by a factor 2 costs about 16 packets too many, or too few.
class MagnitudeSampler {
 public:
  static constexpr std::uint32_t kMaxSamples = 64;
  struct Options {
    std::uint32_t fraction_ppm = 50'000;  // of packets that are important, 0 .. 1,000,000
    std::uint32_t samples = 16;           // values per packet, 1 .. kMaxSamples
  };
  MagnitudeSampler() : MagnitudeSampler(Options{}) {}
  explicit MagnitudeSampler(const Options& options);  // std::invalid_argument

  // `payload` starts at a value; it needs no alignment. NaN and infinity are important and leave the threshold alone:
  // somebody who debugs a divergence wants to see them. A packet of zeroes (as sampled) is not important, and leaves
  // the threshold alone too: its loss changes nothing, for holes are filled with zeroes.
  bool important(std::span<const std::byte> payload, FloatType type);

  double threshold() const;  // mean magnitude; 0 before the first packet

 private:
  double sampled_mean(std::span<const std::byte> payload, FloatType type);

  Options options_;
  std::uint32_t packets_ = 0;  // moves the sampled positions from packet to packet
  bool started_ = false;
  std::int64_t threshold_ = 0;  // bits of a positive float, a piecewise linear logarithm, times 10^6
};

class PacketBitmap;
// Marks in `important`, resized to the message, each packet of `message` that `sampler` finds important. `segment`:
// payload bytes of a packet, a multiple of the value's size, so that none is cut. False: the message has more packets
// than a bitmap holds, or the segment is not such a multiple.
[[nodiscard]] bool mark_important(MagnitudeSampler& sampler, std::span<const std::byte> message, FloatType type,
                                  std::uint16_t segment, PacketBitmap& important);

}  // namespace clustar::mlt
