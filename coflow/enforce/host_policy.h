// Who sends first at a NIC: the send policy `coflow`. Pure.
//
// Bands, strictly one before the other:
//   0  mice: coflows, or unidentified messages, of at most `mouse_bytes`. Policed: beyond a share of what is sent they
//   go
//      behind the bulk of their urgency.
//   1  the flow that nothing was sent of for longest, once for every `floor_turns` quanta of bulk. So each of F waiting
//      flows gets a quantum within floor_turns * F of them: a floor, and nothing starves.
//   2  bulk, by urgency, then by size (PIAS, Bai et al., NSDI 2015; Aalo, Chowdhury and Stoica, SIGCOMM 2015): a coflow
//      of a known iteration by what is left of that, others of known size by that, one of unknown size by what was sent
//      of it, in the same levels; by arrival within a level. Under a coordinator's order (coflow/control) places
//      stand for sizes, and classes that it has not placed yet go first.
// Where mice or other processes are there, or were lately, bulk leaves as the line takes it (pacing), so that no queue
// stands before what comes next; a process that goes before all others may be ahead of the line until its next poll.
// What other processes of the NIC have to send, a Board tells: they go by what is left of their iterations, as far as
// those are known, since a job is not served by one bucket that came early.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "coflow/control/core/class_record.h"
#include "coflow/enforce/board.h"
#include "coflow/enforce/iterations.h"
#include "coflow/enforce/size_levels.h"
#include "transport/api/send_policy.h"
#include "transport/base/time.h"

namespace clustar::coflow::enforce {

struct HostPolicyOptions {
  bool knows_line = false;  // its speed; otherwise nothing is paced, and no process waits for another
  Duration burst{0};        // bulk may be so far ahead of what the line has carried
  std::uint64_t mouse_bytes = 64 * 1024;
  std::uint32_t mouse_share = 5;   // mice are policed at one byte of so many
  std::uint32_t floor_turns = 32;  // 0: no floor
  std::uint64_t quantum = 64 * 1024;
  Duration mixed_for = std::chrono::milliseconds(100);  // after the latest mouse, or second flow, the line is shared
  std::uint32_t job = 0;                                // of its classes
  bool push = false;    // an iteration's progress says how hard it presses on shared links (push.h)
  bool by_size = true;  // false: by arrival within an urgency; other processes are told of coflows only
};

class HostPolicy : public transport::SendPolicy {
 public:
  // `places`: null without a coordinator.
  HostPolicy(const HostPolicyOptions& options, std::unique_ptr<Board> board,
             std::shared_ptr<control::ClassPlaces> places = nullptr);

  Turn turn(const transport::Flow& flow, TimePoint now) override;
  void on_queued(const transport::Flow& flow, std::uint64_t bytes, TimePoint now) override;
  void on_sent(const transport::Flow& flow, std::uint64_t bytes, TimePoint now) override;
  void on_finished(const transport::Flow& flow, std::uint64_t unsent, TimePoint now) override;
  std::uint64_t version() const override { return version_ + (places_ == nullptr ? 0 : places_->version()); }
  std::optional<std::uint32_t> changed(TimePoint now) override;
  Gate gate(TimePoint now) override;
  RunAhead run_ahead(TimePoint now) const override;

  // Ranks: the band, the urgency, the size's level.
  static constexpr std::uint64_t kBand = std::uint64_t{1} << 60;
  static constexpr std::uint64_t kUrgency = std::uint64_t{1} << 56;
  // What Turn::level says of bulk: three for each urgency, up to 1 MiB, up to 16 MiB, above.
  static constexpr std::uint64_t kLargest = 2;
  static constexpr std::uint8_t level_of(transport::Urgency urgency, std::uint64_t size) {
    return static_cast<std::uint8_t>(2 + 3 * static_cast<std::uint64_t>(urgency) + size);
  }
  static constexpr std::uint64_t kPoliced = std::uint64_t{1} << 48;  // behind all sizes and places

  struct Counters {
    std::uint64_t mice = 0;     // bytes
    std::uint64_t policed = 0;  // of them, as bulk
    std::uint64_t bulk = 0;     // bytes
    std::uint64_t floors = 0;   // times that the flow that had waited for longest was put first
    std::uint64_t shut = 0;     // times that the gate was found shut
  };
  const Counters& counters() const { return counters_; }

 private:
  static constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

