// The receiving end of a connection. It places packets, acknowledges them by lane, and decides what may stay missing.
// Pure. Order of calls within one moment: packets, timeout, then polling.
#pragma once

#include <cstdint>
#include <optional>

#include "mlt/core/ledger.h"
#include "mlt/core/options.h"
#include "mlt/core/question_budget.h"
#include "mlt/core/receive/asking.h"
#include "mlt/core/receive/lane_acks.h"
#include "mlt/core/receive/loss_decision.h"
#include "mlt/core/receive/parity_store.h"
#include "mlt/core/receive/receive_credit.h"
#include "mlt/core/receive/receive_message.h"
#include "mlt/core/receive/receive_table.h"
#include "mlt/core/receive/staging.h"
#include "mlt/core/wire.h"
#include "transport/base/ring.h"
#include "transport/base/time.h"

namespace clustar::mlt {

// Where the payload of a packet goes.
struct Placement {
  enum class Kind : std::uint8_t {
    kDrop,    // nowhere: a duplicate, a stranger, or nothing to hold it
    kPlace,   // to `offset` of receive `id`
    kStage,   // to `offset` of staging buffer `id` (Receiver::staged() later tells where it belongs)
    kParity,  // into parity buffer `id` of options.max_parity ones, each as long as the longest packet here
  } kind = Kind::kDrop;
  std::uint32_t id = 0;
  std::uint32_t offset = 0;  // with Options::cut_long it may lie past the end of the receive
  std::uint32_t length = 0;
};

struct ReceiveDone {
  std::uint32_t receive = 0;
  std::uint32_t bytes = 0;    // of the message
  std::uint32_t missing = 0;  // of them; Receiver::missing() names the ranges until release()
  bool truncated = false;     // the message is longer than the receive; nothing was placed
};

class Receiver {
 public:
  struct Counters {
    std::uint64_t placed_bytes = 0;
    std::uint64_t duplicates = 0;
    std::uint64_t refused = 0;  // packets before their receive or record, for which there was no staging buffer
    std::uint64_t ignored = 0;  // packets that contradict what is known
    std::uint64_t missing_bytes = 0;
    std::uint64_t rebuilt = 0;  // packets
  };

  Receiver(const Options& options, std::uint64_t secret);

  // Receives with the same tag are filled in the order of posting. Returns the receive's id, 0 .. max_messages - 1.
  // nullopt if full(): try again later. Otherwise nullopt is final: it is longer than kMaxMessageBytes, or its tag is
  // one more than options.max_tags.
  std::optional<std::uint32_t> post(std::int32_t tag, std::uint32_t length, LedgerBook& ledgers, TimePoint now);
  bool full() const { return receives_.full(); }
  // The number of the receive among those with its tag, from 0, as the sender counts messages (OpenRecord::tag_seq).
  std::uint32_t tag_seq(std::uint32_t receive) const { return receives_[receive].tag_seq; }
  // The caller has handled the receive's ReceiveDone; its id may be reused.
  void release(std::uint32_t receive);

  // What is known about a data packet, besides its header.
  struct Arriving {
    std::uint32_t payload = 0;  // bytes
    bool marked = false;
    bool can_stage = true;
    Duration waited{};  // time in this host before it was read
  };
  Placement on_data(const DataHeader& header, const Arriving& packet, LedgerBook& ledgers, TimePoint now);
  void on_probe(const Probe& probe, LedgerBook& ledgers, TimePoint now);

  TimePoint next_timeout() const;
  void on_timeout(LedgerBook& ledgers, QuestionBudget& questions, TimePoint now);

  // The next control packet, most urgent first.
  std::optional<Packet> poll_control(TimePoint now);
  bool has_control() const;
  // For a caller that closes and has a reliable way to the sender: whatever the sender may not know about messages that
  // are over becomes due once more.
  void repeat_ends();
  // The path for control packets: one on which something arrived recently; after a probe, another one.
  std::uint8_t control_path() const { return control_path_; }
  std::optional<ReceiveDone> poll_done();

  // What the sender said about the message of `receive`; valid from its ReceiveDone until release().
  const OpenRecord& opened(std::uint32_t receive) const { return messages_[receives_[receive].message].open; }
  // Whether the message could lose bytes: the sender offered it, and this end allows that much.
  bool tolerates(std::uint32_t receive) const { return decision_.may_lose(messages_[receives_[receive].message]); }

  // The first missing range of receive `id` at or after byte `from`; nullopt: no more.
  struct Range {
    std::uint32_t offset;
    std::uint32_t length;
  };
  std::optional<Range> missing(std::uint32_t receive, std::uint32_t from) const;
  // The next staged packet, at or after the `from`-th, of the message that was matched to `receive`. Copy `length`
  // bytes from `buffer_offset` of staging buffer `buffer` to `offset` of the receive, and continue with number + 1.
  // nullopt: no more; then call unstaged(receive).
  struct Staged {
    std::uint32_t buffer;
    std::uint32_t number;
    std::uint32_t buffer_offset;
    std::uint32_t offset;
    std::uint32_t length;
  };
  std::optional<Staged> staged(std::uint32_t receive, std::uint32_t from) const;
  void unstaged(std::uint32_t receive);
  // What can be rebuilt from the parity here: the caller rebuilds it in the receive at once and calls rebuilt().
  bool has_rebuild();
  std::optional<Rebuild> poll_rebuild();
  void rebuilt(const Rebuild& what, TimePoint now);
  // Receives whose messages have staged packets to be copied, in order of matching.
  std::optional<std::uint32_t> poll_unstage();

