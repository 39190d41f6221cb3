#include "transport/io/verbs/queue_pair.h"

#include <fmt/format.h>

#include <cerrno>

namespace clustar::transport::io::verbs {
namespace {

const char* name_of(ibv_qp_type type) {
  switch (type) {
    case IBV_QPT_RC: return "RC";
    case IBV_QPT_UC: return "UC";
    case IBV_QPT_UD: return "UD";
    default: return "?";
  }
}

std::string wanted(const QueuePairOptions& options) {
  return fmt::format("{} with {} sends of {} SGEs and {} bytes inline, {} receives of {} SGEs", name_of(options.type),
                     options.send_requests, options.send_sges, options.inline_bytes, options.recv_requests,
                     options.recv_sges);
}

}  // namespace

Result<SharedReceiveQueue> SharedReceiveQueue::make(const ProtectionDomain& domain, std::uint32_t requests,
                                                    std::uint32_t sges) {
  SharedReceiveQueue made;
  made.device_ = domain.device();
  ibv_srq_init_attr attributes{};
  attributes.attr.max_wr = requests;
  attributes.attr.max_sge = sges;
  made.handle_.reset(ibv_create_srq(domain.get(), &attributes));
  if (!made.handle_) {
    const int error = errno;
    const std::string detail = fmt::format("{} receives of {} SGEs", requests, sges);
    return tl::unexpected(call_failed(Call::kCreateSrq, error, {.device = domain.device()}, detail));
  }
  return made;
}

Result<void> SharedReceiveQueue::post(ibv_recv_wr& first, ibv_recv_wr** refused) const {
  ibv_recv_wr* bad = nullptr;
  const int error = ibv_post_srq_recv(handle_.get(), &first, &bad);
  if (error == 0) return {};
  if (refused != nullptr) *refused = bad;
  return tl::unexpected(call_failed(Call::kPostRecv, error, {.device = device_}, "a shared receive queue"));
}

Result<QueuePair> QueuePair::make(const ProtectionDomain& domain, const QueuePairOptions& options) {
  if (options.send_queue == nullptr || options.recv_queue == nullptr) {
    return fail(ErrorCode::kInvalidArgument,
                "verbs: a queue pair needs a completion queue for sends and one for receives");
  }
  QueuePair made;
  made.place_.place.device = domain.device();
  ibv_qp_init_attr attributes{};
  attributes.qp_type = options.type;
  attributes.send_cq = options.send_queue->get();
  attributes.recv_cq = options.recv_queue->get();
  if (options.shared_receives != nullptr) {
    attributes.srq = options.shared_receives->get();
  } else {
    attributes.cap.max_recv_wr = options.recv_requests;
    attributes.cap.max_recv_sge = options.recv_sges;
  }
  attributes.cap.max_send_wr = options.send_requests;
  attributes.cap.max_send_sge = options.send_sges;
  attributes.cap.max_inline_data = options.inline_bytes;
  made.handle_.reset(ibv_create_qp(domain.get(), &attributes));
  if (!made.handle_) {
    const int error = errno;
    return tl::unexpected(call_failed(Call::kCreateQp, error, made.place_.place, wanted(options)));
  }
  made.capacity_ = attributes.cap;
  made.place_.queue_pair = made.number();
  return made;
}

Result<void> QueuePair::modify(Call call, ibv_qp_attr& attributes, int mask) const {
  const int error = ibv_modify_qp(handle_.get(), &attributes, mask | IBV_QP_STATE);
  if (error == 0) return {};
  return tl::unexpected(call_failed(call, error, place_.place, fmt::format("queue pair {}", number())));
}

Result<void> QueuePair::to_init(const InitOptions& options) {
  place_.place.port = options.port;
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = options.port;
  attributes.pkey_index = options.pkey_index;
  int mask = IBV_QP_PORT | IBV_QP_PKEY_INDEX;
  if (handle_->qp_type == IBV_QPT_UD) {
    attributes.qkey = options.q_key;
    mask |= IBV_QP_QKEY;
  } else {
    attributes.qp_access_flags = static_cast<unsigned>(options.access);
    mask |= IBV_QP_ACCESS_FLAGS;
  }
  return modify(Call::kToInit, attributes, mask);
}

Result<void> QueuePair::to_rtr(const ConnectOptions& options) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  if (handle_->qp_type == IBV_QPT_UD) return modify(Call::kToRtr, attributes, 0);
  place_.place.gid_index = options.path.gid_index;
  place_.place.peer = fmt::format("{} queue pair {}", options.path.peer.to_string(), options.peer_queue_pair);
  attributes.ah_attr = options.path.attributes();
  attributes.path_mtu = options.mtu;
  attributes.dest_qp_num = options.peer_queue_pair;
  attributes.rq_psn = options.peer_psn;
  int mask = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  if (handle_->qp_type == IBV_QPT_RC) {
    attributes.max_dest_rd_atomic = options.peer_reads;
    attributes.min_rnr_timer = options.rnr_timer;
    mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  }
  return modify(Call::kToRtr, attributes, mask);
}

Result<void> QueuePair::to_rts(const SendOptions& options) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.sq_psn = options.psn;
  int mask = IBV_QP_SQ_PSN;
  if (handle_->qp_type == IBV_QPT_RC) {
    place_.retry = options.retry;
    attributes.timeout = options.retry.timeout;
    attributes.retry_cnt = options.retry.retry_cnt;
    attributes.rnr_retry = options.retry.rnr_retry;
    attributes.max_rd_atomic = options.reads;
    mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  }
  return modify(Call::kToRts, attributes, mask);
}

Result<void> QueuePair::to_error() {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  return modify(Call::kToError, attributes, 0);
}

Result<void> QueuePair::to_reset() {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RESET;
  return modify(Call::kToReset, attributes, 0);
}

Result<void> QueuePair::resume_sending() {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTS;
  // The kernel does not know that the device has left RTS of its own accord.
  attributes.cur_qp_state = IBV_QPS_SQE;
  return modify(Call::kToRts, attributes, IBV_QP_CUR_STATE);
}

Result<ibv_qp_state> QueuePair::state() const {
  ibv_qp_attr attributes{};
  ibv_qp_init_attr initial{};
  const int error = ibv_query_qp(handle_.get(), &attributes, IBV_QP_STATE, &initial);
  if (error != 0) return tl::unexpected(call_failed(Call::kQueryQp, error, place_.place));
  return attributes.qp_state;
}

Result<void> QueuePair::post(ibv_send_wr& first, ibv_send_wr** refused) const {
  ibv_send_wr* bad = nullptr;
  const int error = ibv_post_send(handle_.get(), &first, &bad);
  if (error == 0) return {};
  if (refused != nullptr) *refused = bad;
  return tl::unexpected(call_failed(Call::kPostSend, error, place_.place, fmt::format("queue pair {}", number())));
}

Result<void> QueuePair::post(ibv_recv_wr& first, ibv_recv_wr** refused) const {
  ibv_recv_wr* bad = nullptr;
  const int error = ibv_post_recv(handle_.get(), &first, &bad);
  if (error == 0) return {};
  if (refused != nullptr) *refused = bad;
  return tl::unexpected(call_failed(Call::kPostRecv, error, place_.place, fmt::format("queue pair {}", number())));
}

Error QueuePair::explain(const ibv_wc& completion) const {
  return completion_failed(completion.status, completion.vendor_err, place_);
}

}  // namespace clustar::transport::io::verbs
