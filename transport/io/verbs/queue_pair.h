// Queue pair (RC, UC or UD) and its states: made in RESET, to_init, to_rtr (can receive), to_rts (can send, too).
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <string>

#include "transport/base/result.h"
#include "transport/io/verbs/completion.h"
#include "transport/io/verbs/completion_queue.h"
#include "transport/io/verbs/memory.h"
#include "transport/io/verbs/path.h"

namespace clustar::transport::io::verbs {

// Receives that several queue pairs take from.
class SharedReceiveQueue {
 public:
  SharedReceiveQueue(SharedReceiveQueue&&) = default;
  SharedReceiveQueue& operator=(SharedReceiveQueue&&) = delete;
  static Result<SharedReceiveQueue> make(const ProtectionDomain& domain, std::uint32_t requests,
                                         std::uint32_t sges = 1);
  ibv_srq* get() const { return handle_.get(); }
  // Posts the chain that begins with `first`. On an error `*refused`, if given, is the first that was not posted.
  Result<void> post(ibv_recv_wr& first, ibv_recv_wr** refused = nullptr) const;

 private:
  SharedReceiveQueue() = default;

  std::string device_;
  Handle<ibv_srq> handle_;
};

struct QueuePairOptions {
  ibv_qp_type type = IBV_QPT_RC;
  const CompletionQueue* send_queue = nullptr;  // both outlive the queue pair; one may be both
  const CompletionQueue* recv_queue = nullptr;
  const SharedReceiveQueue* shared_receives = nullptr;  // then no receive is posted on the queue pair itself
  std::uint32_t send_requests = 128;                    // outstanding at most
  std::uint32_t recv_requests = 128;
  std::uint32_t send_sges = 1;
  std::uint32_t recv_sges = 1;
  std::uint32_t inline_bytes = 0;
};

struct InitOptions {
  std::uint8_t port = 1;
  std::uint16_t pkey_index = 0;
  int access = 0;           // ibv_access_flags of what the peer may do; RC and UC
  std::uint32_t q_key = 0;  // UD: a sender must know it; below 0x80000000, which is for the privileged
};

// What RC and UC learn of the peer, who must say the same of us. UD needs none of it.
struct ConnectOptions {
  Path path{};
  std::uint32_t peer_queue_pair = 0;
  std::uint32_t peer_psn = 0;   // of the peer's first packet, 24 bits
  ibv_mtu mtu = IBV_MTU_1024;   // at most the port's active_mtu
  std::uint8_t peer_reads = 1;  // RC: reads and atomics of the peer at a time, <= max_qp_rd_atom
  std::uint8_t rnr_timer = 12;  // RC: what we ask the peer to wait without a posted receive; 12 = 0.64 ms
};

struct SendOptions {
  std::uint32_t psn = 0;   // of our first packet, 24 bits
  std::uint8_t reads = 1;  // RC: reads and atomics of ours at a time, <= the peer's peer_reads
  RetryOptions retry{};    // RC
};

class QueuePair {
 public:
  // Error kInvalidArgument: without a completion queue; kSystem: the device refuses.
  static Result<QueuePair> make(const ProtectionDomain& domain, const QueuePairOptions& options);

  std::uint32_t number() const { return handle_->qp_num; }
  ibv_qp* get() const { return handle_.get(); }
  const ibv_qp_cap& capacity() const { return capacity_; }  // as made: at least what was asked for

  Result<void> to_init(const InitOptions& options);
  // May block: on RoCE the kernel asks for the peer's Ethernet address, 1 s at most (then ETIMEDOUT).
  Result<void> to_rtr(const ConnectOptions& options);
  Result<void> to_rts(const SendOptions& options);
  // From now on nothing moves; everything posted completes as flushed.
  Result<void> to_error();
  // As it was made: nothing moves, and what was posted is forgotten without a completion. From any state.
  Result<void> to_reset();
  // UD and UC: to RTS from SQE, where only sending has failed.
  Result<void> resume_sending();
  Result<ibv_qp_state> state() const;

  // Posts the chain that begins with `first`. On an error `*refused`, if given, is the first that was not posted.
  Result<void> post(ibv_send_wr& first, ibv_send_wr** refused = nullptr) const;
  Result<void> post(ibv_recv_wr& first, ibv_recv_wr** refused = nullptr) const;

  // What a failed completion of this queue pair means.
  Error explain(const ibv_wc& completion) const;

 private:
  QueuePair() = default;
  Result<void> modify(Call call, ibv_qp_attr& attributes, int mask) const;

  Handle<ibv_qp> handle_;
  ibv_qp_cap capacity_{};
  CompletionPlace place_{};
};

}  // namespace clustar::transport::io::verbs
