// All connections of one NIC. Finds the connection of each packet, decides which message sends next, and shares the
// line among the hosts that send here. Pure. After each input, and at next_timeout(), call poll_transmit and poll_event
// until both are empty.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <variant>
#include <vector>

#include "mlt/core/credit.h"
#include "mlt/core/joint_budget.h"
#include "mlt/core/ledger.h"
#include "mlt/core/options.h"
#include "mlt/core/question_budget.h"
#include "mlt/core/receive/receiver.h"
#include "mlt/core/send/sender.h"
#include "mlt/core/states.h"
#include "mlt/core/wire.h"
#include "transport/base/indexed_heap.h"
#include "transport/base/ring.h"
#include "transport/base/time.h"

namespace clustar::mlt {

class Endpoint {
 public:
  using ConnectionId = std::uint32_t;
  struct PeerLost {};
  struct Unstage {
    std::uint32_t receive;
  };
  struct Rebuildable {};  // call Receiver::poll_rebuild() until it is empty, and rebuilt() for each
  struct Event {
    ConnectionId connection;
    std::variant<SendDone, ReceiveDone, Unstage, PeerLost, Rebuildable> what;
  };
  struct Arrival {
    ConnectionId connection = 0;
    Placement placement;
  };
  struct Outgoing {
    ConnectionId connection = 0;
    std::uint32_t peer = 0;
    Transmit transmit;
  };
  struct Counters {
    std::uint64_t packets = 0;
    std::uint64_t malformed = 0;  // not a packet of this protocol
    std::uint64_t strangers = 0;  // belong to no connection here
  };

  // Where the process has several endpoints: what they may lose together. Null: nobody else counts.
  struct Joint {
    JointBudgets* received = nullptr;
    JointBudgets* sent = nullptr;
  };
  // `options`, and what `joint` names, must outlive the endpoint. Throws std::invalid_argument if they are not allowed
  // (Options::check).
  Endpoint(const Options& options, std::uint64_t seed, const Joint& joint);
  Endpoint(const Options& options, std::uint64_t seed) : Endpoint(options, seed, Joint()) {}

  // Opens one end of a connection, which has one direction. Both ends use the same secret, which nobody can guess and
  // for which knows() is false. Both ends may be here, if a host sends to itself.
  ConnectionId open_sender(std::uint32_t peer, std::uint64_t secret, TimePoint now) {
    return open_sender(peer, secret, now, options_);
  }
  // With options of its own, which must outlive the connection: for instance a smaller segment where the route's MTU is
  // smaller.
  ConnectionId open_sender(std::uint32_t peer, std::uint64_t secret, TimePoint now, const Options& options);
  ConnectionId open_receiver(std::uint32_t peer, std::uint64_t secret, TimePoint now) {
    return open_receiver(peer, secret, now, options_);
  }
  // Likewise: for instance with a max_tolerance_ppm of its own, if only some peers may lose.
  ConnectionId open_receiver(std::uint32_t peer, std::uint64_t secret, TimePoint now, const Options& options);
  enum class End : std::uint8_t { kSends, kReceives };
  bool knows(std::uint64_t secret, End end) const { return known(end).contains(secret); }
  // The connection that a packet claims, by its secret and type alone: for a caller that verifies packets before it
  // passes them to on_packet.
  std::optional<ConnectionId> find(std::span<const std::byte> header) const;
  // The connection must not be used afterwards; its id may be reused.
  void close(ConnectionId connection);
  // The communicator's collectives are over here, and its id will not be used again. Joint budgets are their owner's.
  void forget_communicator(std::uint64_t communicator) {
    ledgers_.forget(communicator);
    allowances_.forget(communicator);
  }

  std::optional<std::uint32_t> send(ConnectionId connection, std::uint32_t bytes, std::int32_t tag,
                                    const SendTerms& terms, TimePoint now);
  std::optional<std::uint32_t> post(ConnectionId connection, std::int32_t tag, std::uint32_t length, TimePoint now);
  void release(ConnectionId connection, std::uint32_t receive) { connections_[connection].receiver->release(receive); }

  // The caller has rebuilt in the receive what Receiver::poll_rebuild() named.
  void rebuilt(ConnectionId connection, const Rebuild& what, TimePoint now);

  // `payload`: bytes after the header. The caller carries out the placement before the next call. If `can_stage` is
  // false, payload whose receive is not known yet is refused, and the peer resends it. `waited`: time that the packet
  // spent in this host before it was read; it does not count as round trip of the network.
  Arrival on_packet(std::span<const std::byte> header, std::uint32_t payload, bool marked, TimePoint now,
                    bool can_stage = true, Duration waited = {});
  TimePoint next_timeout() const;
  void on_timeout(TimePoint now);

  // The message must not be done.
  void set_turn(ConnectionId connection, std::uint32_t message, const Turn& turn, TimePoint now);

