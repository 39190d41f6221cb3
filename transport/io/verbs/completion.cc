#include "transport/io/verbs/completion.h"

#include <fmt/format.h>

namespace clustar::transport::io::verbs {
namespace {

std::string seconds(Duration duration) {
  const double value = std::chrono::duration<double>(duration).count();
  return value >= 1 ? fmt::format("{:.1f} s", value) : fmt::format("{:.3g} ms", value * 1e3);
}

std::string retry_meaning(const RetryOptions& retry) {
  std::string tried;
  if (retry.timeout != 0) {
    tried = fmt::format(" to {} transmissions ({} at least: timeout {}, retry_cnt {})", retry.retry_cnt + 1,
                        seconds(retry_horizon(retry)), retry.timeout, retry.retry_cnt);
  }
  return fmt::format(
      "the peer did not answer{}. Check that its process lives, that both ports are active (ibv_devinfo), that these "
      "two addresses ping each other, that UDP port 4791 passes firewalls, and that the network does not drop this "
      "traffic class (PFC, retransmission counters)",
      tried);
}

ErrorCode blame(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_REM_INV_REQ_ERR:
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_REM_OP_ERR:
    case IBV_WC_RETRY_EXC_ERR:
    case IBV_WC_RNR_RETRY_EXC_ERR:
    case IBV_WC_REM_ABORT_ERR:
    case IBV_WC_RESP_TIMEOUT_ERR:
    case IBV_WC_BAD_RESP_ERR: return ErrorCode::kRemote;
    case IBV_WC_WR_FLUSH_ERR:
    case IBV_WC_FATAL_ERR:
    case IBV_WC_GENERAL_ERR: return ErrorCode::kSystem;
    default: return ErrorCode::kInternal;
  }
}

}  // namespace

Duration ack_timeout(std::uint8_t exponent) {
  return exponent == 0 ? Duration{0} : Duration{std::int64_t{4096} << (exponent < 31 ? exponent : 31)};
}

Duration retry_horizon(const RetryOptions& retry) { return ack_timeout(retry.timeout) * (retry.retry_cnt + 1); }

const char* status_name(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_SUCCESS: return "IBV_WC_SUCCESS";
    case IBV_WC_LOC_LEN_ERR: return "IBV_WC_LOC_LEN_ERR";
    case IBV_WC_LOC_QP_OP_ERR: return "IBV_WC_LOC_QP_OP_ERR";
    case IBV_WC_LOC_PROT_ERR: return "IBV_WC_LOC_PROT_ERR";
    case IBV_WC_WR_FLUSH_ERR: return "IBV_WC_WR_FLUSH_ERR";
    case IBV_WC_MW_BIND_ERR: return "IBV_WC_MW_BIND_ERR";
    case IBV_WC_BAD_RESP_ERR: return "IBV_WC_BAD_RESP_ERR";
    case IBV_WC_LOC_ACCESS_ERR: return "IBV_WC_LOC_ACCESS_ERR";
    case IBV_WC_REM_INV_REQ_ERR: return "IBV_WC_REM_INV_REQ_ERR";
    case IBV_WC_REM_ACCESS_ERR: return "IBV_WC_REM_ACCESS_ERR";
    case IBV_WC_REM_OP_ERR: return "IBV_WC_REM_OP_ERR";
    case IBV_WC_RETRY_EXC_ERR: return "IBV_WC_RETRY_EXC_ERR";
    case IBV_WC_RNR_RETRY_EXC_ERR: return "IBV_WC_RNR_RETRY_EXC_ERR";
    case IBV_WC_REM_ABORT_ERR: return "IBV_WC_REM_ABORT_ERR";
    case IBV_WC_FATAL_ERR: return "IBV_WC_FATAL_ERR";
    case IBV_WC_RESP_TIMEOUT_ERR: return "IBV_WC_RESP_TIMEOUT_ERR";
    case IBV_WC_GENERAL_ERR: return "IBV_WC_GENERAL_ERR";
    default: return ibv_wc_status_str(status);
  }
}

std::string status_meaning(ibv_wc_status status, const RetryOptions& retry) {
  switch (status) {
    case IBV_WC_SUCCESS: return "done";
    case IBV_WC_LOC_LEN_ERR: return "a message longer than the receive posted for it, or than the port's MTU on UD";
    case IBV_WC_LOC_QP_OP_ERR:
      return "an operation that this queue pair cannot do (reading over UC), or a wrong SGE (rdma_rxe: a wrong key, "
             "too)";
    case IBV_WC_LOC_PROT_ERR: return "a local buffer outside its registration, or one that was deregistered meanwhile";
    case IBV_WC_WR_FLUSH_ERR:
      return "given up because the queue pair had failed before: look at the first error of this queue pair, or it was "
             "closed";
    case IBV_WC_MW_BIND_ERR:
      return "a memory window could not be bound: it is still bound, or its region lacks the right to bind, or to "
             "write "
             "locally";
    case IBV_WC_LOC_ACCESS_ERR: return "the receive's buffer may not be written: registered without local writing";
    case IBV_WC_REM_INV_REQ_ERR:
      return "the peer refused the request as malformed: longer than its receive, or an operation that it did not "
             "allow";
    case IBV_WC_REM_ACCESS_ERR:
      return "the peer refused access to its memory: wrong rkey, outside the registration, without the right to it, or "
             "its memory window was invalidated";
    case IBV_WC_REM_OP_ERR: return "the peer could not carry it out: see the errors there";
    case IBV_WC_RETRY_EXC_ERR: return retry_meaning(retry);
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return fmt::format(
          "the peer lives but had no receive posted after {} repetitions (rnr_retry): it is overloaded, "
          "or takes fewer receives than are sent",
          retry.rnr_retry);
    case IBV_WC_BAD_RESP_ERR: return "an answer that fits no request: a faulty peer or network";
    case IBV_WC_REM_ABORT_ERR: return "the peer gave it up";
    case IBV_WC_FATAL_ERR: return "the device failed: see `dmesg`; it needs a reset";
    case IBV_WC_RESP_TIMEOUT_ERR: return "the peer did not answer in time";
    default: return "the device gives no reason: see `dmesg`";
  }
}

Error completion_failed(ibv_wc_status status, std::uint32_t vendor_error, const CompletionPlace& at) {
  // NVIDIA's NICs report exhausted retries as 0x81: the "vendor err 129" of NCCL's users.
  const bool known = vendor_error == 0x81 && status == IBV_WC_RETRY_EXC_ERR;
  std::string vendor;
  if (vendor_error != 0) {
    vendor = fmt::format(", vendor error {} (0x{:x}{})", vendor_error, vendor_error, known ? ", no answer" : "");
  }
  Place place = at.place;
  const std::string peer = std::exchange(place.peer, {});
  return Error{blame(status), fmt::format("verbs: {} queue pair {}{}{}: {} (status {}{}): {}", place.to_string(),
                                          at.queue_pair, peer.empty() ? "" : " to ", peer, status_name(status),
                                          static_cast<int>(status), vendor, status_meaning(status, at.retry))};
}

}  // namespace clustar::transport::io::verbs
