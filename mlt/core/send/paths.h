// Over which of several paths (source ports, queue pairs) the next burst goes, and which paths are left alone.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "mlt/core/states.h"
#include "transport/base/rng.h"
#include "transport/base/time.h"

namespace clustar::mlt {

struct PathOptions {
  double loss_threshold = 0.02;                      // (0, 1): sidelined above this and what the others lose
  std::uint8_t silent_losses = 8;                    // in a row, 2 .. 255: a path is silent, if the others are not
  Duration backoff = std::chrono::milliseconds(10);  // until the first probe, 1 us .. backoff_max
  Duration backoff_max = std::chrono::seconds(1);    // doubled up to here, <= 1 hour
  std::uint8_t probe_packets = 8;                    // of a probe burst, 1 .. 64
  Duration probe_timeout = std::chrono::milliseconds(100);  // a probe without verdict is over, > 0
};

// Per path a smoothed round trip (gain 1/8), mark fraction (1/16) and loss fraction (1/256: the mean of about 512
// packets, where a loss of 1 % can be told from one of 5 %; the plain mean until there are 256).
//
// choose() takes the better of two random paths, by round trip times (1 + mark fraction), as UCCL-Tran does. The two
// may be the same path, so the slowest still gets its 1 / n^2 of the bursts and its estimate stays fresh.
//
// Two rules sideline a path; both compare, so that loss which all paths share (at the receiver's port, or while a burst
// passes) sidelines none:
//   lossy: its loss fraction exceeds loss_threshold + 2.5 * the lower third of the other good paths (several of a
//     connection's paths may take the same bad link); looked at when it delivers, which leaves the losses of all paths
//     time to be counted. At least two paths stay good.
//   silent: at least silent_losses * (1 + 2 * the others' median) packets in a row were lost, and at least half of the
//     others delivered within a round trip before the first of them was declared lost, or since. One path stays good.
//     (At the end of an outage of all paths, some may be sidelined for one back-off: their last losses are declared
//     among the first deliveries of the others.)
// A path with fewer than 256 outcomes is neither called lossy nor compared with.
// After a back-off that doubles with each failure, one burst of at most probe_packets probes it: all delivered, or
// some and none lost within probe_timeout, brings it back; any loss sidelines it again. The back-off starts over when a
// path stayed good for backoff_max.
class PathSelector {
 public:
  static constexpr std::uint32_t kMaxPaths = 32;
  using State = PathState;

  PathSelector(std::uint32_t paths, const PathOptions& options);  // 1 .. kMaxPaths; std::invalid_argument

  struct Choice {
    std::uint8_t path;
    bool probe;  // send at most probe_packets now, then choose again
  };
  Choice choose(Rng& rng, TimePoint now);

  // One packet of the path was acknowledged, or declared lost. Paths that do not exist are ignored: numbers come from
  // the wire.
  void on_ack(std::uint32_t path, Duration rtt, bool marked, TimePoint now);
  void on_loss(std::uint32_t path, TimePoint now);

  std::uint32_t size() const { return size_; }
  std::uint32_t good() const { return good_count_; }
  // Of path < size().
  State state(std::uint32_t path) const { return paths_[path].state; }
  Duration srtt(std::uint32_t path) const { return Duration(static_cast<Duration::rep>(paths_[path].srtt)); }
  std::uint64_t sidelined() const { return sidelined_; }  // how often any was
  // A good path of least score, for what must not be lost.
  std::uint8_t best() const;

 private:
  struct Path {
    State state = State::kGood;
    double srtt = 0;  // ns; 0: no sample, so that it is tried
    double marks = 0;
    double loss = 0;
    std::uint32_t lost_in_row = 0;
    std::uint32_t probe_acks = 0;
    Duration backoff{};          // of the next sidelining
    TimePoint since{};           // when the state began
    TimePoint last_ack{};        // latest delivery
    TimePoint row_since{};       // when the first of lost_in_row was declared lost
    std::uint32_t outcomes = 0;  // up to kFull
    TimePoint until{};           // kSidelined: then probe; kProbing: then give up
  };
  double score(std::uint32_t path) const { return paths_[path].srtt * (1 + paths_[path].marks); }
  bool is_lossy(std::uint32_t path) const;
  bool is_silent(std::uint32_t path) const;
  static constexpr std::uint32_t kEnough = 256;
  static constexpr std::uint32_t kFull = 256;
  static void count(Path& path, bool lost);
  // Of the other good paths, of which there must be one, that above which all but a `part`-th of them are (2: the
  // median, 3: the lower third); `unknown` stands for those with too few outcomes.
  double others_loss(std::uint32_t path, double unknown, std::uint32_t part) const;
  void sideline(std::uint32_t path, TimePoint now);
  void restore(std::uint32_t path, TimePoint now);
  void list_good();

  PathOptions options_;
  std::uint32_t size_;
  std::array<Path, kMaxPaths> paths_{};
  std::array<std::uint8_t, kMaxPaths> good_{};  // in ascending order
  std::uint32_t good_count_ = 0;
  TimePoint next_check_ = TimePoint::max();  // not after any `until`
  std::uint64_t sidelined_ = 0;
};

}  // namespace clustar::mlt
