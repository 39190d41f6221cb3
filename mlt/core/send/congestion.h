// How much of a connection may be in flight. Three controllers of one shape: value types, fed by acknowledgements.
#pragma once

#include <cstdint>
#include <variant>

#include "mlt/core/send/cubic_window.h"
#include "mlt/core/send/epoch.h"
#include "transport/base/time.h"

namespace clustar::mlt {

// No control: for tests, and for a path whose rate is somebody else's business.
class FixedRate {
 public:
  struct Options {
    std::uint64_t window = 1 << 20;      // bytes, >= 1
    std::uint64_t rate = 1'000'000'000;  // bytes/s, >= 1
  };
  FixedRate() : FixedRate(Options{}) {}
  explicit FixedRate(const Options& options);  // std::invalid_argument

  void on_ack(const AckSample&, TimePoint) {}
  void on_loss(std::uint64_t, TimePoint) {}
  std::uint64_t window_bytes() const { return options_.window; }
  std::uint64_t rate_bytes_per_s(Duration) const { return options_.rate; }
  void set_segment(std::uint32_t) {}

 private:
  Options options_;
};

struct WindowOptions {
  std::uint32_t segment = 1448;       // bytes of a packet, 64 .. 65,535: the increase, and the smallest window
  std::uint64_t initial = 64 * 1024;  // bytes, segment .. maximum
  std::uint64_t maximum = 64u << 20;  // bytes, segment .. 1 GiB
  double mark_gain = 1.0 / 16;        // g of RFC 8257, section 3.3: (0, 1]
};

// For a sender that knows its packets' size: 64 .. 65,535. Returns the window, now a segment at least.
double set_segment_of(WindowOptions& options, double window, std::uint32_t bytes);

// DCTCP's fraction of marks and Swift's target delay (Kumar et al., SIGCOMM 2020), whichever asks for more. Once per
// round trip:
//   below the target and unmarked: one segment more, or double until the first congestion; only if the window was used
//   else: less by max(alpha / 2, beta (delay - target) / delay), at most by max_cut
// Where the network's own round trip is known (set_base_rtt), and acknowledgements show that nobody queues there, the
// window need not wait for the end of a round trip: it grows with each acknowledgement to four times what this round
// trip has delivered, up to eight times the initial window. (What begins with 32 KiB fills 10 Gbit/s and 100 us after
// one round trip instead of three.) A latecomer does not see a standing queue that fits into 1.25 times the base; hence
// the limit. On a long path no such queue fits, and there is no limit: 10 Gbit/s and 100 ms are full after seven round
// trips instead of twelve.
//
// A segment per round trip is next to nothing on a long path (from long_from on). There the window grows by an eighth
// while nothing queues; near the target it grows and shrinks by half of how far the delay is from it, in round trips,
// and by a segment per 4 ms of round trip. The target is min_rtt + queue_target + a share that shrinks as the window
// grows (Swift's flow scaling, section 3.5), which helps small windows; on a long path a part more that is larger for
// smaller windows, so that flows become alike.
//
// A flow that starts behind another's standing queue takes it for the empty network (the latecomer known from LEDBAT,
// RFC 6817) and would starve the other. Hence a drain at the end of start-up and every drain_epochs: for two round
// trips the window is a quarter. A flow that dominates the queue so sees the empty network, and its target falls.
// Costs 1.5 / drain_epochs.
//
// Loss alone is not congestion: gray links and tolerated loss must not slow a sender. It adds its fraction to the
// choice above when there is delay or marking too. When more than severe_loss of an epoch is lost and nothing else
// speaks of congestion, it may be a shallow buffer or a burst of errors: the window is cut, for the first burst_epochs
// to a quarter at most, and what was taken comes back by a quarter per clean round trip instead of a segment.
//
// Beside a flow that fills the queue until it overflows (TCP's cubic and Reno), a flow that keeps to a target delay is
// left with nothing; likewise a flow that obeys marks beside one whose packets are not marked. So when the queue stays
// above twice what is aimed at for yield_epochs although the window was cut to a quarter (on long paths 1.25 times, and
// a third), it is somebody else's: then neither delay nor marks count any more, and the window goes as theirs: by a
// segment and by halves as Reno's, on long paths as CUBIC's (as Copa's competitive mode: Arun and Balakrishnan, NSDI
// 2018). It ends when a drain shortens the queue to a quarter: then it was our own, or that of others who compete and
// drain with us. Losses are when they do, so that is when drains begin, and every 256 epochs at the latest. On a long
// path it ends, too, when the queue stays empty for yield_epochs: the other has left.
class DctcpSwift {
 public:
  struct Options : WindowOptions {
    Duration queue_target = std::chrono::microseconds(50);    // 1 us .. 1 s
    Duration scaling_range = std::chrono::microseconds(100);  // added at a window of one segment, 0 .. 1 s
    Duration long_from = std::chrono::milliseconds(1);        // of round trips without queues, > 0
    double beta = 0.8;                                        // (0, 1]
    double max_cut = 0.5;                                     // (0, 0.9]
    std::uint32_t drain_epochs = 512;                         // 16 .. 2^20
    double severe_loss = 0.2;                                 // [0, 1]
    std::uint32_t burst_epochs = 64;                          // 0 .. 2^20
    std::uint32_t yield_epochs = 8;                           // in a row, before it competes: 1 .. 2^20
  };
  DctcpSwift() : DctcpSwift(Options{}) {}
  explicit DctcpSwift(const Options& options);  // std::invalid_argument

