// What an iteration of a training still has to send, before it is posted: a communicator's collectives repeat,
// iteration after iteration, so that two that are alike tell the next. Pure; times are arguments.
//
// Where an iteration begins the sequence itself does not say: it is where the communicator paused for longest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <unordered_map>
#include <vector>

#include "transport/api/flow_tag.h"
#include "transport/base/time.h"

namespace clustar::coflow::enforce {

// What is known of the iteration when a collective of it begins; 0: nothing.
struct IterationForecast {
  std::uint64_t bytes = 0;    // of all its collectives
  std::uint64_t to_come = 0;  // of those after this one

  bool operator==(const IterationForecast&) const = default;
};

// How often a sequence of symbols repeats. Short periods are counted one by one. Longer ones show by a piece of the
// sequence that came so long before, too: pieces are compared by fingerprints, and only those that are rare enough by
// themselves are kept, so that a symbol costs the same however long the period is.
class Repetition {
 public:
  static constexpr std::size_t kShort = 1024;
  // Longer periods are not found.
  static constexpr std::size_t kLongest = 16 * 1024;

  void add(std::uint64_t symbol);
  // Of the latest symbols: what was twice, at least. 0: none.
  std::size_t period() const { return period_; }
  // It has gone on for so long that there is no longer one behind it.
  bool settled() const { return most_ >= kLongest + period_ && period_ > 0; }
  std::size_t remembered() const { return symbols_.size(); }  // symbols

 private:
  static constexpr std::size_t kPiece = 16;    // symbols
  static constexpr std::uint64_t kPieces = 8;  // of so many pieces one is kept
  static constexpr std::size_t kPlaces = 4 * 1024;
  static constexpr std::size_t kCandidates = 4;
  struct Candidate {
    std::size_t distance;
    std::uint64_t alike;
  };

  std::uint32_t back(std::size_t distance) const { return symbols_[symbols_.size() - 1 - distance]; }
  void take(std::size_t distance, std::uint64_t alike);
  void look_for_longer();
  void forget();

  std::vector<std::uint32_t> symbols_;  // fingerprints of the latest
  std::vector<std::uint64_t> alike_;    // by distance: so many in a row, up to the latest, are as the one so far before
  std::vector<Candidate> longer_;       // distances above kShort
  std::vector<std::uint64_t> places_;   // by a piece's fingerprint: how many symbols there were when it was last seen
  std::uint64_t piece_ = 0;             // fingerprint of the latest kPiece symbols
  std::uint64_t count_ = 0;             // of all symbols
  std::uint64_t most_ = 0;              // symbols that are as period_ says
  std::size_t period_ = 0;
};

// One communicator's collectives.
class RepeatingCollectives {
 public:
  // The next one, after a pause in which the communicator sent nothing. `kind`: alike for those that may stand for each
  // other, if they have as many bytes.
  void add(std::uint64_t kind, std::uint64_t bytes, Duration pause);
  // As of the latest one. Known as soon as two iterations that are alike have passed.
  IterationForecast forecast() const;
  std::size_t period() const { return period_; }  // collectives in an iteration; 0: none known
  std::size_t remembered() const { return collectives_.size(); }

 private:
  static constexpr std::uint64_t kPauses = 32;  // the mean pause is of so many
  struct Collective {
    std::uint64_t bytes;
    Duration pause;  // before it
  };

  bool pauses(Duration pause);
  void find_begin();

  // Collectives that are all alike show no period of their own, but with their pauses; pauses are not always alike.
  Repetition by_kind_, by_kind_and_pause_;
  std::vector<Collective> collectives_;  // the latest: two iterations at least
  Duration mean_pause_{0};
  std::uint64_t seen_ = 0;  // at most kPauses
  std::size_t period_ = 0;
  std::size_t place_ = 0;  // of the latest in its iteration, from 0
  std::uint64_t bytes_ = 0;
  std::uint64_t begun_ = 0;  // bytes of this iteration's collectives that have begun
};

// The communicators of a NIC.
class Iterations {
 public:
  using Id = std::uint32_t;
  static constexpr Id kNone = std::numeric_limits<Id>::max();
  static constexpr std::size_t kCommunicators = 64;  // remembered: those that sent last

  // Of the communicator; kNone: there are too many that send.
  Id find(std::uint64_t communicator, TimePoint now);
  // Something of this collective is to be sent, to this peer: again, or for the first time. `bytes`: of it on this
  // host's edge.
  IterationForecast begins(Id id, const transport::MessageIdentity& identity, std::uint32_t peer, std::uint64_t bytes,
                           TimePoint now);
  // A flow of it has something to send; it has nothing any more.
  void sends(Id id);
  void rests(Id id, TimePoint now);

 private:
  struct Communicator {
    std::uint64_t id = 0;
    std::uint32_t sending = 0;  // flows
    TimePoint rests_since{};
    RepeatingCollectives collectives;
    std::unordered_map<std::uint64_t, std::uint64_t> next;  // number, by function and peer
  };

  std::vector<Communicator> communicators_;
  std::unordered_map<std::uint64_t, Id> by_id_;
};

}  // namespace clustar::coflow::enforce
