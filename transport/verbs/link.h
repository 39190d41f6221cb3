// What both ends of a channel have between them: queue pairs, and the control connection by which they meet, agree on
// what arrived when a queue pair failed, and notice that the peer's process or host is gone.
//
// A queue pair that fails is over: both ends stop theirs and tell what arrived on it. When both have told, the pair is
// drained: nothing more can come by it, and what did not arrive may be sent by another.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "transport/net/socket.h"
#include "transport/verbs/core/reminder.h"
#include "transport/verbs/queue_pairs.h"

namespace clustar::transport::verbs {

class Link {
 public:
  Link(Nic& nic, Side side, QueuePairs pairs, net::Socket control, std::string peer);
  // Tells the peer what arrived, unless the link failed and told so then.
  ~Link();
  Link(Link&&) = delete;

  struct Arrival {
    WorkId id{};
    std::uint32_t immediate = 0;  // of a receive
  };
  static constexpr std::size_t kBatch = 16;
  // The next completions that succeeded, up to kBatch, valid until the next call; failed ones end their pair.
  std::span<const Arrival> poll();
  bool more() const { return more_; }  // the latest poll() took all that it could

  // Looks at the control connection and the ports; every few polls. True once in every kSilence of silence:
  // then the caller asks remind() about each pair.
  bool watch();
  // Whether one more write is to be posted on a silent pair; then tell reminded() its number. Ends one whose device has
  // lost what it was given. Arguments: see Reminder.
  bool remind(std::size_t pair, bool open, std::uint32_t acknowledged);
  void reminded(std::size_t pair, std::uint32_t number);
  struct Drained {
    std::size_t pair = 0;
    std::uint32_t arrived = 0;  // immediates of ours at the peer, since the beginning
    bool exact = false;         // PostedQueue::drain
  };
  std::optional<Drained> take_drained();
  // A queue pair ended, and the peer has not said yet what arrived on it: it does when its program calls it.
  bool undrained() const;

  QueuePairs& pairs() { return pairs_; }
  const QueuePairs& pairs() const { return pairs_; }
  bool usable(std::size_t pair) const { return states_[pair].phase == Phase::kUsable; }
  std::size_t usable_pairs() const { return usable_pairs_; }
  // The first usable one at or after `from`, in turn. Only while there is one.
  std::size_t usable_from(std::size_t from) const;
  Result<void> post(std::size_t pair, ibv_send_wr& first) {
    ++posts_;
    return pairs_.post(pair, first);
  }
  void end_pair(std::size_t pair, const Error& why);

  // The peer is gone, in good order or not; what it said and what came before is still to be taken.
  bool closed() const { return closed_; }
  const std::string& why_closed() const { return why_closed_; }
  // No pair is left, or the peer's host is dead: nothing will ever move.
  const std::optional<Error>& failed() const { return failed_; }
  // Ends all pairs.
  void fail_with(ErrorCode code, const std::string& what);

  Nic& nic() { return nic_; }
  const std::string& peer() const { return peer_; }
  // Counts whatever shows that the peer lives.
  std::uint64_t marks() const { return marks_; }

 private:
  // kUsable -> kStopped (in error here) -> kTold (nothing more arrives here, and the peer knows how much did).
  enum class Phase : std::uint8_t { kUsable, kStopped, kTold };
  struct State {
    Phase phase = Phase::kUsable;
    std::uint32_t arrived = 0;         // immediates
    std::uint32_t receives_taken = 0;  // not posted again yet
    bool flushed = false;              // receives come back unused: nothing follows
    TimePoint stopped{};
    bool overdue = false;  // stopped for kFlushTimeout
    std::optional<std::uint32_t> peer_arrived{};
    bool exact = false;
    bool drained = false;
    Reminder reminder{};
  };
  // Receives that were used are posted again so many at a time.
  static constexpr std::uint32_t kRepost = 16;
  // In case a device does not give back the receives of a stopped queue pair, although it must.
  static constexpr Duration kFlushTimeout = std::chrono::milliseconds(500);

  // Without an arrival and a write for so long, the devices are asked whether the queue pairs still work: rdma_rxe
  // completes nothing of what is posted on an idle one after it failed.
  static constexpr Duration kSilence = std::chrono::seconds(1);

  void on_completion(const ibv_wc& completion);
  void repost(std::size_t pair);
  void read_control();
  void on_farewell(const Farewell& farewell);
  void check_ports();
  bool check_states();
  void tell_stopped();
  bool is_final(State& state);
  void tell_failed();
  void say(Farewell::Kind kind, std::size_t pair);
  void close(const std::string& why);

  Nic& nic_;
  const Side side_;
  QueuePairs pairs_;
  net::Socket control_;
  const std::string peer_;
  std::array<State, kMaxQueuePairs> states_{};
  std::size_t usable_pairs_;
  std::array<Arrival, kBatch> arrivals_{};
  std::size_t arrival_count_ = 0;
  bool more_ = false;
  std::size_t short_polls_ = 0;  // in a row; each empties the next completion queue
  std::array<std::byte, Farewell::kSize> heard_{};
  std::size_t heard_bytes_ = 0;
  bool closed_ = false;
  std::string why_closed_;
  std::optional<Error> first_error_;
  std::optional<Error> failed_;
  std::uint64_t marks_ = 0;
  std::uint64_t posts_ = 0;
  std::uint64_t moves_at_check_ = ~std::uint64_t{0};  // so that silence begins with the first check
  TimePoint next_check_{};
};

}  // namespace clustar::transport::verbs
