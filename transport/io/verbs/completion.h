// What the status of a work completion means, for a person: which peer, which path, what to check.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <string>

#include "transport/base/result.h"
#include "transport/base/time.h"
#include "transport/io/verbs/failure.h"

namespace clustar::transport::io::verbs {

// What a queue pair was told about retries; the numbers are the wire's.
struct RetryOptions {
  std::uint8_t timeout = 14;   // 4.096 us * 2^timeout until a packet counts as lost, 1 .. 31; 0 = forever
  std::uint8_t retry_cnt = 7;  // 0 .. 7 repetitions for lost packets; rdma_rxe takes 7 for "forever"
  std::uint8_t rnr_retry = 7;  // 0 .. 6 repetitions for a receiver without a posted receive; 7 = forever
};

// Until one packet counts as lost. A device may take up to four times as long (InfiniBand specification 9.7.6.1.3), and
// rounds small values up to what it can. 0 = forever.
Duration ack_timeout(std::uint8_t exponent);
// Until a silent peer is an error, at least: all transmissions with their timeouts.
Duration retry_horizon(const RetryOptions& retry);

struct CompletionPlace {
  Place place{};
  std::uint32_t queue_pair = 0;
  RetryOptions retry{};
};

// "IBV_WC_RETRY_EXC_ERR"
const char* status_name(ibv_wc_status status);
// The cause and what to check, without status and place.
std::string status_meaning(ibv_wc_status status, const RetryOptions& retry);
// All of it. kRemote when the peer or the way to it is to blame, kSystem for a device's end and for what was flushed,
// kInternal for our own mistake. Only the first failure of a queue pair tells the cause: the rest is flushed.
Error completion_failed(ibv_wc_status status, std::uint32_t vendor_error, const CompletionPlace& at);

}  // namespace clustar::transport::io::verbs
