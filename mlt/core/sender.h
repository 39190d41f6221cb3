// Sending end of one connection: which packet of which message goes next, on which path, and what has become of it.
// Pure. It never sees payload: a Transmit says which bytes of which message belong behind the header.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "mlt/core/agenda.h"
#include "mlt/core/bitmap.h"
#include "mlt/core/classes.h"
#include "mlt/core/congestion.h"
#include "mlt/core/lanes.h"
#include "mlt/core/ledger.h"
#include "mlt/core/options.h"
#include "mlt/core/pacer.h"
#include "mlt/core/paths.h"
#include "mlt/core/reordering.h"
#include "mlt/core/rtt.h"
#include "mlt/core/send_lane.h"
#include "mlt/core/send_terms.h"
#include "mlt/core/states.h"
#include "mlt/core/window.h"
#include "mlt/core/wire.h"
#include "transport/base/ring.h"
#include "transport/base/rng.h"
#include "transport/base/time.h"

namespace clustar::mlt {

struct SendDone {
  std::uint32_t message = 0;
  std::uint32_t missing_packets = 0;  // Sender::delivered() tells which, until the next call
};

struct Transmit {
  Packet header;
  std::uint8_t path = 0;
  std::uint8_t traffic_class = 7;
  bool ect = false;
  std::uint32_t message = 0;  // payload: `length` bytes from `offset` of this message; 0 bytes for control
  std::uint32_t offset = 0;
  std::uint32_t length = 0;
};

class Sender {
 public:
  struct Counters {
    std::uint64_t packets = 0, bytes = 0;
    std::uint64_t retransmitted = 0;  // packets
    std::uint64_t lost = 0;           // packets given up as lost on their lane
    std::uint64_t probes = 0;
    std::uint64_t ignored = 0;  // control packets that contradict what is known
  };

  // `allowances` is the endpoint's: what of its tolerant messages may probably stay missing.
  Sender(const Options& options, LedgerBook& allowances, std::uint64_t secret, std::uint64_t seed);

  // Returns the message's number. nullopt: when full(), for now; else for good, because the message is longer than
  // kMaxMessageBytes, its map of important packets has another size, it may lose more than options.max_tolerance_ppm,
  // or it has one tag more than options.max_tags.
  // `arrival` counts the messages of all senders that share a line.
  std::optional<std::uint32_t> send(std::uint32_t bytes, std::int32_t tag, const SendTerms& terms, TimePoint now,
                                    std::uint64_t arrival = 0);
  // Of a message that is not done.
  void set_turn(std::uint32_t message, const Turn& turn, TimePoint now);

  void on_ack(const Ack& ack, TimePoint now);
  void on_posted(const Posted& posted, TimePoint now);
  void on_state(const State& state, TimePoint now);

  TimePoint next_timeout() const;
  void on_timeout(TimePoint now);

  // Of what poll_transmit() would give. nullopt: nothing may go now; ask again after an input or at next_timeout().
  std::optional<SendPlace> next_place(TimePoint now);
  // Probes go first; then messages in their turns, of each what is sent again before what is new.
  bool poll_transmit(TimePoint now, Transmit& out);
  std::optional<SendDone> poll_done();
  const PacketBitmap& delivered(std::uint32_t message) const { return messages_[message].delivered; }

  // Of a message that is not done.
  const OpenRecord& opened(std::uint32_t message) const { return messages_[message].open; }

  // For a caller that closes and has a sure way to tell the receiver: the packet, unless it is known to be there.
  std::optional<DataHeader> repeat(std::uint32_t message, std::uint32_t index) const;

  // send() would refuse: the oldest message that is not over has options.max_messages behind it. A message is over when
  // it is complete in its receive, so whoever sends more than that without receives waits for one of them.
  bool full() const { return messages_.full(); }
  std::uint16_t segment() const { return options_.segment; }
  // Messages not done without a known receive: their caller may wait for what is sent after them.
  std::uint32_t unposted() const { return unposted_; }
  // Of the others, still to be sent for the first time.
  std::uint64_t unsent_bytes() const { return std::uint64_t{unsent_packets_} * options_.segment; }
  bool peer_lost() const { return peer_lost_; }  // it has not answered for options.peer_timeout
  const Counters& counters() const { return counters_; }
  bool is_consistent() const;  // for debug builds and tests: looks at everything

