// The sending end of a connection. It decides which packet of which message goes next, and on which path, and tracks
// what happened to it. Pure. It never sees payload: a Transmit says which bytes of which message follow the header.
#pragma once

#include <cstdint>
#include <optional>

#include "mlt/core/bitmap.h"
#include "mlt/core/ledger.h"
#include "mlt/core/options.h"
#include "mlt/core/question_budget.h"
#include "mlt/core/send/congestion.h"
#include "mlt/core/send/flight.h"
#include "mlt/core/send/loss_allowance.h"
#include "mlt/core/send/parity_policy.h"
#include "mlt/core/send/probing.h"
#include "mlt/core/send/send_credit.h"
#include "mlt/core/send/send_message.h"
#include "mlt/core/send/send_paths.h"
#include "mlt/core/send/send_tags.h"
#include "mlt/core/send/send_terms.h"
#include "mlt/core/send/transmit_plan.h"
#include "mlt/core/wire.h"
#include "transport/base/ring.h"
#include "transport/base/rng.h"
#include "transport/base/time.h"

namespace clustar::mlt {

struct SendDone {
  std::uint32_t message = 0;
  std::uint32_t missing_packets = 0;  // Sender::delivered() names them, until the next call
};

struct Transmit {
  Packet header;
  std::uint8_t path = 0;
  std::uint8_t traffic_class = 7;
  bool ect = false;
  // Payload: `length` bytes from `offset` of this message; for parity, what the header says; 0 bytes for control.
  std::uint32_t message = 0;
  std::uint32_t offset = 0;
  std::uint32_t length = 0;
};

class Sender final : private FlightObserver {
 public:
  struct Counters {
    std::uint64_t packets = 0, bytes = 0;
    std::uint64_t retransmitted = 0;  // packets
    std::uint64_t lost = 0;           // packets given up as lost on their lane
    std::uint64_t probes = 0;
    std::uint64_t parity = 0;   // packets of parity
    std::uint64_t ignored = 0;  // control packets that contradict what is known
  };

  // `budget` is the endpoint's estimate of what its tolerant messages may still lose.
  Sender(const Options& options, LedgerBook& budget, std::uint64_t secret, std::uint64_t seed);

  // Returns the message's number. nullopt if full(): try again later. Otherwise nullopt is final: the message is longer
  // than kMaxMessageBytes, its map of important packets has the wrong size, it may lose more than
  // options.max_tolerance_ppm, or its tag is one more than options.max_tags.
  // `arrival` counts the messages of all senders that share a line.
  std::optional<std::uint32_t> send(std::uint32_t bytes, std::int32_t tag, const SendTerms& terms, TimePoint now,
                                    std::uint64_t arrival = 0);
  // The message must not be done.
  void set_turn(std::uint32_t message, const Turn& turn, TimePoint now);

  // `waited`: time that the packet spent in this host before it was read.
  void on_ack(const Ack& ack, TimePoint now, Duration waited = {});
  void on_posted(const Posted& posted, TimePoint now);
  void on_state(const State& state, TimePoint now);

  TimePoint next_timeout() const;
  void on_timeout(QuestionBudget& questions, TimePoint now);

  // The place of what poll_transmit() would give; read it at once. Null: nothing may be sent now; ask again after an
  // input or at next_timeout().
  const SendPlace* next_place(TimePoint now);
  // Probes go first, then messages by turn; within a message, retransmissions before new packets.
  bool poll_transmit(TimePoint now, Transmit& out);
  std::optional<SendDone> poll_done();
  const PacketBitmap& delivered(std::uint32_t message) const { return messages_[message].delivered; }

  // The message must not be done.
  const OpenRecord& opened(std::uint32_t message) const { return messages_[message].open; }

  // Index of the packet that goes first.
  std::uint32_t first_packet(std::uint32_t message) const { return messages_[message].first; }

  // For a caller that closes and has a reliable way to the receiver: the packet, unless it is known to have arrived.
  std::optional<DataHeader> repeat(std::uint32_t message, std::uint32_t index) const;

