// The packets of a connection that are on their way, and when one of them counts as lost.
#pragma once

#include <cstdint>
#include <optional>

#include "mlt/core/lanes.h"
#include "mlt/core/options.h"
#include "mlt/core/reordering.h"
#include "mlt/core/send/rtt.h"
#include "mlt/core/send/send_lane.h"
#include "mlt/core/wire.h"
#include "transport/base/time.h"

namespace clustar::mlt {

// What says that a packet was lost.
enum class Evidence : std::uint8_t {
  kOrder,      // something later came by its lane: a tolerant message may miss it
  kTime,       // it had the time to come, and did not: it may still wait in a lower class
  kDiscarded,  // the receiver threw it away
};

// Hears of each packet once, when it is no longer on its way.
class FlightObserver {
 public:
  virtual void on_delivered(const SentPacket& packet, TimePoint now) = 0;
  virtual void on_lost(const SentPacket& packet, std::uint8_t path, Evidence evidence, TimePoint now) = 0;
  // It stays on its way, but the receiver should say whether it came.
  virtual void on_doubted(const SentPacket& packet) = 0;

 protected:
  ~FlightObserver() = default;
};

class Flight {
 public:
  // What one packet of the receiver told of one lane.
  struct Delivery {
    std::uint8_t path = 0;
    bool news = false;  // something later than before came
    bool lost = false;  // some had the time to come, and did not
    std::uint32_t packets = 0, marks = 0;
    std::uint64_t bytes = 0;
    Duration rtt{};  // of the network, without the hosts' waits as far as they are known; not positive: not measured
  };

  // `paths`: that packets take, at most options.paths.
  Flight(const Options& options, std::uint8_t paths);

  // A lane's number, made if there is none yet.
  std::uint32_t lane(std::uint8_t path, std::uint8_t traffic_class);
  std::uint32_t lanes() const { return lanes_.size(); }
  std::uint32_t next_seq(std::uint32_t lane) const { return lanes_[lane].records.end(); }
  // Bytes sent by the lane since a packet of it asked for an acknowledgement.
  std::uint64_t unasked_bytes(std::uint32_t lane) const { return lanes_[lane].unasked_bytes; }
  // Only when has_room().
  void send(std::uint32_t lane, const SentPacket& packet, TimePoint now);
  // No lane has options.max_in_flight packets on their way.
  bool has_room() const { return full_lanes_ == 0; }
  std::uint64_t bytes() const { return bytes_; }
  std::uint32_t uncredited_bytes() const { return uncredited_bytes_; }

  // nullopt: it contradicts what was sent. `waited`: in this host, before it was read.
  std::optional<Delivery> on_block(const AckBlock& block, Duration waited, FlightObserver& observer, TimePoint now);
  // Of the packets of one lane that the state tells of. `tail`: what is missing may be given up sooner, for few packets
  // make no queue if that was wrong.
  Delivery on_state(std::uint32_t lane, const State& state, bool tail, FlightObserver& observer, TimePoint now);
  // Nobody waits for these packets any more; the observer is not told.
  void forget(std::uint32_t message);

  TimePoint newest_delivered() const { return newest_delivered_; }
  // `newest`: newest_delivered() before what has just been heard.
  void wake_tails(TimePoint newest, TimePoint now);

  TimePoint next_timeout() const { return loss_at_; }
  void on_timeout(FlightObserver& observer, TimePoint now);

  const RttEstimator& rtt() const { return rtt_; }
  // By which the receiver's delays go (DataHeader::trip).
  Duration told_trip() const { return rtt_.has_sample() ? rtt_.min_rtt() : options_.base_rtt; }
  std::uint64_t lost() const { return lost_; }  // packets
  bool is_consistent() const;

 private:
  using Lane = SendLane;
  enum class Asked : std::uint8_t { kByAck, kByTimer };
  void sample(Lane& lane, const AckBlock& block, Duration waited, Delivery& told, TimePoint now);
  void settle(SentPacket& record);
  void deliver(SentPacket& record, Delivery& told, FlightObserver& observer, TimePoint now);
  void lose(Lane& lane, SentPacket& record, Evidence evidence, FlightObserver& observer, TimePoint now);
  void go_back(Lane& lane, FlightObserver& observer, TimePoint now);
  void find_losses(Lane& lane, Asked asked, FlightObserver& observer, TimePoint now);
  void find_lost_tail(Lane& lane, std::uint32_t seq, Asked asked, FlightObserver& observer, TimePoint now);
  void check_losses_at(Lane& lane, TimePoint at);
  TimePoint answer_due(const Lane& lane, std::uint32_t seq) const;
  void pop_records(Lane& lane);

  const Options& options_;
  Lanes<Lane> lanes_;
  RttEstimator rtt_;
  ReorderTolerance reordering_;
  std::uint64_t bytes_ = 0;
  std::uint32_t uncredited_bytes_ = 0;
  std::uint32_t full_lanes_ = 0;
  TimePoint loss_at_ = TimePoint::max();  // not after any lane's
  TimePoint newest_delivered_{};          // when the latest packet left of those that have arrived, of all lanes
  bool tails_wait_ = false;               // for one to arrive that left after them
  std::uint64_t lost_ = 0;
};

}  // namespace clustar::mlt