  void on_ack(const AckSample& sample, TimePoint now);
  void on_loss(std::uint64_t bytes, TimePoint now);
  std::uint64_t window_bytes() const { return static_cast<std::uint64_t>(window_); }
  std::uint64_t rate_bytes_per_s(Duration srtt) const;
  void set_segment(std::uint32_t bytes) { window_ = set_segment_of(options_, window_, bytes); }
  void set_base_rtt(Duration base_rtt) { base_rtt_ = base_rtt; }
  void set_push(double push) { push_ = push; }

 private:
  void decide(const Epoch::Totals& totals);
  void start_up(const AckSample& sample);
  bool is_long(double min_rtt) const;
  double least_step(double min_rtt) const;
  double step(const Epoch::Totals& totals, double limit) const;
  double far_target(double min_rtt) const;
  double target(double min_rtt) const;
  bool is_yielding(bool late, double queue);
  bool is_alone(const Epoch::Totals& totals);
  void compete(const Epoch::Totals& totals);
  double drained_part(const Epoch::Totals& totals) const;
  void start_drain(double resume, double part);
  void on_severe_loss(double loss);
  bool recover();

  Options options_;
  Epoch epoch_;
  Duration base_rtt_{};  // 0: unknown
  double push_ = 1;
  double window_;
  double resume_ = 0;             // window after the drain
  std::uint32_t drain_left_ = 0;  // epochs
  std::uint32_t since_drain_ = 0;
  double since_empty_ = 0;  // ns of epochs since a packet met no queue
  double alpha_ = 1;        // RFC 8257, section 3.3: the first mark is taken seriously
  bool starting_ = true;
  double before_loss_ = 0;           // window, until it is reached again; 0: no severe loss took anything
  std::uint32_t severe_epochs_ = 0;  // in a row
  std::uint32_t late_epochs_ = 0;    // in a row
  double late_from_ = 0;             // window when they began
  double late_queue_ = 0;            // ns, likewise
  bool far_ = false;                 // the path is long: as the latest acknowledgements said
  bool competing_ = false;
  bool answered_loss_ = false;           // by a cut, in the round trip before
  CubicWindow cubic_;                    // while it competes on a long path
  std::uint32_t empty_epochs_ = 0;       // in a row, while it competes
  std::uint32_t losses_ = 0;             // epochs with some, since the latest test whether the queue is ours
  std::uint32_t test_after_losses_ = 0;  // 1 at first, at most 6
  double queue_before_ = 0;              // ns, when the drain began
};

// DCTCP as RFC 8257 has it, loss halves: the peer of fairness tests and the baseline of measurements.
class Dctcp {
 public:
  using Options = WindowOptions;
  Dctcp() : Dctcp(Options{}) {}
  explicit Dctcp(const Options& options);  // std::invalid_argument

  void on_ack(const AckSample& sample, TimePoint now);
  void on_loss(std::uint64_t bytes, TimePoint now);
  std::uint64_t window_bytes() const { return static_cast<std::uint64_t>(window_); }
  std::uint64_t rate_bytes_per_s(Duration srtt) const;
  void set_segment(std::uint32_t bytes) { window_ = set_segment_of(options_, window_, bytes); }

 private:
  void decide(const Epoch::Totals& totals);

  Options options_;
  Epoch epoch_;
  double window_;
  double alpha_ = 1;
  bool starting_ = true;
};

// One of the three; DctcpSwift by default. A copy is a value: options may hold one that connections start from.
class Congestion {
 public:
  using Controller = std::variant<DctcpSwift, Dctcp, FixedRate>;
  Congestion() = default;
  // NOLINTBEGIN(google-explicit-constructor): an alternative is a Congestion
  Congestion(const DctcpSwift& controller) : controller_(controller) {}
  Congestion(const Dctcp& controller) : controller_(controller) {}
  Congestion(const FixedRate& controller) : controller_(controller) {}
  // NOLINTEND(google-explicit-constructor)

  void on_ack(const AckSample& sample, TimePoint now) {
    std::visit([&](auto& controller) { controller.on_ack(sample, now); }, controller_);
  }
  void on_ack(std::uint64_t bytes, std::uint64_t marked, Duration rtt, Duration min_rtt, TimePoint now) {
    on_ack(AckSample{bytes, marked, rtt, min_rtt}, now);
  }
  // Declared lost, on any path; a spurious one is not taken back.
  void on_loss(std::uint64_t bytes, TimePoint now) {
    std::visit([&](auto& controller) { controller.on_loss(bytes, now); }, controller_);
  }
  // Bytes that may be in flight, >= one segment.
  std::uint64_t window_bytes() const {
    return std::visit([](const auto& controller) { return controller.window_bytes(); }, controller_);
  }
  // For the pacer: 1.25 windows per round trip, so that pacing never starves the window (BBR's and Linux' gains are
  // 1.2 to 1.25 outside of start-up). At least 1.
  std::uint64_t rate_bytes_per_s(Duration srtt) const {
    return std::visit([&](const auto& controller) { return controller.rate_bytes_per_s(srtt); }, controller_);
  }
  void set_segment(std::uint32_t bytes) {
    std::visit([&](auto& controller) { controller.set_segment(bytes); }, controller_);
  }
  // Of the network without queues, where somebody knows it: only DctcpSwift begins by it.
  void set_base_rtt(Duration base_rtt) {
    if (auto* ours = std::get_if<DctcpSwift>(&controller_)) ours->set_base_rtt(base_rtt);
  }
  // > 0: how fast the window grows once it is full, against that of others who share the link: they get parts of it
  // that are about as these. Only DctcpSwift obeys. (MLTCP: Rajasekaran et al., HotNets 2024.)
  void set_push(double push) {
    if (auto* ours = std::get_if<DctcpSwift>(&controller_)) ours->set_push(push);
  }

 private:
  Controller controller_;
};

}  // namespace clustar::mlt
