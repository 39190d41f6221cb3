#include "transport/io/decorators/fault_dice.h"

namespace clustar::transport::io {
namespace {

Rng stream_of(const FaultSpec& spec, std::uint64_t stream, std::uint64_t fault) {
  return Rng(mix64(mix64(spec.seed) + (stream * 16 + fault) * kGoldenGamma));
}

}  // namespace

FaultDice::FaultDice(const FaultSpec& spec, std::uint64_t stream)
    : spec_(spec),
      loss_(stream_of(spec, stream, 0)),
      burst_(stream_of(spec, stream, 1)),
      reorder_(stream_of(spec, stream, 2)),
      duplicate_(stream_of(spec, stream, 3)),
      corrupt_(stream_of(spec, stream, 4)),
      jitter_(stream_of(spec, stream, 5)) {}

Fate FaultDice::roll(std::uint8_t path, std::uint8_t traffic_class) {
  Fate fate;
  if (!spec_.applies(path, traffic_class)) return fate;
  if (spec_.loss > 0) fate.lost = loss_.chance(spec_.loss);
  if (spec_.burst_enter > 0) {
    if (burst_.chance(bad_ ? spec_.burst_leave : spec_.burst_enter)) bad_ = !bad_;
    const bool unlucky = burst_.chance(spec_.burst_loss);
    fate.burst_lost = bad_ && unlucky && !fate.lost;
  }
  if (spec_.reorder > 0) fate.held_back = reorder_.chance(spec_.reorder);
  if (spec_.duplicate > 0) fate.duplicated = duplicate_.chance(spec_.duplicate);
  if (spec_.corrupt > 0) {
    fate.corrupted = corrupt_.chance(spec_.corrupt);
    fate.corrupt_draw = corrupt_.next();
  }
  fate.delayed = spec_.delays();
  fate.delay = spec_.delay;
  if (spec_.jitter > Duration::zero()) {
    fate.delay += Duration(jitter_.below(static_cast<std::uint64_t>(spec_.jitter.count()) + 1));
  }
  return fate;
}

}  // namespace clustar::transport::io