  // The next packet to send: control packets first, then data of all connections by Turn. Within equal turns small
  // messages (mouse_bytes) go first, then the order of arrival counts. False: nothing may be sent now. The header is
  // written to its final place, because a copy costs as much as making it. Data only of messages whose Turn::rank is
  // smaller than `below`; 0: control packets only.
  bool poll_transmit(TimePoint now, Outgoing& out, std::uint64_t below = kAllRanks);
  // Whether data may be sent now, whatever its rank.
  bool has_data(TimePoint now) {
    find_places(now);
    return !ready_.empty();
  }
  std::optional<Outgoing> poll_transmit(TimePoint now) {
    std::optional<Outgoing> out(std::in_place);
    if (!poll_transmit(now, *out)) out.reset();
    return out;
  }
  std::optional<Event> poll_event();

  Sender& sender(ConnectionId connection) { return *connections_[connection].sender; }
  Receiver& receiver(ConnectionId connection) { return *connections_[connection].receiver; }
  LedgerBook& ledgers() { return ledgers_; }
  const LedgerBook& ledgers() const { return ledgers_; }
  const Counters& counters() const { return counters_; }
  // Pending timers, including those that an earlier one overtook: at most 65, plus four for each connection.
  std::size_t timers() const { return timers_.size(); }
  // Whether sums and states agree. Looks at everything: for tests.
  bool is_consistent() const;

  static constexpr std::uint64_t kAllRanks = std::numeric_limits<std::uint64_t>::max();

 private:
  struct Connection {
    bool used = false;
    std::uint32_t peer = 0;
    std::uint64_t secret = 0;
    std::unique_ptr<Sender> sender;  // one of the two
    std::unique_ptr<Receiver> receiver;
    bool in_changed = false;
    bool in_control = false;
    bool in_events = false;
    bool in_served = false;
    bool in_waiting = false;
    bool lost_told = false;
    bool idled = false;  // had its latest turn and delivered little: others go first, whatever their level
    ShareState share = ShareState::kIdle;
    SendPlace place;                // of a sender in ready_
    std::uint8_t level = 0;         // of a receiver: Receiver::level() as share_ knows it
    std::uint32_t promised = 0;     // credit while kPromised
    std::uint32_t window = 0;       // of credit while kServed
    std::uint64_t placed_seen = 0;  // bytes that `window` has grown by
    std::uint64_t turn_from = 0;    // bytes placed when it became kServed
    TimePoint turn_since{};         // when that was
    TimePoint heard_at{};           // latest data or probe
    TimePoint armed = TimePoint::max();
  };
  struct Timer {
    TimePoint at;
    ConnectionId connection;
    bool operator<(const Timer& other) const {  // the heap's top is the earliest; ties by number
      return at != other.at ? at > other.at : connection > other.connection;
    }
  };

  using BySecret = std::unordered_map<std::uint64_t, ConnectionId>;  // looked up only, never walked
  const BySecret& known(End end) const { return by_secret_[static_cast<std::size_t>(end)]; }
  ConnectionId open(std::uint32_t peer, std::uint64_t secret, End end);
  void after_input(ConnectionId id, TimePoint now, bool heard = false);
  void note_level(Connection& connection);
  void share_line(ConnectionId id, bool heard);
  void change_share(Connection& connection, ShareState next);
  void grant_share(Connection& connection);
  void serve(ConnectionId id);
  void end_turn(ConnectionId id);
  void retire_silent(TimePoint now);
  void serve_waiting();
  ConnectionId take_waiting();
  void find_places(TimePoint now);
  void find_place(ConnectionId id, TimePoint now);
  auto goes_first() const {
    return [this](ConnectionId a, ConnectionId b) { return connections_[a].place.before(connections_[b].place); };
  }
  void arm(ConnectionId id);
  void drop_stale_timers();
  void queue_control(ConnectionId id);

  const Options& options_;
  std::uint64_t seed_;
  std::vector<Connection> connections_;
  std::vector<ConnectionId> free_;
  std::array<BySecret, 2> by_secret_;  // by End
  LedgerBook ledgers_;
  LedgerBook allowances_;  // of what is sent from here (Sender)
  CreditShare share_;
  QuestionBudget questions_{options_.line_rate};
  std::uint32_t receivers_ = 0;  // connections that receive here
  Ring<ConnectionId> changed_;   // senders whose place is not known
  IndexedHeap ready_;            // senders that have something to send
  Ring<ConnectionId> control_;
  Ring<ConnectionId> events_;
  Ring<ConnectionId> served_;   // with some that no longer are
  Ring<ConnectionId> waiting_;  // likewise
  std::vector<Timer> timers_;
  Packet packet_;    // the latest that came
  TimePoint now_{};  // of the latest input
  Counters counters_;
  std::uint64_t inputs_ = 0;
  std::uint64_t arrivals_ = 0;  // messages that were sent
  bool levels_ = false;         // some receiver has had another level than 0
  std::uint32_t picks_ = 0;     // of those who wait, by level
};

}  // namespace clustar::mlt
