#include "transport/io/verbs/loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace clustar::transport::io::verbs {

Result<Loop> Loop::make(const Device& device, const ProtectionDomain& domain, const LoopOptions& options) {
  if (options.depth == 0)
    return fail(ErrorCode::kInvalidArgument, "verbs: a loop of no requests; 1 and more are allowed");
  auto queue = CompletionQueue::make(device, static_cast<int>(options.depth) + 1);
  if (!queue) return tl::unexpected(queue.error());
  auto pair = QueuePair::make(
      domain, {.send_queue = &*queue, .recv_queue = &*queue, .send_requests = options.depth, .recv_requests = 1});
  if (!pair) return tl::unexpected(pair.error());
  auto ready = pair->to_init({.port = options.path.port,
                              .pkey_index = options.pkey_index,
                              .access = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE});
  if (ready) ready = pair->to_rtr({.path = options.path, .peer_queue_pair = pair->number(), .mtu = options.mtu});
  if (ready) ready = pair->to_rts({.retry = options.retry});
  if (!ready) return tl::unexpected(ready.error());
  return Loop(std::move(*queue), std::move(*pair), options.depth);
}

Result<bool> Loop::post_write(const ibv_sge& from, std::uint64_t address, std::uint32_t rkey, std::uint64_t id) {
  return post(IBV_WR_RDMA_WRITE, from, address, rkey, id);
}

Result<bool> Loop::post_read(const ibv_sge& into, std::uint64_t address, std::uint32_t rkey, std::uint64_t id) {
  return post(IBV_WR_RDMA_READ, into, address, rkey, id);
}

Result<bool> Loop::post(ibv_wr_opcode opcode, ibv_sge local, std::uint64_t address, std::uint32_t rkey,
                        std::uint64_t id) {
  if (failed_) return tl::unexpected(*failed_);
  if (room() == 0) return false;
  ibv_send_wr request{};
  request.wr_id = id;
  request.opcode = opcode;
  request.send_flags = IBV_SEND_SIGNALED;
  request.sg_list = &local;
  request.num_sge = 1;
  request.wr.rdma.remote_addr = address;
  request.wr.rdma.rkey = rkey;
  if (const auto posted = pair_->post(request); !posted) {
    failed_ = posted.error();
    return tl::unexpected(*failed_);
  }
  ++outstanding_;
  return true;
}

Result<std::size_t> Loop::poll(std::span<std::uint64_t> done) {
  if (failed_) return tl::unexpected(*failed_);
  std::array<ibv_wc, 16> completions;
  const auto taken = queue_.poll(std::span(completions).first(std::min(completions.size(), done.size())));
  if (!taken) {
    failed_ = taken.error();
    return tl::unexpected(*failed_);
  }
  for (std::size_t i = 0; i < *taken; ++i) {
    if (completions[i].status != IBV_WC_SUCCESS) {
      failed_ = pair_->explain(completions[i]);
      return tl::unexpected(*failed_);
    }
    --outstanding_;
    done[i] = completions[i].wr_id;
  }
  return *taken;
}

void Loop::stop() {
  if (!failed_) {
    failed_ = Error{ErrorCode::kInvalidUsage,
                    fmt::format("verbs: loop {} was stopped with {} requests outstanding", queue_pair(), outstanding_)};
  }
  if (!pair_) return;
  static_cast<void>(pair_->to_error());  // what is outstanding is flushed, so that destroying waits for little
  pair_.reset();
}

}  // namespace clustar::transport::io::verbs
