#include "paraexpress/core/fit.h"

#include <algorithm>
#include <cmath>

namespace clustar::paraexpress {
namespace {

constexpr double kLeastLatency = 1e-7;
constexpr double kEndless = 1e13;  // bytes per second
constexpr int kHalvings = 40;
constexpr double kMostHeaders = 4096;  // bytes
constexpr int kHeaderHalvings = 12;    // to one of them
constexpr double kWithin = 0.01;

// The `x` in [least, most] at which the rising f(x) passes `at`, or the nearest end.
template <class F>
double where(double least, double most, double at, const F& f) {
  if (f(least) >= (1 - 1e-9) * at) return least;
  for (int i = 0; i < kHalvings; ++i) {
    // By factors where it can: a byte at 800 Gbit/s is 1e-11 of the range that a rate is searched in.
    const double middle = least > 0 ? std::sqrt(least * most) : (least + most) / 2;
    (f(middle) < at ? least : most) = middle;
  }
  return least;
}

Shape shape_at_one(Plan plan, const Group& group) {
  Network network;
  network.nic_bytes_per_s = 1;
  return shape_of(build(plan, group), group, network);
}

class Fitting {
 public:
  Fitting(const Group& group, const Measured& measured, const Network& base)
      : measured_(measured),
        network_(base),
        direct_(shape_at_one(Plan::kDirect, group)),
        ring_(shape_at_one(Plan::kRing, group)),
        server_(shape_at_one(Plan::kServer, group)),
        most_(std::max({measured.direct_small_s, measured.ring_small_s, kLeastLatency})) {
    network_.lag_s.clear();
    network_.message_bytes = 0;
  }

  Network operator()() {
    // 64 bytes take no time of their own.
    network_.nic_bytes_per_s = kEndless;
    messages();
    rate();
    const double by_middle = headers_by_middle(), by_server = headers_by_server();
    with_headers(std::max(by_middle, by_server));
    return network_;
  }

 private:
  double seconds(const Shape& at_one, std::uint64_t bytes) const {
    return cost(slower(at_one, 1 / network_.nic_bytes_per_s), network_, bytes, 1).seconds;
  }

  // For each work per message there is a latency that gives the ring's time; then direct, which has fewer steps and
  // more messages in each, says how much work it is.
  void messages() {
    const Shape direct = slower(direct_, 1 / network_.nic_bytes_per_s);
    const Shape ring = slower(ring_, 1 / network_.nic_bytes_per_s);
    const auto small = [&](const Shape& of) { return cost(of, network_, measured_.small_bytes, 1).seconds; };
    const auto ring_latency = [&] {
      network_.latency_s = where(kLeastLatency, most_, measured_.ring_small_s, [&](double latency) {
        network_.latency_s = latency;
        return small(ring);
      });
    };
    network_.message_s = where(0, most_, measured_.direct_small_s, [&](double message) {
      network_.message_s = message;
      ring_latency();
      return small(direct);
    });
    ring_latency();
  }

  void rate() {
    const double byte_time = where(1 / kEndless, 1, measured_.direct_large_s, [&](double seconds_per_byte) {
      network_.nic_bytes_per_s = 1 / seconds_per_byte;
      return seconds(direct_, measured_.large_bytes);
    });
    network_.nic_bytes_per_s = 1 / byte_time;
  }

  void with_headers(double bytes) {
    network_.message_bytes = bytes;
    // Headers take their time at the rate, which is less than the line's where headers count as bytes.
    messages();
    rate();
    messages();
    rate();
  }

  // The most for which `fits`, and for which direct's small messages take no longer than they do.
  template <class Fits>
  double most_headers(const Fits& fits) {
    double low = 0, high = kMostHeaders;
    for (int i = 0; i < kHeaderHalvings; ++i) {
      const double middle = (low + high) / 2;
      with_headers(middle);
      const bool small = seconds(direct_, measured_.small_bytes) <= (1 + kWithin) * measured_.direct_small_s;
      (small && fits() ? low : high) = middle;
    }
    return low;
  }

  // As many as the times allow: a little work beside them gives the same times of direct, but counts more in plans of
  // more messages per host.
  double headers_by_middle() {
    if (!(measured_.direct_middle_s > 0)) return 0;
    return most_headers(
        [&] { return seconds(direct_, measured_.middle_bytes) <= (1 + kWithin) * measured_.direct_middle_s; });
  }

  // The more headers, the less work, and the sooner the server ends; none where that does not explain its time.
  double headers_by_server() {
    if (!(measured_.server_small_s > 0)) return 0;
    const auto server = [&] { return seconds(server_, measured_.small_bytes); };
    with_headers(0);
    const double without = server() - measured_.server_small_s;
    if (without <= kWithin * measured_.server_small_s) return 0;
    const double bytes = most_headers([&] { return server() >= measured_.server_small_s; });
    with_headers(bytes);
    return server() - measured_.server_small_s <= without / 2 ? bytes : 0;
  }

  const Measured& measured_;
  Network network_;
  const Shape direct_, ring_, server_;
  const double most_;
};

}  // namespace

std::uint64_t middle_bytes(const Measured& measured) {
  const double beyond = measured.direct_large_s - measured.direct_small_s;
  const double large = static_cast<double>(measured.large_bytes);
  const double alike = beyond > 0 ? measured.direct_small_s / beyond * large : large;
  return std::clamp(static_cast<std::uint64_t>(std::min(alike, large)), measured.small_bytes,
                    std::max(measured.small_bytes, measured.large_bytes / 4));
}

Measured measured_by(const std::function<double(Plan plan, std::uint64_t bytes)>& seconds, const Measured& sizes) {
  Measured measured = sizes;
  measured.direct_small_s = seconds(Plan::kDirect, measured.small_bytes);
  measured.ring_small_s = seconds(Plan::kRing, measured.small_bytes);
  measured.server_small_s = seconds(Plan::kServer, measured.small_bytes);
  measured.direct_large_s = seconds(Plan::kDirect, measured.large_bytes);
  measured.middle_bytes = middle_bytes(measured);
  measured.direct_middle_s = seconds(Plan::kDirect, measured.middle_bytes);
  return measured;
}

Network fit(const Group& group, const Measured& measured, const Network& base) {
  return Fitting(group, measured, base)();
}

}  // namespace clustar::paraexpress
