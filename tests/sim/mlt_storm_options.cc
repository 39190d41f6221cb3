// Options of the storm: every one of them drawn, within what the core allows and what somebody might choose.
#include <algorithm>

#include "mlt/driver/driver_options.h"
#include "tests/sim/mlt_storm_plan.h"
#include "transport/base/rng.h"

namespace clustar::mlt::test {
namespace {

using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

Duration in_us(double us) { return Duration(static_cast<std::int64_t>(1000 * us)); }

// A round trip that somebody guessed.
Duration guess(Duration round_trip, Rng& rng) {
  const double factor = rng.chance(0.5) ? 1 : scaled(rng, 0.01, 100);
  return std::clamp<Duration>(Duration(static_cast<std::int64_t>(factor * static_cast<double>(round_trip.count()))),
                              microseconds(1), seconds(1));
}

std::uint16_t draw_segment(Rng& rng) {
  if (rng.chance(0.5)) return pick<std::uint16_t>(rng, {64, 256, 1000, 1024, 1352, 1408, 4096, 8900});
  return static_cast<std::uint16_t>(scaled(rng, 64, 8900));
}

template <class Window>
void draw_window(Window& window, Rng& rng) {
  window.segment = static_cast<std::uint32_t>(between(rng, 64, 9000));
  window.initial = window.segment * between(rng, 1, 64);
  window.maximum = window.initial + static_cast<std::uint64_t>(scaled(rng, 1 << 16, 64 << 20));
  window.mark_gain = pick<double>(rng, {1.0 / 16, 1.0 / 16, 1.0 / 256, 1});
}

// What a long packet takes longer than a short one, at two ports, and one behind another.
Duration no_queue(const StormPlan& plan) {
  return Duration(static_cast<Duration::rep>(4 * std::uint64_t{8900} * 8'000'000'000 / plan.rate_bps));
}

Congestion draw_congestion(const StormPlan& plan, Rng& rng) {
  const double kind = rng.uniform();
  if (kind < 0.5) {
    DctcpSwift::Options options;
    options.queue_target = std::max(options.queue_target, no_queue(plan));
    return DctcpSwift(options);
  }
  if (kind < 0.75) {
    DctcpSwift::Options options;
    draw_window(options, rng);
    options.queue_target = in_us(scaled(rng, 5, 5'000)) + no_queue(plan);
    options.scaling_range = in_us(scaled(rng, 1, 10'000));
    options.beta = pick<double>(rng, {0.8, 0.2, 1});
    options.max_cut = pick<double>(rng, {0.5, 0.1, 0.9});
    options.drain_epochs = static_cast<std::uint32_t>(between(rng, 16, 1024));
    options.severe_loss = pick<double>(rng, {0.2, 0, 1});
    options.burst_epochs = pick<std::uint32_t>(rng, {64, 0, 1000});
    options.yield_epochs = pick<std::uint32_t>(rng, {8, 1, 100});
    return DctcpSwift(options);
  }
  if (kind < 0.9) {
    Dctcp::Options options;
    draw_window(options, rng);
    return Dctcp(options);
  }
  const std::uint64_t rate = plan.rate_bps / 8;
  // A window that never grows is at least what a round trip holds.
  const auto trip =
      static_cast<std::uint64_t>(std::chrono::duration<double>(plan.round_trip).count() * static_cast<double>(rate));
  const std::uint64_t window = trip + between(rng, 10'000, 256 * 1024);
  return FixedRate({.window = window, .rate = between(rng, rate / 2, rate)});
}

PathOptions draw_path_options(Rng& rng) {
  PathOptions path;
  if (rng.chance(0.5)) return path;
  path.loss_threshold = scaled(rng, 0.001, 0.5);
  path.silent_losses = static_cast<std::uint8_t>(between(rng, 2, 32));
  path.backoff = in_us(scaled(rng, 1, 50'000));
  path.backoff_max = path.backoff * static_cast<std::int64_t>(between(rng, 1, 100));
  path.probe_packets = static_cast<std::uint8_t>(between(rng, 1, 64));
  path.probe_timeout = in_us(scaled(rng, 100, 200'000));
  return path;
}

Classes draw_classes(Rng& rng) {
  if (rng.chance(0.4)) return Classes();
  if (rng.chance(0.4)) return Classes({.traffic_class = {7, 6, 5, 4, 4, 4}});
  Classes::Options options;
  for (std::uint8_t& traffic_class : options.traffic_class) traffic_class = static_cast<std::uint8_t>(rng.below(8));
  options.front_ppm = static_cast<std::uint32_t>(rng.below(1'000'001));
  return Classes(options);
}

// What both ends of a connection need alike.
void draw_common(Options& options, Rng& rng) {
  options.paths = pick<std::uint8_t>(rng, {1, 1, 2, 4, 8, 8, 32});
  options.max_messages = pick<std::uint32_t>(rng, {256, 256, 64, 16, 4, 2, 1});
  options.max_staged = pick<std::uint32_t>(rng, {64, 64, 64, 8, 4, 2, 1, 0});
  options.unscheduled_bytes = pick<std::uint32_t>(rng, {4096, 4096, 16384, 16384, 1000, 1, 0});
}

// What each end may choose for itself.
void draw_own(const StormPlan& plan, Options& options, Rng& rng) {
  options.burst_bytes = static_cast<std::uint32_t>(scaled(rng, 1, 1 << 20));
  options.pace_bytes = rng.chance(0.4) ? 0 : static_cast<std::uint32_t>(scaled(rng, 1, 1 << 20));
  options.max_in_flight = static_cast<std::uint32_t>(rng.chance(0.7) ? scaled(rng, 64, 1 << 16) : scaled(rng, 1, 64));
  options.max_tags = pick<std::uint32_t>(rng, {4096, 8});
  // Few packets in each of long round trips would take hours of probes.
  if (plan.round_trip > milliseconds(2)) options.max_in_flight = std::max(options.max_in_flight, 64u);
  options.ack_every = static_cast<std::uint8_t>(scaled(rng, 1, 255));
  options.ack_delay = pick<Duration>(
      rng, {Duration(0), microseconds(1), microseconds(25), microseconds(25), microseconds(200), milliseconds(1)});
  options.reorder_packets = static_cast<std::uint8_t>(rng.chance(0.5) ? 3 : scaled(rng, 1, 64));
  options.gap_floor = in_us(scaled(rng, 5, 2'000));
  options.ask_cap = in_us(scaled(rng, 50, 20'000));
  options.probe_floor = in_us(scaled(rng, 20, 5'000));
  options.probe_cap = std::max({options.probe_floor, plan.round_trip, in_us(scaled(rng, 1'000, 300'000))});
  options.initial_rtt = guess(plan.round_trip, rng);
  options.base_rtt = guess(plan.round_trip, rng);
  options.peer_timeout = rng.chance(0.5) ? Duration(seconds(60)) : Duration(hours(24));
  options.max_tolerance_ppm = rng.chance(0.85) ? 1'000'000 : 20'000;
  const std::uint64_t rate = plan.rate_bps / 8;
  options.line_rate =
      rng.chance(0.6) ? rate : static_cast<std::uint64_t>(static_cast<double>(rate) * scaled(rng, 0.1, 10));
  options.credit_slack = rng.chance(0.2) ? 0 : static_cast<std::uint32_t>(scaled(rng, 1, 1 << 20));
  options.congestion = draw_congestion(plan, rng);
  options.path = draw_path_options(rng);
  options.classes = draw_classes(rng);
  options.cut_long = rng.chance(0.4);
  options.mouse_bytes = rng.chance(0.6) ? 16 * 1024 : static_cast<std::uint32_t>(scaled(rng, 1, 1 << 20));
}

// As the driver chooses them for a NIC of this speed, whose network is up to 5 ms away.
Options driver_options(const StormPlan& plan, Rng& rng) {
  transport::io::Capabilities capabilities;
  capabilities.max_packet = pick<std::size_t>(rng, {1472, 1472, 9000, 576});
  capabilities.paths = pick<std::uint8_t>(rng, {1, 4, 8, 8, 32});
  const std::uint64_t rate = rng.chance(0.2) ? 0 : plan.rate_bps / 1'000'000 * 1'000'000;
  const auto link = transport::io::LinkProfile::usual(transport::io::LinkKind::kKernel, rate);
  const std::size_t seal = rng.chance(0.3) ? 24 : 0;
  Options options = driver::options_for(capabilities, link, seal).value();
  options.max_tolerance_ppm = 1'000'000;  // the driver's channels agree upon one
  return options;
}

// Of dice of its own, so that the rest of a plan is what it was without. Most of the storm's networks are near.
void draw_parity(StormPlan& plan) {
  Rng rng(mix64(plan.seed * kGoldenGamma + 1));
  const bool some = rng.chance(0.5);
  for (StormHostPlan& host : plan.hosts) {
    host.options.parity = some && rng.chance(0.9);
    host.options.parity_from = pick<Duration>(rng, {Duration(0), Duration(0), Duration(0), milliseconds(2)});
    host.options.max_parity = pick<std::uint32_t>(rng, {64, 64, 64, 16, 4, 1, 0});
  }
}

void draw_all_else(StormPlan& plan, Rng& rng) {
  plan.driver_options = rng.chance(plan.unheard ? 0.7 : 0.4);
  if (plan.driver_options) {
    if (plan.round_trip > milliseconds(5)) plan.round_trip = milliseconds(5);
    const Options options = driver_options(plan, rng);
    for (StormHostPlan& host : plan.hosts) host.options = options;
    return;
  }
  Options options;
  draw_common(options, rng);
  options.segment = draw_segment(rng);
  draw_own(plan, options, rng);
  const bool all_alike = rng.chance(0.6);
  for (StormHostPlan& host : plan.hosts) {
    if (!all_alike) draw_own(plan, options, rng);
    host.options = options;
  }
  // A host whose clock jumps has not heard from its peer for so long.
  const bool jumps = std::any_of(plan.hosts.begin(), plan.hosts.end(),
                                 [](const StormHostPlan& host) { return !host.clock.jumps.empty(); });
  for (StormHostPlan& host : plan.hosts) {
    if (jumps) host.options.peer_timeout = hours(24);
  }
}

}  // namespace

void draw_options(StormPlan& plan, Rng& rng) {
  draw_all_else(plan, rng);
  draw_parity(plan);
}

}  // namespace clustar::mlt::test
