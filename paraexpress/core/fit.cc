#include "paraexpress/core/fit.h"

#include <algorithm>

#include "paraexpress/core/plans/build.h"

namespace clustar::paraexpress {
namespace {

constexpr double kLeastLatency = 1e-7;
constexpr double kEndless = 1e13;  // bytes per second
constexpr int kHalvings = 60;

// The `x` in [least, most] at which the rising f(x) passes `at`, or the nearest end.
template <class F>
double where(double least, double most, double at, const F& f) {
  if (f(least) >= (1 - 1e-9) * at) return least;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (least + most) / 2;
    (f(middle) < at ? least : most) = middle;
  }
  return least;
}

Shape shape(Plan plan, const Group& group, double rate) {
  Network network;
  network.nic_bytes_per_s = rate;
  return shape_of(build(plan, group), group, network);
}

}  // namespace

Network fit(const Group& group, const Measured& measured, const Network& base) {
  Network network = base;
  network.lag_s.clear();
  const Shape direct = shape(Plan::kDirect, group, kEndless), ring = shape(Plan::kRing, group, kEndless);
  const auto seconds = [&](const Shape& of) { return cost(of, network, measured.small_bytes, 1).seconds; };
  const double most = std::max({measured.direct_small_s, measured.ring_small_s, kLeastLatency});
  // For each work per message there is a latency that gives the ring's time; then direct, which has fewer steps and
  // more messages in each, says how much work it is.
  const auto ring_latency = [&] {
    network.latency_s = where(kLeastLatency, most, measured.ring_small_s, [&](double latency) {
      network.latency_s = latency;
      return seconds(ring);
    });
  };
  network.message_s = where(0, most, measured.direct_small_s, [&](double message) {
    network.message_s = message;
    ring_latency();
    return seconds(direct);
  });
  ring_latency();
  // A byte's time at every NIC and uplink goes with that at a NIC.
  const Shape of_one = shape(Plan::kDirect, group, 1);
  const double byte_time = where(1 / kEndless, 1, measured.direct_large_s, [&](double seconds_per_byte) {
    Shape large = of_one;
    for (Shape::Step& step : large.up) step.seconds_per_byte *= seconds_per_byte;
    large.busiest_seconds_per_byte *= seconds_per_byte;
    return cost(large, network, measured.large_bytes, 1).seconds;
  });
  network.nic_bytes_per_s = 1 / byte_time;
  return network;
}

}  // namespace clustar::paraexpress