  struct State {         // of a flow
    bool waits = false;  // queued > 0
    bool mouse = false;
    std::uint8_t urgency = 0;
    std::uint64_t queued = 0;
    std::uint64_t coflow = 0;
    std::uint64_t attained = 0;                       // unidentified: sent since it had nothing to send for kBurstGap
    TimePoint left_at{};                              // when it had nothing to send any more
    Iterations::Id communicator = Iterations::kNone;  // of bulk that is identified
    IterationForecast iteration{};                    // as of when its coflow began
    std::shared_ptr<control::ClassRecord> record{};   // of bulk, under a coordinator
    std::uint32_t peer = 0;                           // of to_peer
    std::atomic<std::uint64_t>* to_peer = nullptr;    // its count of what is queued to this flow's peer
    std::uint32_t earlier = kNone, later = kNone;     // of bulk that waits, by when something was sent of it
  };
  struct Class {               // an urgency's bulk
    std::uint64_t queued = 0;  // bytes that wait
    std::uint64_t left = 0;    // of the iteration, or else of the coflow, that was last queued or sent of
    std::uint64_t in_all = 0;  // the same one's
    std::uint64_t place = 0;   // of what was last queued or sent in its turn: Board::wants()
    std::uint64_t passed = 0;  // bytes that less urgent ones sent since it did: more than a floor gives: it cannot
  };

  bool is_mouse(const transport::Flow& flow) const;
  std::uint64_t size_level(const transport::Flow& flow) const;
  std::uint64_t order_level(const transport::Flow& flow) const;
  void begin(const transport::Flow& flow, TimePoint now);
  void foresee(const transport::Flow& flow, TimePoint now);
  void set_iteration_left(Iterations::Id communicator, std::uint64_t left);
  void end(std::uint32_t id, TimePoint now);
  void count_mouse(std::uint64_t bytes, TimePoint now);
  void refill();
  bool bulk_waits(TimePoint now) const;
  void police(bool yes);
  void count_bulk(const transport::Flow& flow, std::uint64_t bytes);
  void give_floor();
  void tell_board(const transport::Flow& flow, TimePoint now);
  void open_record(const transport::Flow& flow, TimePoint now);
  static void begin_iteration(control::ClassRecord& record, const transport::Flow& flow, TimePoint now);
  static void count_queued(State& one, std::uint64_t bytes);
  static void count_left(State& one, std::uint64_t bytes, std::uint64_t sent);
  void count_capped(std::uint32_t id, std::uint64_t bytes, TimePoint now);
  TimePoint not_before_of(const State& one) const;
  void tell_record(const transport::Flow& flow);
  // In the coordinator's order: 0 for a class that is new to it; nothing: no order counts.
  std::optional<std::uint64_t> place_of(const State& one) const;
  // Of other processes' bulk; Board::kNobody: there was none.
  std::uint32_t most_urgent_lately(TimePoint now) const;
  void append(std::uint32_t id);
  void take_out(std::uint32_t id);

  const HostPolicyOptions options_;
  SizeLevels levels_;
  Iterations iterations_;
  // By communicator: the level of what was left of its iteration when its latest collective began, for all its flows
  // alike, since a later collective of it gains nothing by going first; nothing: not known.
  std::vector<std::optional<std::uint64_t>> iteration_level_;
  const std::unique_ptr<Board> board_;
  const std::shared_ptr<control::ClassPlaces> places_;
  std::vector<State> states_;  // by Flow::id
  std::array<Class, transport::kUrgencies> classes_{};
  // For mixed_for after there were, last:
  TimePoint mice_until_ = TimePoint::min();    // mice of this process,
  TimePoint shared_until_ = TimePoint::min();  // more flows than one,
  // bulk of other processes, by the most urgent of it.
  std::array<TimePoint, transport::kUrgencies> others_until_{};
  std::uint32_t longest_ = kNone, latest_ = kNone;  // of bulk that waits: nothing sent for longest, sent just now
  std::uint64_t since_floor_ = 0;                   // bytes of bulk
  std::uint32_t promoted_ = kNone;
  std::uint64_t promoted_left_ = 0;  // bytes
  std::vector<std::uint32_t> told_;  // flows whose turn is another
  std::uint64_t mouse_credit_;       // bytes
  std::uint64_t bulk_refilled_ = 0;  // bytes of bulk that mice had their credit for
  bool mice_policed_ = false;
  std::uint64_t version_ = 0;
  Counters counters_;
};

}  // namespace clustar::coflow::enforce
