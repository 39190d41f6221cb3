// The proxy progress thread of one communicator: posts and tests transfers on all channels and runs the slice kernels
// between them. Mirrors sendProxyProgress and recvProxyProgress of NCCL 2.28.9 src/transport/net.cc.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "bench/proxy/links.h"
#include "bench/proxy/operation.h"
#include "bench/proxy/slice_kernel.h"

namespace clustar::bench::proxy {

class ProgressEngine {
 public:
  struct Config {
    int rank = 0;
    int size = 2;
    int channels = 1;
    Protocol protocol = Protocol::kSimple;
    bool flush = false;
    CommProfiler* profiler = nullptr;  // outlives the engine
    std::uint64_t comm_id = 0;         // for `losses`
    LossReports* losses = nullptr;     // outlives the engine; needed for direct all-reduces only
    std::chrono::milliseconds stall_timeout{0};
  };
  // `links` of the ring and `direct_links`, empty or one per other rank in their order, are connected and stay so until
  // stop() returned.
  ProgressEngine(NetPlugin& plugin, void* ctx, std::span<Link> links, std::span<Link> direct_links,
                 const Config& config);
  ~ProgressEngine();

  // Takes a request that needs the network and starts it in turn; `protocol` is the communicator's or kSimple. The
  // profiler sees it start and, as under NCCL, stop before this returns.
  std::shared_ptr<Completion> submit(const CollectiveRequest& request, Protocol protocol, bool record_steps);
  // The same for a direct all-reduce: its exchange is a group of sends and receives, its all-gather a collective in
  // `protocol`. One operation in the queue, so that both have the same place in the order on all ranks; the exchange of
  // the next one may run while the sums of this one still go round, as with a communicator for each under NCCL.
  std::shared_ptr<Completion> submit_direct(const DirectRequest& request, Protocol protocol, bool record_steps);
  // An all-to-all: an exchange, and nothing after it.
  std::shared_ptr<Completion> submit_exchange(const ExchangeRequest& request, Protocol protocol, bool record_steps);
  void abort();
  void stop();  // joins the thread; whatever is unfinished ends with an error, its transfers untested
  Communicator::Totals totals() const;

 private:
  // Written by the progress thread only, so a plain load and store is enough; read by any.
  class Counter {
   public:
    void add(std::uint64_t more = 1) { value_.store(read() + more, std::memory_order_relaxed); }
    std::uint64_t read() const { return value_.load(std::memory_order_relaxed); }

   private:
    std::atomic<std::uint64_t> value_{0};
  };
  struct Counters {
    Counter bytes_sent, bytes_received, messages_sent, messages_received, send_retries, idle_yields;
  };
  // Used so far on the two connections with one peer.
  struct PeerCounts {
    std::uint64_t sends = 0;  // ncclSend
    std::uint64_t receives = 0;
    std::uint64_t send_steps = 0;
    std::uint64_t receive_steps = 0;
  };
  // Steps used so far on one channel's two connections.
  struct ConnectionSteps {
    std::uint64_t send = 0;
    std::uint64_t receive = 0;
  };

  std::shared_ptr<Operation> make_operation(const CollectiveRequest& request, Protocol protocol,
                                            bool record_steps) const;
  std::shared_ptr<Completion> submit(std::shared_ptr<Operation> op);
  Result<void> queue(std::shared_ptr<Operation> op);
  void loop();
  bool take_work();  // false: stop
  void start_ops(Operation& op);
  void fail_all(const Error& error);
  bool pass();
  bool pass_ring(Operation& op, bool& kernel_free, bool& any_free);
  void finish_front();

  // Each returns whether something moved; an error of the plugin is left in error_.
  bool progress_receive(Operation& op, std::size_t group);
  bool post_receive(Operation& op, const Link& link, GroupWork& work);
  bool test_receive(Operation& op, const Link& link, GroupWork& work);
  bool flush_receive(const Operation& op, const Link& link, GroupWork& work);
  bool test_flush(Operation& op, const Link& link, GroupWork& work);
  bool run_kernel(Operation& op, std::size_t channel);
  bool progress_send(Operation& op, std::size_t channel);
  void post_steps(Operation& op, std::size_t channel);
  bool post_send(Operation& op, std::size_t channel);
  bool test_send(Operation& op, std::size_t channel);
  // isend took transfer `transfer` of `sub`.
  void count_send(Operation& op, ProxySub& sub, std::size_t transfer, std::size_t size,
                  std::chrono::steady_clock::time_point& taken_at);

