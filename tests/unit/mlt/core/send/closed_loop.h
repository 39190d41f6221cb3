// Congestion controllers in a closed loop: flows with endless data over one FIFO queue, in simulated time.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "mlt/core/send/congestion.h"
#include "mlt/core/send/rtt.h"
#include "transport/base/rng.h"

namespace clustar::mlt {

inline constexpr std::uint32_t kSegment = 1448;

struct Bottleneck {
  Duration slot = std::chrono::microseconds(1);  // per packet: 1448 B/us, about 12 Gbit/s
  Duration base = std::chrono::microseconds(100);
  std::size_t buffer = 1000;        // packets
  std::size_t mark_above = 100000;  // packets in the queue
  double random_loss = 0;
};

// What MLT competes with; it is not told of marks.
class Rival {
 public:
  virtual ~Rival() = default;
  virtual double window_packets() const = 0;
  virtual void on_ack(Duration rtt, Duration min_rtt, TimePoint now) = 0;
  virtual void on_loss(Duration rtt, TimePoint now) = 0;
};

// Flows with endless data over one FIFO queue; every packet is acknowledged, or reported lost, one base round trip
// after it left the queue, or would have entered it.
class ClosedLoop {
 public:
  explicit ClosedLoop(const Bottleneck& link) : link_(link) {}

  void add(const Congestion& congestion) { flows_.emplace_back().congestion = congestion; }
  void add(std::unique_ptr<Rival> rival) { flows_.emplace_back().rival = std::move(rival); }
  // It sends no more; what it has under way arrives.
  void remove_last() { flows_.back().ended = true; }
  void set_loss(double probability) { link_.random_loss = probability; }
  void set_slot(Duration slot) { link_.slot = slot; }

  // Counts start over with each run.
  void run(Duration duration) {
    for (Flow& flow : flows_) flow.delivered = 0;
    slots_ = 0;
    queue_sum_ = 0;
    for (const TimePoint end = now_ + duration; now_ < end; now_ += link_.slot) {
      deliver();
      send();
      ++slots_;
      queue_sum_ += static_cast<double>(queue_.size());
      if (queue_.empty()) continue;
      Packet packet = queue_.front();
      queue_.pop_front();
      if (rng_.chance(link_.random_loss)) packet.lost = true;
      answers_.push_back({now_ + link_.base, packet});
    }
  }

  double utilisation() const {
    double packets = 0;
    for (const Flow& flow : flows_) packets += static_cast<double>(flow.delivered);
    return packets / static_cast<double>(slots_);
  }
  std::uint64_t delivered(std::size_t flow) const { return flows_[flow].delivered; }
  double mean_queue() const { return queue_sum_ / static_cast<double>(slots_); }
  const Congestion& congestion(std::size_t flow) const { return flows_[flow].congestion; }

 private:
  struct Flow {
    Congestion congestion;
    std::unique_ptr<Rival> rival;  // instead, where there is one
    RttEstimator rtt;
    std::uint64_t in_flight = 0;
    std::uint64_t delivered = 0;  // packets
    bool ended = false;

    std::uint64_t window_bytes() const {
      if (!rival) return congestion.window_bytes();
      return static_cast<std::uint64_t>(rival->window_packets()) * kSegment;
    }
  };
  struct Packet {
    std::size_t flow;
    TimePoint sent;
    bool marked;
    bool lost;
  };
  struct Answer {
    TimePoint at;
    Packet packet;
  };

  void deliver() {
    while (!answers_.empty() && answers_.front().at <= now_) {
      const Packet packet = answers_.front().packet;
      answers_.pop_front();
      Flow& flow = flows_[packet.flow];
      flow.in_flight -= kSegment;
      const Duration rtt = now_ - packet.sent;
      if (packet.lost) {
        flow.rival ? flow.rival->on_loss(rtt, now_) : flow.congestion.on_loss(kSegment, now_);
        continue;
      }
      ++flow.delivered;
      flow.rtt.sample(rtt, now_);
      if (flow.rival) {
        flow.rival->on_ack(rtt, flow.rtt.min_rtt(), now_);
        continue;
      }
      flow.congestion.on_ack(kSegment, packet.marked ? kSegment : 0, rtt, flow.rtt.min_rtt(), now_);
    }
  }
  void send() {
    for (bool progress = true; progress;) {
      progress = false;
      for (std::size_t i = 0; i < flows_.size(); ++i) {
        Flow& flow = flows_[i];
        if (flow.ended || flow.in_flight + kSegment > flow.window_bytes()) continue;
        progress = true;
        flow.in_flight += kSegment;
        const Packet packet{i, now_, queue_.size() >= link_.mark_above, queue_.size() >= link_.buffer};
        if (packet.lost) {
          answers_.push_back({now_ + link_.base, packet});
        } else {
          queue_.push_back(packet);
        }
      }
    }
  }

  Bottleneck link_;
  Rng rng_{1};
  TimePoint now_{};
  std::vector<Flow> flows_;
  std::deque<Packet> queue_;
  std::deque<Answer> answers_;
  std::uint64_t slots_ = 0;
  double queue_sum_ = 0;
};

inline double ratio(const ClosedLoop& loop, std::size_t a, std::size_t b) {
  return static_cast<double>(loop.delivered(a)) / static_cast<double>(loop.delivered(b));
}

}  // namespace clustar::mlt
