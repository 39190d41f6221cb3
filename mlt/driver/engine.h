// One engine of a device: it brings packets from a PacketIo of its own to the MLT core and back, for the connections
// that EngineGroup gives it.
//
// Thread rule: the engine belongs to the thread that holds mutex(). Callers of the data path only try the lock; who
// does not get it leaves its request in a queue that the holder empties. attach, detach and deregistration wait for it.
// Lifetime rule: a Client detaches itself before it is destroyed; after that nothing calls it, and nothing reads or
// writes the memory of its requests.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "mlt/core/endpoint.h"
#include "mlt/driver/context.h"
#include "mlt/driver/device_writes.h"
#include "mlt/driver/engine_counters.h"
#include "mlt/driver/engine_limits.h"
#include "mlt/driver/handshake.h"
#include "mlt/driver/parity.h"
#include "mlt/driver/sealing.h"
#include "mlt/driver/send_table.h"
#include "transport/api/transport.h"
#include "transport/base/library_thread.h"
#include "transport/base/log.h"
#include "transport/base/time.h"
#include "transport/message/traffic_book.h"
#include "transport/net/socket.h"
#include "transport/net/waker.h"

namespace clustar::mlt::driver {

class Engine : private EngineLimits {
 public:
  using ConnectionId = Endpoint::ConnectionId;

  // The upper half of a connection. All calls are made with the engine's lock held.
  class Client {
   public:
    virtual void submit(std::uint32_t request, TimePoint now) = 0;  // what was posted
    // `payload` may lie at its place already, put there by the device.
    // `placed`: the payload is in the memory that some receive expects, which may be a GPU's.
    virtual void place(const Placement&, std::span<const std::byte>, bool /*placed*/) {}
    virtual void on_event(const Endpoint::Event& event, TimePoint now) = 0;
    virtual void on_room(TimePoint) {}         // after wait_for_room(): there may be some
    virtual void on_written(std::uint32_t) {}  // after DeviceWrites::wait()
    virtual void check(TimePoint now) = 0;     // now and then: is the peer still there?
    virtual void on_failure(const Error& error) = 0;

   protected:
    ~Client() = default;
  };

  using Counters = EngineCounters;

  // `io_name`: the PacketBackend's. `traffic` outlives it.
  static Result<std::unique_ptr<Engine>> open(std::unique_ptr<io::PacketIo> device, std::string io_name,
                                              const Options& options, std::string name, const Context& context,
                                              transport::TrafficBook& traffic);
  ~Engine();

  const Context& context() const { return context_; }
  const std::string& name() const { return name_; }
  const Options& options() const { return options_; }
  io::AddressBlob local_address() const { return device_->local_address(); }
  const std::string& io_name() const { return io_name_; }
  // Whether a policy orders, or hears of, what the NIC sends.
  bool has_policy() const { return sends_.has_policy(); }
  // Error kInvalidArgument: memory of a kind that is not in the device's reach, or that packets cannot be sealed in.
  Result<std::unique_ptr<io::Mr>> reg_mr(const gdr::MemoryRef& memory);
  std::mutex& mutex() { return mutex_; }
  bool is_lost() const { return is_lost_.load(std::memory_order_relaxed); }  // the device: nothing moves any more

  struct FarEnd {
    net::Address host;        // of the control connection
    io::AddressBlob address;  // where it takes packets
    int rank = -1;            // -1 = unknown
    bool rebuilds = false;    // packets by parity
    Duration round_trip{0};   // to it and back, without queues, as far as is known; 0 = unknown
  };
  // Waits for the lock. `id` is written with it held: the client may be called before this returns. `channel` says what
  // the connection may lose; `session`: null without a pre-shared key.
  using End = Endpoint::End;
  Result<void> attach(Client& client, End end, const FarEnd& far_end, std::uint64_t secret,
                      const transport::ChannelOptions& channel, const Session* session,
                      std::optional<ConnectionId>& id);
  void count_stranger();
  Counters counters();
  std::string describe_device();

  // With the lock held. Nothing is sent for the connection, or placed into its memory, afterwards.
  void close(ConnectionId connection);
  // Forgets what the client posted or wanted, too.
  void forget(Client& client);
  // Hands a message to the core, in the turn that the device's policy gives it. `offered`, unless null, is set once the
  // device was offered what may go. nullopt: as Endpoint::send.
  std::optional<std::uint32_t> send(ConnectionId connection, const OutboundMessage& message, const SendTerms& terms,
                                    std::atomic<bool>* offered, TimePoint now);
  void wait_for_room(ConnectionId connection) { waiting_.push_back(connection); }
  // Tells the device where a message from the peer of a connection that receives is to be placed, if it can and packets
  // are not sealed: what is placed was not verified. close() cancels what was not.
  io::PlacementHint expect(ConnectionId connection, std::int32_t tag, std::uint32_t tag_seq,
                           const io::MemorySlice& target);
  void cancel(ConnectionId connection, io::PlacementHint landing);
  DeviceWrites* writes() { return writes_.get(); }  // null: the device reaches host memory only
  void drain_posts(TimePoint now);
  void handle_events(TimePoint now);
  Endpoint& core() { return core_; }
  const Options& options(ConnectionId id) const { return *attached_[id].options; }
  transport::TrafficAccount* traffic(ConnectionId id) { return attached_[id].traffic.operator->(); }
  Parity* parity() { return parity_.get(); }     // null: nothing can be rebuilt here
  Sealing* sealing() { return sealing_.get(); }  // null without a pre-shared key

