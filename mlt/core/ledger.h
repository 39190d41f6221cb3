// The hard bound on what may stay missing of a collective (docs/loss.md).
//
// The unit is the contribution-byte: a byte of reduce-scatter stage k (from 0) carries the partial sums of k + 1 ranks,
// so losing it loses k + 1 contributions. One Ledger belongs to one collective on one receiving network edge, over all
// channels. Charges only grow: they are never refunded, even if the packet arrives later.
#pragma once

#include <cstdint>
#include <vector>

namespace clustar::mlt {

// What both sides agree on before the first message of a collective.
struct Terms {
  std::uint64_t collective_bytes = 0;  // S: input of one rank; 0: unknown
  std::uint32_t ranks = 0;             // n
  std::uint32_t edges = 0;             // E: how often the ring crosses the network, 1 .. n
  std::uint32_t tolerance_ppm = 0;     // p in parts per million, 0 .. 1,000,000

  friend bool operator==(const Terms&, const Terms&) = default;
};

// floor(p * S * n / E) in contribution-bytes, exact and capped at 2^64 - 1. It is 0, so that nothing may be lost, if a
// term is unknown or makes no sense: S = 0, n < 2, E < 1, E > n, p > 1.
// Uniform loss on a ring with one rank per node (E = n) reaches it at 2 p / (n - 1) per hop.
std::uint64_t loss_bound(const Terms& terms);

// How many packets of one message may stay missing, whatever the ledger has left: max(1, 10 %); 0 for an empty one.
constexpr std::uint32_t message_cap_packets(std::uint32_t packets) {
  return packets == 0 ? 0 : packets < 20 ? 1 : packets / 10;
}

struct LossCounters {
  std::uint64_t eligible_bytes = 0;  // of messages that may lose bytes
  std::uint64_t missing_bytes = 0;   // given up
  std::uint64_t charged = 0;         // the same in contribution-bytes
  std::uint64_t refused = 0;         // charges that the bound did not allow
};

// Value type.
class Ledger {
 public:
  Ledger() = default;  // allows nothing
  explicit Ledger(const Terms& terms) : terms_(terms), bound_(loss_bound(terms)) {}

  // A tolerant message of this size is expected on the edge. Call it once per message, when its size becomes known.
  void add_eligible(std::uint64_t bytes);

  // Whether `missing_bytes` more of stage `stage` may be given up now. Afterwards both must hold:
  //   charged <= bound(), and missing <= p * eligible *so far*.
  // "So far" is the safe reading of "p of the bytes eligible on the edge": even if the collective breaks off, or its
  // later messages are reliable, no more than p is missing. It is stricter on early messages: with p = 1 % and packets
  // of 1448 B, a first message of 64 KiB may lose nothing, the third may.
  // Stages are 0 .. n - 2; any other allows nothing. 0 bytes are always allowed.
  bool allows(std::uint32_t stage, std::uint64_t missing_bytes) const { return missing_bytes <= headroom(stage); }
  // The most bytes of this stage that may be given up now.
  std::uint64_t headroom(std::uint32_t stage) const;
  // Charges (stage + 1) per byte if allowed. False: counted as refused, and nothing else changes.
  bool charge(std::uint32_t stage, std::uint64_t missing_bytes);

  // A closed ledger allows nothing more, forever.
  void close() { closed_ = true; }
  bool closed() const { return closed_; }

  const Terms& terms() const { return terms_; }
  std::uint64_t bound() const { return bound_; }
  const LossCounters& counters() const { return counters_; }

 private:
  Terms terms_;
  std::uint64_t bound_ = 0;
  LossCounters counters_;
  bool closed_ = false;
};

struct CollectiveId {
  std::uint64_t communicator = 0;
  std::uint32_t sequence = 0;  // grows by one per collective; may wrap (RFC 1982 order)
  bool exchange = false;       // an exchange of the communicator; exchanges have sequence numbers of their own

  friend bool operator==(const CollectiveId&, const CollectiveId&) = default;
};

// The ledgers of all current collectives on one receiving edge. Ids come from the wire, so the tables are bounded, and
// no id ever gets a second budget: an entry that is dropped leaves a floor under the sequence numbers of its
// communicator, and nothing at or below the floor opens again.
class LedgerBook {
 public:
  struct Options {
    std::uint32_t ledgers = 64;  // open at a time, 1 .. 4096; the oldest is closed first
    // Remembered, 1 .. 4096; when all are taken, a new one may lose nothing. One with exchanges counts twice.
    std::uint32_t communicators = 64;
  };
  explicit LedgerBook(const Options& options);  // std::invalid_argument

  // Idempotent for equal terms. False: this collective may lose nothing, because it was closed before, its terms
  // contradict those it was opened with (which closes it), or there are too many communicators.
  bool open(const CollectiveId& id, const Terms& terms);
  void close(const CollectiveId& id);
  // The communicator has ended on this side, and its id will not be used again.
  void forget(std::uint64_t communicator);

  // Like Ledger's functions; an id that is not open allows nothing (charge counts as refused).
  void add_eligible(const CollectiveId& id, std::uint64_t bytes);
  bool allows(const CollectiveId& id, std::uint32_t stage, std::uint64_t missing_bytes) const {
    return missing_bytes <= headroom(id, stage);
  }
  std::uint64_t headroom(const CollectiveId& id, std::uint32_t stage) const;
  bool charge(const CollectiveId& id, std::uint32_t stage, std::uint64_t missing_bytes);

  const Ledger* find(const CollectiveId& id) const;       // closed ones, too; valid until the next open() or forget()
  const LossCounters& totals() const { return totals_; }  // of all collectives ever
  std::size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    CollectiveId id;
    Ledger ledger;
    std::uint64_t opened;  // order of opening
  };
  struct Floor {
    std::uint64_t communicator;
    bool exchange = false;
    std::uint32_t sequence = 0;
    bool set = false;
  };
  Ledger* known(const CollectiveId& id);
  Floor* floor_of(const CollectiveId& id);
  void drop_oldest();

  Options options_;
  std::vector<Entry> entries_;
  std::vector<Floor> floors_;
  std::uint64_t opened_ = 0;
  LossCounters totals_;
};

}  // namespace clustar::mlt
