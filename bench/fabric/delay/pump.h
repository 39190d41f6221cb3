// The forwarder's loop: from each half of every cut cable through a delay line to the other half. One thread.
#pragma once

#include <poll.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/fabric/delay/delay_line.h"
#include "bench/fabric/delay/packet_port.h"
#include "bench/fabric/delay/wire.h"
#include "transport/base/result.h"

namespace clustar::bench::fabric {

struct DirectionCounters {
  std::atomic<std::uint64_t> packets, drops, super_packets, waiting;
};

// A file of counters that one process writes and others read, mapped.
class SharedCounters {
 public:
  static SharedCounters make(const std::string& path, std::size_t directions);
  static SharedCounters open(const std::string& path, std::size_t directions);
  ~SharedCounters();
  SharedCounters() = default;
  SharedCounters(SharedCounters&& other) noexcept
      : counters_(std::exchange(other.counters_, nullptr)), size_(other.size_) {}
  SharedCounters& operator=(SharedCounters&& other) noexcept {
    std::swap(counters_, other.counters_);
    std::swap(size_, other.size_);
    return *this;
  }
  // Null when there is no file of that size.
  DirectionCounters* at(std::size_t direction) const { return counters_ == nullptr ? nullptr : counters_ + direction; }

 private:
  static SharedCounters map(int fd, std::size_t directions, int protection);

  DirectionCounters* counters_ = nullptr;
  std::size_t size_ = 0;
};

class Pump {
 public:
  // In the wire namespace; counters go to `counters_path`.
  Result<void> open(const std::vector<WireCable>& cables, const std::string& counters_path);
  // Until no half is left, or `namespace_path` is no longer the namespace this runs in.
  void run(const std::string& namespace_path);

 private:
  struct Direction {
    std::size_t from = 0, to = 0;  // ports
    DelayLine line;
    DirectionCounters* counters;
    std::uint64_t more_drops = 0;  // beside the line's own
  };

  void take(Direction& direction);
  // False when the other half takes no more now.
  bool deliver(Direction& direction, std::int64_t now);
  void publish();
  bool somebody_left(const std::string& namespace_path) const;

  SharedCounters counters_;
  std::vector<PacketPort> ports_;
  std::vector<std::string> interfaces_;
  std::vector<Direction> directions_;  // two per cable; direction i receives from port i
};

}  // namespace clustar::bench::fabric