  std::unique_ptr<ExchangeWork> make_exchange(const DirectRequest& request);
  std::unique_ptr<ExchangeWork> make_exchange(const ExchangeRequest& request) const;
  std::vector<std::byte> take_contributions(std::size_t bytes);
  void profile_exchange(ExchangeWork& work);
  void start_exchange(ExchangeWork& work);
  // The flags: whether the operations before this one leave the connections free, and whether this one does, too.
  bool progress_exchange(Operation& op, bool& send_free, bool& receive_free);
  bool receive_from_peers(Operation& op);
  bool post_peer_receive(const ExchangeWork& work, PeerReceive& receive);
  bool test_peer_receive(Operation& op, PeerReceive& receive);
  bool flush_peer_receive(PeerReceive& receive);
  bool consume(Operation& op, PeerReceive& receive);
  bool reduce_some(Operation& op);
  bool send_to_peers(Operation& op);
  bool fill_peer_send(const ExchangeWork& work, PeerSend& send);
  bool post_peer_send(Operation& op, PeerSend& send);
  bool test_peer_send(Operation& op, PeerSend& send);
  void begin_sends(ExchangeWork& work);
  void begin_receives(ExchangeWork& work);
  void keep_lost(DataType type, const PeerSend& send);
  void tell_p2p_attributes(bool send, std::size_t peers);
  std::string describe_exchange(const ExchangeWork& work) const;

  void begin_send(Operation& op, std::size_t channel);
  void begin_receive(Operation& op, const Link& link, GroupWork& work);
  void end_receive(Operation& op, std::size_t channel);
  bool receive_done(const Operation& op, const Link& link) const;
  std::size_t depth(const Operation& op, const Link& link) const;
  std::byte* slot(const Operation& op, const std::vector<Registered>& buffers, std::size_t channel,
                  std::uint64_t step) const;
  int tag(int sender, std::size_t channel) const;
  void tell_attributes(const Operation& op, bool send);
  nccl_abi::NetAttr attributes() const;
  void tell(const nccl_abi::NetAttr& attr);
  void idle();
  std::string describe_wait(const Operation& op) const;
  bool check(int result, const char* call, int peer, std::size_t channel);

  NetPlugin& plugin_;
  void* ctx_;
  std::span<Link> links_;
  std::span<Link> direct_links_;
  Config config_;
  int previous_;
  int next_;
  std::vector<std::size_t> link_of_;  // by channel
  SliceKernel kernel_;                // of the communicator's protocol
  SliceKernel simple_kernel_;         // of collectives whose protocol a tuner changed
  Counters counters_;

  // Progress thread only.
  std::deque<std::shared_ptr<Operation>> active_;
  std::vector<std::shared_ptr<Operation>> failed_;  // kept: the plugin may still hold their phandles
  std::vector<ConnectionSteps> steps_;
  std::vector<PeerCounts> exchanges_;  // by direct link
  std::vector<char> send_free_;        // by channel, within one pass
  std::vector<char> receive_free_;     // by link
  std::optional<Error> error_;         // final once set
  std::optional<nccl_abi::NetAttr> told_;
  bool flags_missing_ = false;
  bool moved_since_clock_ = true;
  std::chrono::steady_clock::time_point last_moved_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<Operation>> inbox_;            // guarded by mutex_
  std::vector<std::vector<std::byte>> spare_contributions_;  // guarded by mutex_: memory of exchanges that are over
  std::atomic<bool> news_{false};                            // inbox_, stop_ or abort_ changed
  bool stop_ = false;                                        // guarded by mutex_
  bool abort_ = false;                                       // guarded by mutex_
  std::thread thread_;                                       // last: starts when the rest is there
};

}  // namespace clustar::bench::proxy
