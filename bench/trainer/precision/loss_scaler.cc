#include "bench/trainer/precision/loss_scaler.h"

#include <fmt/format.h>

#include <charconv>

namespace clustar::bench::trainer {
namespace {

constexpr float kGrowth = 2;
constexpr float kBackoff = 0.5;
constexpr std::string_view kDynamic = "dynamic";

// Nothing but a number in the range.
bool read_scale(std::string_view text, double& scale) {
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, scale);
  return read.ec == std::errc() && read.ptr == end && scale >= 1 && scale <= kMostLossScale;
}

}  // namespace

Result<LossScaleOptions> parse_loss_scale(std::string_view text) {
  LossScaleOptions options;
  if (text == "none") return options;
  std::string_view number = text;
  options.scaling = LossScaling::kStatic;
  if (text.starts_with(kDynamic)) {
    options.scaling = LossScaling::kDynamic;
    if (text == kDynamic) return options;
    number.remove_prefix(kDynamic.size());
    if (number.front() == '=') {
      number.remove_prefix(1);
    } else {
      number = {};
    }
  }
  if (read_scale(number, options.scale)) return options;
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("'{}' is no loss scale; allowed: none, dynamic, dynamic=SCALE or SCALE, from 1 to {:.0f}",
                          text, kMostLossScale));
}

std::string to_text(const LossScaleOptions& options) {
  switch (options.scaling) {
    case LossScaling::kNone: return "none";
    case LossScaling::kStatic: return fmt::format("{}", options.scale);
    case LossScaling::kDynamic: return fmt::format("dynamic={}", options.scale);
  }
  return "?";
}

LossScaleOptions usual_loss_scale(Precision precision) {
  LossScaleOptions options;
  if (precision == Precision::kFloat16) options.scaling = LossScaling::kDynamic;
  return options;
}

LossScaler::LossScaler(const LossScaleOptions& options)
    : options_(options), state_{options.scaling == LossScaling::kNone ? 1.0F : static_cast<float>(options.scale), 0} {}

void LossScaler::settle(bool finite) {
  if (!is_on()) return;
  if (!finite) ++skipped_;
  if (options_.scaling != LossScaling::kDynamic) return;
  auto& [scale, in_a_row] = state_;
  if (!finite) {
    scale *= kBackoff;
    in_a_row = 0;
  } else if (++in_a_row >= static_cast<float>(options_.interval)) {
    // Far beyond it 1 / scale is a denormal number, which the training's threads take for zero.
    if (scale * kGrowth <= static_cast<float>(kMostLossScale)) scale *= kGrowth;
    in_a_row = 0;
  }
}

std::string LossScaler::exhausted(double rate) const {
  if (!is_on() || scale() >= static_cast<float>(kLeastLossScale)) return "";
  return fmt::format(
      "gradients were not finite in {} steps, whatever the loss scale, which is {:.3g} now: the training diverged; try "
      "a smaller rate than {}",
      skipped_, scale(), rate);
}

std::string LossScaler::useless(std::uint64_t steps) const {
  if (!is_on() || steps == 0 || skipped_ < steps) return "";
  return fmt::format(
      "none of {} steps counted: with a loss scale of {:.9g} at the end, gradients were not finite in any; try a "
      "smaller "
      "--loss-scale{}",
      steps, scale(), options_.scaling == LossScaling::kDynamic ? ", or more steps" : "");
}

}  // namespace clustar::bench::trainer