  // Without it. A request of so many bytes is to be submitted; small ones may wait for the next poke().
  void post(Client& client, std::uint32_t request, std::size_t bytes);
  // Some progress, unless somebody else is at it, for a caller who waits until `done`.
  void poke(const std::atomic<bool>& done);

 private:
  struct Post {
    Client* client;
    std::uint32_t request;
  };
  struct Pending {  // whose packet tx_[i] is
    ConnectionId connection = 0;
    std::uint32_t message = 0;
    bool data = false;
    bool follows = false;  // may go where another packet for its peer goes
    bool sealed = false;
  };
  struct Attached {
    Client* client = nullptr;
    std::string peer;
    Endpoint::End end = Endpoint::End::kSends;
    std::unique_ptr<const Options> options{};  // its own
    std::uint64_t communicator = 0;
    std::uint64_t secret = 0;
    std::uint8_t dscp = 0;  // TxPacket::dscp of its data
    io::PeerId peer_id = 0;
    std::vector<io::PlacementHint> landings{};  // of one that receives: open
    transport::TrafficBook::Entry traffic{};
  };
  struct Offered {  // a send that is done when the device was offered it
    ConnectionId connection = 0;
    std::atomic<bool>* done = nullptr;
  };
  struct Peer {
    io::PeerId id = 0;
    std::uint32_t users = 0;
  };

  Engine(std::unique_ptr<io::PacketIo> device, std::string io_name, const Options& options, std::string name,
         const Context& context, net::Waker waker, std::uint64_t seed, std::unique_ptr<Sealing> sealing,
         std::unique_ptr<transport::SendPolicy> policy, transport::TrafficBook& traffic);

  bool turn(TimePoint now, const std::atomic<bool>* done);  // true: something happened
  bool receive(TimePoint& now);
  bool step_writes();
  bool transmit(TimePoint now);
  bool send_bursts(TimePoint now);
  bool next_pending(TimePoint now, std::uint64_t below);
  std::uint64_t room_ahead() const;
  void on_sent(const Endpoint::Event& event, const SendDone& sent, TimePoint now);
  void drop_pending(ConnectionId connection, std::uint32_t message);
  std::uint64_t slot(ConnectionId connection, std::int32_t tag, std::uint32_t tag_seq) const;
  io::MemorySlice payload_of(const DataHeader& header);
  bool places() const { return device_->capabilities().landing && !sealing_; }
  void gather(std::size_t from);
  void seal_fresh();
  template <class Keep>
  void keep_pending(Keep keep);
  void refuse_first(const Error& error);
  std::unique_ptr<const Options> connection_options(End end, const transport::ChannelOptions& channel,
                                                    const FarEnd& far_end);
  bool may_send_parity(const Options& options, const FarEnd& far_end);
  void join_communicator(const transport::ChannelOptions& channel);
  void leave_communicator(std::uint64_t communicator);
  void check_some(TimePoint now);
  void fail_device(const Error& error);
  void held(TimePoint now) { held_at_.store(now.time_since_epoch().count(), std::memory_order_relaxed); }
  void give_way() const;
  void run();
  Duration sleep_time();
  void note_caller(TimePoint now);
  bool callers_are_silent() const;
  void sleep(std::span<const int> readable, Duration timeout);
  void wake_thread();

  const Context& context_;
  const std::string name_;
  const std::string io_name_;
  const Options options_;
  std::mutex mutex_;
  const std::unique_ptr<io::PacketIo> device_;
  const std::unique_ptr<Sealing> sealing_;
  const std::unique_ptr<DeviceWrites> writes_;
  const std::unique_ptr<Parity> parity_;
  transport::TrafficBook& traffic_;  // of the NIC
  std::vector<Attached> attached_;   // by the core's number; before core_, which refers to their options
  Endpoint core_;
  Counters counters_;  // of what is over: see counters()
  std::map<std::string, Peer> peers_;
  std::map<std::uint64_t, std::uint32_t> communicators_;  // how many connections each has here
  std::set<std::uint64_t> tolerant_;                      // those that may lose something
  bool told_of_tolerant_ = false;
  SendTable sends_;
  const std::uint64_t ahead_;                // bytes of data that may lie in this host behind what is sent next
  bool held_ahead_ = false;                  // there are so many: more may wait, and somebody has to look again soon
  TimePoint shut_until_ = TimePoint::max();  // the policy's gate keeps data back; max(): it does not
  std::vector<Offered> offered_;
  std::vector<ConnectionId> waiting_;  // for room
  std::vector<ConnectionId> resuming_;
  Endpoint::Outgoing out_;
  std::array<io::TxPacket, kBurst> tx_;
  std::array<Pending, kBurst> pending_;
  std::size_t pending_count_ = 0;
  std::array<io::RxPacket, kBurst> rx_;
  std::size_t gathered_ = 0;
  std::size_t next_check_ = 0;
  TimePoint check_at_{};
  std::optional<Error> lost_;  // the device
  std::atomic<bool> is_lost_{false};

  std::mutex posts_mutex_;
  std::vector<Post> posts_;
  std::vector<Post> draining_;
  std::atomic<bool> has_posts_{false};

  net::Waker waker_;
  std::atomic<bool> stop_{false};
  std::atomic<bool> asleep_{false};
  std::atomic<std::int64_t> caller_at_{0};  // ns of the clock: the latest call
  std::atomic<bool> rare_{false};           // it came kSilence or more after the one before
  std::atomic<std::int64_t> held_at_{0};    // the same: when a turn began
  LibraryThread thread_;
};

}  // namespace clustar::mlt::driver
