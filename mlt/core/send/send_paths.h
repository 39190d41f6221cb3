// Which path each packet of a sender takes.
#pragma once

#include <cstdint>
#include <vector>

#include "mlt/core/options.h"
#include "mlt/core/send/paths.h"
#include "transport/base/rng.h"
#include "transport/base/time.h"

namespace clustar::mlt {

class SendPaths {
 public:
  // `paths`: at most options.paths.
  SendPaths(const Options& options, std::uint8_t paths);

  std::uint8_t size() const { return static_cast<std::uint8_t>(paths_.size()); }

  // Of a first transmission: they go in bursts.
  std::uint8_t next(std::uint32_t bytes, Rng& rng, TimePoint now);
  // The burst ends before another whole packet.
  bool burst_ends() const { return burst_left_ < options_.segment; }
  // For what must not be lost again: a path that delivered its latest packets, the fastest of them.
  std::uint8_t urgent() const;
  // Of the `number`-th probe, from 1: nobody says whether it arrived, so every other one takes the next path, whatever
  // is known of that.
  std::uint8_t of_probe(std::uint64_t number) const;

  void on_news(std::uint8_t path) { paths_[path].acked = true; }
  // `marks` of them arrived with CE.
  void on_delivered(std::uint8_t path, std::uint32_t packets, std::uint32_t marks, Duration rtt, TimePoint now);
  void on_loss(std::uint8_t path, TimePoint now);

 private:
  struct Path {  // all its lanes
    bool acked = false;
    std::uint32_t lost_in_row = 0;
  };
  const Options& options_;
  PathSelector selector_;
  std::vector<Path> paths_;
  std::uint8_t burst_path_ = 0;
  std::uint32_t burst_left_ = 0;  // bytes
};

}  // namespace clustar::mlt