 private:
  struct Message {
    SendState state = SendState::kFree;
    bool posted = false;      // its receive is known to be there
    bool open_known = false;  // the peer acknowledged a packet with the record
    bool probe_due = false;
    bool tail_again = false;  // its last packets went again before they were surely lost; until one of it arrives
    std::uint32_t bytes = 0, packets = 0;
    std::uint32_t first = 0;        // index of the packet that goes first
    std::uint32_t sent = 0;         // first transmissions so far
    std::uint32_t unscheduled = 0;  // bytes first sent before the receive was known to be posted
    std::uint32_t tolerated = 0;    // losses that are not sent again unless the receiver wants them
    bool wanted = false;            // it did
    PacketKind kind = PacketKind::kReliable;
    OpenRecord open;
    PacketBitmap delivered, in_flight, resend, important;
    PacketBitmap stop_windows;          // of a STOP with missing packets: which have come
    std::vector<std::uint16_t> passed;  // of a tolerant message: first transmissions by lane, modulo 2^16
    std::uint8_t backoff = 0;
    std::uint32_t asked = 0;  // packet from which on the next probe looks for one in doubt
    SendPlace place;
    std::uint32_t lane = 0, on_lane = 0;    // of the latest first transmission, and how many went by it in a row
    TimePoint touched_at{}, next_answer{};  // latest transmission or delivery; questions before it were answered
    bool done() const { return state == SendState::kStored || state == SendState::kOver; }  // nothing more to send
  };
  using Record = SentPacket;
  using Lane = SendLane;
  struct Path {  // all its lanes
    bool acked = false;
    std::uint32_t lost_in_row = 0;
  };
  void allow_loss(std::uint32_t id, Message& message, const SendTerms& terms);
  struct Choice;
  const std::optional<Choice>& choose(TimePoint now);
  std::optional<Choice> choice(TimePoint now);
  std::optional<Choice> again(std::uint32_t message, TimePoint now);
  std::optional<Choice> fresh(TimePoint now);
  std::optional<Choice> mouse(TimePoint now);
  std::optional<std::uint32_t> first_to_repeat() const;
  bool next_probe(Transmit& out);
  static std::uint16_t window_in_doubt(Message& message);
  enum class Sort : std::uint8_t {
    kScheduled,   // within the receiver's credit
    kUncredited,  // before it, or past it
    kAgain,
  };
  struct Choice {  // a packet that may go; or a probe
    bool probe = false;
    std::uint32_t message = 0, index = 0;
    Sort sort = Sort::kScheduled;
    bool mouse = false;  // it goes past the others
  };
  bool data(std::uint32_t id, Message& message, std::uint32_t index, Sort sort, TimePoint now, Transmit& out);
  bool uncredited_room(std::uint32_t bytes) const;
  bool waits_for_answer(const Message& message, const Lane& lane, bool uncredited) const;
  std::uint16_t passed(Message& message, std::uint32_t lane, bool again) const;
  bool tells_open(Message& message, std::uint32_t lane, bool again) const;
  bool nothing_flies(const Message& message) const;
  PacketKind kind_of(const Message& message, std::uint32_t index, bool again) const;
  std::uint8_t path_for(std::uint32_t bytes, bool again, TimePoint now);
  bool is_mouse(const Message& message) const;
  std::uint8_t urgent_path() const;
  bool window_open(std::uint32_t bytes) const;
  void settle_all_of(std::uint32_t id, TimePoint now);
  void sent_one(std::uint32_t id, Message& message);
  void heard(TimePoint now);
  void receive_posted(Message& message, TimePoint now);
  void on_block(const AckBlock& block, TimePoint now);
  void credit_delivery(std::uint8_t path, std::uint32_t packets, std::uint64_t bytes, std::uint32_t marks, Duration rtt,
                       TimePoint now);
  void settle(Record& record, bool delivered, TimePoint now);
  enum class Asked : std::uint8_t { kByAck, kByTimer };
  void find_losses(Lane& lane, Asked asked, TimePoint now);
  void find_lost_tail(Lane& lane, std::uint32_t seq, Asked asked, TimePoint now);
  TimePoint answer_due(const Lane& lane, std::uint32_t seq) const;
  void wake_tails(TimePoint newest, TimePoint now);
  void take_state(const State& state, TimePoint now);
  void check_losses_at(Lane& lane, TimePoint at);
  enum class Evidence : std::uint8_t {
    kOrder,      // something later came by its lane: a tolerant message may miss it
    kTime,       // it had the time to come, and did not: it may still wait in a lower class
    kDiscarded,  // the receiver threw it away
  };
  void lose(Lane& lane, Record& record, Evidence evidence, TimePoint now);
  bool may_miss(Message& message, const Record& record, Evidence evidence);
  std::uint64_t reserve() const;
  void know_open(Message& message);
  void charge_rest(const Message& message, std::uint32_t missing);
  void pop_records(Lane& lane);
  bool quiet(const Message& message) const;
  void mark_resend(Message& message, std::uint32_t index);
  bool is_possible(std::uint32_t credit, std::uint32_t finished_below);  // false: counted as ignored
  void take_credit(std::uint32_t credit, std::uint32_t finished_below, TimePoint now);
  void finish(std::uint32_t id, Message& message, SendState state, bool complete, TimePoint now);
  void arm_probe(const Message& message);
  Duration probe_wait(const Message& message) const;
  void touch(Message& message, TimePoint now);
  void go_back(Lane& lane, TimePoint now);
  bool held_back(TimePoint now);
  void reconcile(std::uint32_t id, const State& state, TimePoint now);
  void make_probe_due(Message& message);
  void forget_probe(Message& message);
  bool may_start(const Message& message, std::uint32_t bytes) const;
  bool lacks_credit(const Message& message) const;  // for its next first transmission
  void pop_settled();

