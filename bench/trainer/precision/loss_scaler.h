// Loss scaling: gradients too small for a 16-bit type are computed times a scale, and divided by it before the update.
// Pure: no communication.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "bench/trainer/precision/precision.h"
#include "transport/base/result.h"

namespace clustar::bench::trainer {

enum class LossScaling : std::uint8_t { kNone, kStatic, kDynamic };

inline constexpr double kDefaultLossScale = 65536;      // GradScaler's init_scale
inline constexpr double kLeastLossScale = 1.0 / 65536;  // below which a dynamic scale ends the run
inline constexpr double kMostLossScale = 16777216;      // that can be given, and to which a dynamic one grows
inline constexpr int kDefaultLossScaleInterval = 2000;  // GradScaler's growth_interval

struct LossScaleOptions {
  LossScaling scaling = LossScaling::kNone;
  double scale = kDefaultLossScale;  // kDynamic: of the first step
  int interval = kDefaultLossScaleInterval;
  bool operator==(const LossScaleOptions&) const = default;
};

// "none", "dynamic", "dynamic=SCALE" or a number: a static scale. kInvalidArgument says what is allowed.
Result<LossScaleOptions> parse_loss_scale(std::string_view text);
std::string to_text(const LossScaleOptions& options);  // "none", "1024", "dynamic=65536"
// What a run has that names none: dynamic for float16; none for bfloat16, whose exponents are those of float32.
LossScaleOptions usual_loss_scale(Precision precision);

// As PyTorch's torch.amp.GradScaler, but with a limit: a dynamic scale doubles after so many steps in a row whose
// gradients were finite, and halves after one with a gradient that was not. A step that was not finite, dynamic or
// static, changes no parameter. Ranks that tell it the same have the same scale.
class LossScaler {
 public:
  explicit LossScaler(const LossScaleOptions& options);

  bool is_on() const { return options_.scaling != LossScaling::kNone; }
  float scale() const { return state_[0]; }  // of this step's loss; 1 when off
  // Once a step, when all gradients' sums are known, on every rank alike.
  void settle(bool finite);
  // What ends the run, for people; empty: nothing. A scale that went below kLeastLossScale, and, of all steps of a run,
  // that none of them counted.
  std::string exhausted(double rate) const;
  std::string useless(std::uint64_t steps) const;

  std::uint64_t skipped_steps() const { return skipped_; }
  // The scale, and how many steps in a row were finite: what a checkpoint keeps.
  std::array<float, 2> state() const { return state_; }
  void set_state(const std::array<float, 2>& state) { state_ = state; }

 private:
  LossScaleOptions options_;
  std::array<float, 2> state_;
  std::uint64_t skipped_ = 0;
};

}  // namespace clustar::bench::trainer