  // Round trip of the path without queues, as the sender measured it; options.base_rtt until it says so.
  Duration round_trip() const { return trip_; }
  // Payload of the longest packet that may arrive, by the peer's segment or ours.
  std::uint32_t longest_packet() const { return credit_.longest_packet(); }
  // Size of a staging buffer.
  std::uint32_t staging_bytes() const { return options_.staging_bytes(); }
  // Demand for credit: bytes of posted receives that have not arrived.
  std::uint64_t demand() const { return credit_.demand(); }
  // Data or a probe has arrived since the last receive was finished.
  bool active() const { return active_; }
  // The best level of what is arriving, or of what arrived last; 0 is the best.
  std::uint8_t level() const { return level_; }
  // Allows the sender `window` bytes beyond what it is known to have sent.
  void grant(std::uint32_t window);

  const Counters& counters() const { return counters_; }
  // Whether sums and states agree. For debug builds and tests.
  bool is_consistent() const;

 private:
  using Message = ReceiveMessage;
  static constexpr std::uint32_t kNone = Message::kNone;

  // receiver.cc: what comes
  Message* find_or_open(std::uint32_t id, std::uint32_t bytes, std::uint16_t segment, TimePoint now);
  void take_open(std::uint32_t id, Message& message, const OpenRecord& open, LedgerBook& ledgers, TimePoint now);
  void match(std::uint32_t id, std::uint32_t receive, LedgerBook& ledgers, TimePoint now);
  Placement take(const DataHeader& header, Message& message, const Arriving& packet, TimePoint now);
  void on_duplicate(const DataHeader& header, Message& message, const Arriving& packet, TimePoint now);
  void arrived(std::uint32_t id, Message& message, const DataHeader& header, TimePoint now);
  void arrived_more(std::uint32_t id, Message& message, TimePoint now);
  void find_level();
  void forget_below(std::uint32_t below, std::uint32_t id);
  bool held(std::uint32_t id) const;
  bool discards(const Message& message, const DataHeader& header) const;

  // receiver_end.cc: what time and the end of messages bring
  void arm(Message& message, TimePoint now);
  void note_due(const Message& message);
  void ask(std::uint32_t id, Message& message, QuestionBudget& questions, TimePoint now);
  void ask_about_next(TimePoint now);
  std::uint32_t first_arriving() const;
  void decide(std::uint32_t id, Message& message, LedgerBook& ledgers);
  void finish(std::uint32_t id, Message& message, ReceiveState state);
  void receive_over(const Message& message, std::uint32_t missing, bool truncated);
  void tell_over(std::uint32_t id, Message& message);
  void advance_finished();

  // receiver_place.cc: where payload lies
  Placement place(Message& message, const DataHeader& header, std::uint32_t payload, bool can_stage);
  std::uint32_t first_of(std::uint32_t id, const Message& message) const;
  std::uint32_t order_of(const Message& message, std::uint32_t id, std::uint32_t index) const;
  void free_staging(Message& message);

  // receiver_parity.cc
  Placement on_parity(const DataHeader& header, Message& message, const Arriving& packet, TimePoint now);
  std::uint32_t missing_of_block(std::uint32_t id, const Message& message, std::uint32_t block) const;
  void offer_rebuild(std::uint32_t id, Message& message, std::uint32_t block);
  std::optional<Rebuild> next_rebuild() const;

  // receiver_control.cc: what the sender is told
  SentRange sent_of(std::uint32_t id, const Message& message) const;
  void tell_all(std::uint32_t id, Message& message);
  State next_state(std::uint32_t id, Message& message);
  static void tell_window(Message& message, State& state);

  const Options& options_;
  const std::uint64_t secret_;
  ReceiveMessages messages_;
  ReceiveTable receives_;
  Staging staging_;
  LaneAcks acks_;
  ReceiveCredit credit_;
  Asking asking_;
  LossDecision decision_;
  Duration trip_;  // round_trip()
  std::uint8_t control_path_ = 0;
  TimePoint due_at_ = TimePoint::max();  // not after any message's question or decision
  Ring<std::uint32_t> states_;           // messages that have something to tell
  Ring<std::uint32_t> unstage_;
  struct Block {
    std::uint32_t message = 0, number = 0;
  };
  ParityStore parity_;
  Ring<Block> rebuilds_;  // offered; some may have come meanwhile
  Ring<ReceiveDone> done_;
  std::uint32_t unmatched_ = 0;  // messages whose record came before their receive
  std::uint8_t level_ = 0;
  bool levels_differ_ = false;  // some message has had another than the one before
  bool active_ = false;
  std::uint32_t finished_below_ = 0;
  std::uint32_t refused_below_ = 0;               // packets of messages below found no room for their message
  std::optional<std::uint32_t> forgotten_probe_;  // a probe asked for a message that is forgotten here
  Counters counters_;
};

}  // namespace clustar::mlt