  const Options& options_;
  LedgerBook& allowances_;
  const std::uint64_t secret_;
  Rng rng_;
  Window<Message> messages_;
  PathSelector selector_;
  std::vector<Path> paths_;
  Lanes<Lane> lanes_;
  RttEstimator rtt_;
  ReorderTolerance reordering_;
  Congestion congestion_;
  Pacer pacer_;
  std::unordered_map<std::int32_t, std::uint32_t> tag_sends_;
  struct Ready {  // (tag, tag_seq) of receives that were posted before their messages were sent
    std::int32_t tag;
    std::uint32_t tag_seq;
  };
  std::vector<Ready> posted_early_;
  std::uint64_t in_flight_ = 0;  // bytes
  std::uint32_t sent_units_ = 0, credit_units_ = 0;
  Agenda agenda_;
  bool ranked_ = false;           // some message has had another turn than the others
  std::optional<Choice> chosen_;  // what goes next, until an input changes it
  std::uint32_t resends_ = 0;     // of all messages
  std::uint32_t probes_due_ = 0, unsent_mice_ = 0, full_lanes_ = 0;
  std::uint32_t unposted_ = 0;          // messages
  std::uint32_t unsent_packets_ = 0;    // of messages that are not among these
  std::uint32_t uncredited_bytes_ = 0;  // on their way
  std::uint8_t burst_path_ = 0;
  std::uint32_t burst_left_ = 0;
  bool paced_ = false;  // the pacer alone held back the latest packet
  TimePoint send_at_{};
  TimePoint loss_at_ = TimePoint::max();   // not after any lane's
  TimePoint newest_delivered_{};           // when the latest packet left of those that have arrived, of all lanes
  bool tails_wait_ = false;                // for one to arrive that left after them
  TimePoint probe_at_ = TimePoint::max();  // not after any message's
  TimePoint watched_at_{};                 // until then `silence_` counts
  Duration silence_{};                     // since the peer's latest packet, or the first message after idling
  bool peer_lost_ = false;
  Ring<SendDone> done_;
  Counters counters_;
};

}  // namespace clustar::mlt