  // send() would refuse: options.max_messages were sent after the oldest message that is not over. A message is over
  // when it is complete in its receive, so a caller that sends more than that without receives waits for one of them.
  bool full() const { return messages_.full(); }
  std::uint16_t segment() const { return options_.segment; }
  // Messages that are not done and have no known receive: their caller may be waiting for later messages.
  std::uint32_t unposted() const { return unposted_; }
  // Bytes of the other messages that were never sent.
  std::uint64_t unsent_bytes() const { return std::uint64_t{unsent_packets_} * options_.segment; }
  bool peer_lost() const { return probing_.peer_lost(); }  // it has not answered for options.peer_timeout
  Counters counters() const;
  bool is_consistent() const;  // for debug builds and tests: looks at everything

 private:
  using Message = SendMessage;
  using Choice = TransmitPlan::Choice;
  using Sort = TransmitPlan::Sort;
  enum class Next : std::uint8_t { kUnknown, kProbe, kPacket };

  // sender.cc: messages come and go
  void allow_loss(std::uint32_t id, Message& message, const SendTerms& terms);
  void finish(std::uint32_t id, Message& message, SendState state, bool complete);
  void forget_over();
  TransmitPlan::View view() const { return {messages_, credit_, flight_, congestion_.window_bytes()}; }

  // sender_control.cc: what the receiver says
  void on_delivered(const SentPacket& packet, TimePoint now) override;
  void on_lost(const SentPacket& packet, std::uint8_t path, Evidence evidence, TimePoint now) override;
  void on_doubted(const SentPacket& packet) override;
  Message* unfinished(std::uint32_t id);
  bool is_possible(std::uint32_t credit, std::uint32_t finished_below);  // false: counted as ignored
  void take_credit(std::uint32_t credit, std::uint32_t finished_below, TimePoint now);
  void credit_delivery(const Flight::Delivery& told, TimePoint now);
  void receive_posted(Message& message, TimePoint now);
  void take_state(const State& state, TimePoint now);
  void reconcile(std::uint32_t id, const State& state, TimePoint now);
  void resend_missing(Message& message, const State& state);

  // sender_transmit.cc: what goes next
  void choose(TimePoint now);
  bool probe(Transmit& out);
  bool data(const Choice& choice, TimePoint now, Transmit& out);
  void send_parity(const Choice& choice, TimePoint now, Transmit& out);
  void add_parity(std::uint32_t id, const Message& message);
  std::uint32_t parity_rows(const Message& message, std::uint32_t block) const;
  void on_first(const Choice& choice, Message& message, std::uint32_t bytes);
  bool waits_for_answer(const Message& message, std::uint64_t unasked, std::uint32_t uncredited) const;
  std::uint16_t passed(Message& message, std::uint32_t lane, bool again) const;
  bool tells_open(Message& message, std::uint32_t lane, bool again, TimePoint now) const;
  PacketKind kind_of(const Message& message, std::uint32_t index, bool again) const;
  // All messages of a connection are of one job: what was said last counts for them all.
  void push(const Turn& turn) { congestion_.set_push(static_cast<double>(turn.push) / kPlainPush); }

  const Options& options_;
  const std::uint64_t secret_;
  Rng rng_;
  SendMessages messages_;
  SendTags tags_;
  SendCredit credit_;
  SendPaths paths_;
  Flight flight_;
  Congestion congestion_;
  TransmitPlan plan_;
  LossAllowance allowance_;
  ParityPolicy parity_;
  Probing probing_;
  Next next_ = Next::kUnknown;        // until an input changes it
  Choice choice_;                     // of kPacket
  std::uint32_t unposted_ = 0;        // messages
  std::uint32_t unsent_packets_ = 0;  // of messages that are not among these
  std::optional<TimePoint> lost_at_;  // the latest packet that was found lost
  Ring<SendDone> done_;
  Counters counters_;
};

}  // namespace clustar::mlt
