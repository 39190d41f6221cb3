// The part of the progress thread that exchanges blocks with all peers, as NCCL runs a group of ncclSend and ncclRecv
// over shared p2p connections, and adds up the own block.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <type_traits>
#include <utility>

#include "bench/proxy/comm_profiler.h"
#include "bench/proxy/progress_engine.h"
#include "bench/proxy/reduce.h"

namespace clustar::bench::proxy {
namespace {

using std::chrono::steady_clock;

constexpr int kMaxTestSizes = 64;  // NCCL hands test() this many
constexpr int kSizeNotReported = -1;
// What the sum takes at a time, so that the connections do not wait for it.
constexpr std::size_t kReduceElements = 64 * 1024;

// All sends of a group are subs of one proxy operation, and so are its receives.
std::size_t depth_of(std::size_t subs) {
  return std::clamp<std::size_t>(kSharedSteps / std::max<std::size_t>(subs, 1), 1, kSteps);
}

std::byte* step_of(const Registered& buffer, std::uint64_t step) {
  return buffer.memory.data() + step % kSteps * kP2pStepBytes;
}

template <class Transfers>
Transfers transfers_of(int peer, int rank, std::size_t bytes) {
  Transfers transfers;
  transfers.peer = peer;
  transfers.link = static_cast<std::size_t>(peer < rank ? peer : peer - 1);
  transfers.bytes = bytes;
  transfers.chunk = p2p_chunk_bytes(bytes);
  transfers.transfers = div_up(bytes, transfers.chunk);
  return transfers;
}

ProxyOpFacts facts_of(const PeerTransfers& transfers, bool is_send) {
  return {0, transfers.peer, static_cast<int>(transfers.transfers), static_cast<int>(transfers.chunk), is_send};
}

// Of a rank to the own block: its place among those that were received, or the own data.
std::byte* contribution(ExchangeWork& work, int rank, int own_rank, std::size_t element) {
  if (rank == own_rank) return static_cast<std::byte*>(work.request.data) + work.own.begin * element;
  const int place = rank < own_rank ? rank : rank - 1;
  return work.contributions.data() + static_cast<std::size_t>(place) * work.own.count * element;
}

}  // namespace

std::vector<std::byte> ProgressEngine::take_contributions(std::size_t bytes) {
  std::vector<std::byte> memory;
  {
    const std::lock_guard lock(mutex_);
    if (!spare_contributions_.empty()) {
      memory = std::move(spare_contributions_.back());
      spare_contributions_.pop_back();
    }
  }
  if (memory.size() < bytes) memory.resize(bytes);
  return memory;
}

std::unique_ptr<ExchangeWork> ProgressEngine::make_exchange(const DirectRequest& request) {
  auto work = std::make_unique<ExchangeWork>();
  work->request = request;
  const std::size_t element = element_bytes(request.type);
  work->own = direct_block(config_.rank, config_.size, request.count, element);
  work->missing.resize(static_cast<std::size_t>(config_.size));
  for (const P2pRound& round : p2p_schedule(config_.rank, config_.size)) {
    const Block block = direct_block(round.send_peer, config_.size, request.count, element);
    if (block.count > 0) {
      auto& send =
          work->sends.emplace_back(transfers_of<PeerSend>(round.send_peer, config_.rank, block.count * element));
      send.memory = static_cast<std::byte*>(request.data) + block.begin * element;
      if (request.residual != nullptr) {
        send.residual = static_cast<std::byte*>(request.residual) + block.begin * element;
      }
    }
    if (work->own.count == 0) continue;
    work->receives.push_back(transfers_of<PeerReceive>(round.recv_peer, config_.rank, work->own.count * element));
  }
  work->contributions = take_contributions(work->receives.size() * work->own.count * element);
  for (PeerReceive& receive : work->receives) {
    receive.memory = contribution(*work, receive.peer, config_.rank, element);
  }
  return work;
}

std::unique_ptr<ExchangeWork> ProgressEngine::make_exchange(const ExchangeRequest& request) const {
  auto work = std::make_unique<ExchangeWork>();
  work->sums = false;
  work->request.type = DataType::kUint8;
  const auto add = [&](auto& all, int peer, std::span<const std::size_t> bytes, std::byte* blocks) {
    const auto block = static_cast<std::size_t>(peer);
    if (bytes[block] == 0) return;
    using Transfers = typename std::remove_reference_t<decltype(all)>::value_type;
    auto& one = all.emplace_back(transfers_of<Transfers>(peer, config_.rank, bytes[block]));
    one.memory = blocks + std::accumulate(bytes.begin(), bytes.begin() + peer, std::size_t{0});
  };
  auto* const from = static_cast<std::byte*>(const_cast<void*>(request.send));
  auto* const into = static_cast<std::byte*>(request.recv);
  for (const P2pRound& round : p2p_schedule(config_.rank, config_.size)) {
    add(work->sends, round.send_peer, request.send_bytes, from);
    add(work->receives, round.recv_peer, request.recv_bytes, into);
  }
  const auto offset = [&](std::span<const std::size_t> bytes) {
    return std::accumulate(bytes.begin(), bytes.begin() + config_.rank, std::size_t{0});
  };
  const std::size_t own = request.send_bytes[static_cast<std::size_t>(config_.rank)];
  if (own > 0) std::memcpy(into + offset(request.recv_bytes), from + offset(request.send_bytes), own);
  return work;
}

// What a hook does: ncclGroupStart, an ncclSend and an ncclRecv per peer in rank order, ncclGroupEnd. It ends before
// the proxy takes the operations, as it mostly does under NCCL.
void ProgressEngine::profile_exchange(ExchangeWork& work) {
  if (config_.profiler == nullptr) return;
  std::vector<P2pTask> tasks;
  std::vector<ProxySub*> subs;
  const std::size_t element = element_bytes(work.request.type);
  const auto add = [&](bool is_send, PeerTransfers& transfers) {
    tasks.push_back({is_send, transfers.peer, transfers.memory, transfers.bytes / element, work.request.type});
    subs.push_back(&transfers.sub);
  };
  auto send = work.sends.begin();
  auto receive = work.receives.begin();
  for (const P2pRound& round : p2p_schedule(config_.rank, config_.size)) {
    if (send != work.sends.end() && send->peer == round.send_peer) add(true, *send++);
    if (receive != work.receives.end() && receive->peer == round.recv_peer) add(false, *receive++);
  }
  if (tasks.empty()) return;
  std::vector<std::size_t> calls(tasks.size());
  for (std::size_t i = 0; i < calls.size(); ++i) calls[i] = i;
  std::sort(calls.begin(), calls.end(), [&](std::size_t a, std::size_t b) {
    return std::pair(tasks[a].peer, !tasks[a].send) < std::pair(tasks[b].peer, !tasks[b].send);
  });
  const P2pEvents events = config_.profiler->start_group(tasks, calls);
  for (std::size_t i = 0; i < subs.size(); ++i) config_.profiler->prepare(*subs[i], events.mask, events.tasks[i]);
  config_.profiler->stop_group(events);
}

// By peer in the order of the plan, the receive first, as addP2pToPlan makes the proxy operations.
void ProgressEngine::start_exchange(ExchangeWork& work) {
  for (PeerSend& send : work.sends) send.number = exchanges_[send.link].sends++;
  for (PeerReceive& receive : work.receives) receive.number = exchanges_[receive.link].receives++;
  auto send = work.sends.begin();
  auto receive = work.receives.begin();
  for (const P2pRound& round : p2p_schedule(config_.rank, config_.size)) {
    if (receive != work.receives.end() && receive->peer == round.recv_peer) {
      start_op(receive->sub, facts_of(*receive, false));
      ++receive;
    }
    if (send != work.sends.end() && send->peer == round.send_peer) {
      start_op(send->sub, facts_of(*send, true));
      ++send;
    }
  }
}

bool ProgressEngine::progress_exchange(Operation& op, bool& send_free, bool& receive_free) {
  ExchangeWork& work = *op.exchange;
  bool moved = false;
  if (receive_free && !work.received) moved |= receive_from_peers(op);
  receive_free = receive_free && work.received;
  if (error_) return false;
  if (send_free && !work.sent) moved |= send_to_peers(op);
  send_free = send_free && work.sent;
  if (error_) return false;
  if (work.received && !work.reduction_done) {
    moved |= work.sums && reduce_some(op);
    work.reduction_done = work.reduction_done || !work.sums;
  }
  return moved;
}

void ProgressEngine::begin_receives(ExchangeWork& work) {
  work.receives_begun = true;
  for (PeerReceive& receive : work.receives) {
    receive.base = std::exchange(exchanges_[receive.link].receive_steps,
                                 exchanges_[receive.link].receive_steps + receive.transfers);
    record_op_in_progress(receive.sub);
  }
}

bool ProgressEngine::receive_from_peers(Operation& op) {
  ExchangeWork& work = *op.exchange;
  if (!work.receives_begun) begin_receives(work);
  bool moved = false;
  for (PeerReceive& receive : work.receives) {
    if (receive.done()) continue;
    moved |= post_peer_receive(work, receive);
    if (!error_) moved |= test_peer_receive(op, receive);
    if (!error_) moved |= flush_peer_receive(receive);
    if (!error_) moved |= consume(op, receive);
    if (error_) return false;
  }
  work.received = std::all_of(work.receives.begin(), work.receives.end(), [](const auto& r) { return r.done(); });
  // Subs of one operation, which stop together.
  if (work.received) {
    for (PeerReceive& receive : work.receives) stop_op(receive.sub);
  }
  return moved || work.receives.empty();
}

bool ProgressEngine::post_peer_receive(const ExchangeWork& work, PeerReceive& receive) {
  if (receive.posted == receive.transfers) return false;
  if (receive.posted >= receive.consumed + depth_of(work.receives.size())) return false;
  start_step(receive.sub, receive.posted);
  const Link& link = direct_links_[receive.link];
  const Registered& buffer = link.recv_buffers[0];
  void* data = step_of(buffer, receive.base + receive.posted);
  std::size_t size = std::min(receive.chunk, receive.bytes);  // NCCL's nbytes: of the longest transfer
  int tag = receive.peer;
  void* mhandle = buffer.mhandle;
  void* phandle = receive.sub.phandle(receive.posted);
  tell_p2p_attributes(false, work.receives.size());
  void*& request = receive.requests[receive.posted % kSteps];
  request = nullptr;
  const int result = plugin_.irecv(link.recv_comm, 1, &data, &size, &tag, &mhandle, &phandle, &request);
  if (!check(result, "irecv", receive.peer, 0) || request == nullptr) return false;
  record_step(receive.sub, receive.posted, kStateRecvWait);
  ++receive.posted;
  return true;
}

bool ProgressEngine::test_peer_receive(Operation& op, PeerReceive& receive) {
  if (receive.received == receive.posted) return false;
  std::array<int, kMaxTestSizes> sizes{};
  sizes.fill(kSizeNotReported);
  int done = 0;
  void*& request = receive.requests[receive.received % kSteps];
  if (!check(plugin_.test(request, &done, sizes.data()), "test of a receive", receive.peer, 0) || done == 0)
    return false;
  const std::size_t expected = receive.size_of(receive.received);
  if (sizes[0] != kSizeNotReported && sizes[0] != static_cast<int>(expected)) {
    error_ =
        Error{ErrorCode::kInternal, fmt::format("a receive from rank {} completed with {} bytes where {} were sent",
                                                receive.peer, sizes[0], expected)};
    return false;
  }
  request = nullptr;
  receive.sub.transfer_size = static_cast<std::size_t>(std::max(sizes[0], 0));
  record_step(receive.sub, receive.received, kStateRecvFlushWait);
  counters_.messages_received.add();
  counters_.bytes_received.add(expected);
  op.stats.bytes_received += expected;
  if (config_.flush) {
    const Link& link = direct_links_[receive.link];
    void* data = step_of(link.recv_buffers[0], receive.base + receive.received);
    int size = static_cast<int>(expected);
    void* mhandle = link.recv_buffers[0].mhandle;
    if (!check(plugin_.iflush(link.recv_comm, 1, &data, &size, &mhandle, &request), "iflush", receive.peer, 0)) {
      return false;
    }
  }
  ++receive.received;
  return true;
}

bool ProgressEngine::flush_peer_receive(PeerReceive& receive) {
  if (receive.ready == receive.received) return false;
  void*& request = receive.requests[receive.ready % kSteps];
  if (request != nullptr) {
    int done = 0;
    if (!check(plugin_.test(request, &done, nullptr), "test of a flush", receive.peer, 0) || done == 0) return false;
    request = nullptr;
  }
  record_step(receive.sub, receive.ready, kStateRecvGpuWait);
  ++receive.ready;
  return true;
}

// The kernel's part, a transfer at a time. What is missing of the send is known once its last transfer is here.
bool ProgressEngine::consume(Operation& op, PeerReceive& receive) {
  if (receive.consumed == receive.ready) return false;
  std::memcpy(receive.memory + receive.consumed * receive.chunk,
              step_of(direct_links_[receive.link].recv_buffers[0], receive.base + receive.consumed),
              receive.size_of(receive.consumed));
  stop_step(receive.sub, receive.consumed);
  if (++receive.consumed < receive.transfers || !op.exchange->sums) return true;
  const auto lost = config_.losses->missing_from(config_.comm_id, receive.peer, receive.number);
  if (!lost) {
    error_ = lost.error();
    return false;
  }
  const std::size_t element = element_bytes(op.exchange->request.type);
  auto& missing = op.exchange->missing[static_cast<std::size_t>(receive.peer)];
  missing = lost_elements(*lost, receive.chunk, receive.bytes, element);
  zero_elements(receive.memory, missing, element);
  return true;
}

// In rank order, so that a run can be repeated bit for bit; into the contribution of rank 0, and from there to the own
// block.
bool ProgressEngine::reduce_some(Operation& op) {
  ExchangeWork& work = *op.exchange;
  const DataType type = work.request.type;
  const std::size_t element = element_bytes(type);
  const std::size_t count = std::min(kReduceElements, work.own.count - work.reduced);
  const std::size_t offset = work.reduced * element;
  std::byte* const own = contribution(work, config_.rank, config_.rank, element);
  if (count > 0) {
    std::byte* const sum = contribution(work, 0, config_.rank, element) + offset;
    for (int rank = 1; rank < config_.size; ++rank) {
      combine(sum, sum, contribution(work, rank, config_.rank, element) + offset, count, type, ReduceOp::kSum);
    }
    if (sum != own + offset) std::memcpy(own + offset, sum, count * element);
  }
  work.reduced += count;
  if (work.reduced < work.own.count) return true;
  if (work.request.missing == Missing::kRescale) rescale(own, type, config_.size, work.missing);
  for (const auto& ranges : work.missing) op.stats.missing_contributions += count_of(ranges);
  op.stats.expected_contributions += work.own.count * static_cast<std::size_t>(config_.size - 1);
  work.reduction_done = true;
  if (!work.contributions.empty()) {
    const std::lock_guard lock(mutex_);
    spare_contributions_.push_back(std::move(work.contributions));
  }
  return true;
}

void ProgressEngine::begin_sends(ExchangeWork& work) {
  work.sends_begun = true;
  if (work.request.residual != nullptr) {
    const std::size_t element = element_bytes(work.request.type);
    std::memset(static_cast<std::byte*>(work.request.residual) + work.own.begin * element, 0, work.own.count * element);
  }
  for (PeerSend& send : work.sends) {
    send.base = std::exchange(exchanges_[send.link].send_steps, exchanges_[send.link].send_steps + send.transfers);
    record_op_in_progress(send.sub);
  }
}

bool ProgressEngine::send_to_peers(Operation& op) {
  ExchangeWork& work = *op.exchange;
  if (!work.sends_begun) begin_sends(work);
  bool moved = false;
  for (PeerSend& send : work.sends) {
    if (send.done()) continue;
    moved |= fill_peer_send(work, send);
    moved |= post_peer_send(op, send);
    if (!error_) moved |= test_peer_send(op, send);
    if (error_) return false;
  }
  work.sent = std::all_of(work.sends.begin(), work.sends.end(), [](const auto& s) { return s.done(); });
  if (work.sent) {
    for (PeerSend& send : work.sends) stop_op(send.sub);
  }
  return moved || work.sends.empty();
}

// The kernel's part. The residual gets a copy now: later the sums of the others replace the data.
bool ProgressEngine::fill_peer_send(const ExchangeWork& work, PeerSend& send) {
  if (send.posted == send.transfers || send.posted >= send.sent + depth_of(work.sends.size())) return false;
  start_step(send.sub, send.posted);
  record_step(send.sub, send.posted, kStateSendGpuWait);
  const std::byte* const from = send.memory + send.posted * send.chunk;
  const std::size_t bytes = send.size_of(send.posted);
  std::memcpy(step_of(direct_links_[send.link].send_buffers[0], send.base + send.posted), from, bytes);
  if (send.residual != nullptr) std::memcpy(send.residual + send.posted * send.chunk, from, bytes);
  ++send.posted;
  return true;
}

bool ProgressEngine::post_peer_send(Operation& op, PeerSend& send) {
  if (send.transmitted == send.posted) return false;
  const Link& link = direct_links_[send.link];
  const std::size_t index = send.transmitted % kSteps;
  const std::size_t size = send.size_of(send.transmitted);
  record_step(send.sub, send.transmitted, kStateSendPeerWait);
  tell_p2p_attributes(true, op.exchange->sends.size());
  send.requests[index] = nullptr;
  const int result =
      plugin_.isend(link.send_comm, step_of(link.send_buffers[0], send.base + send.transmitted), size, config_.rank,
                    link.send_buffers[0].mhandle, send.sub.phandle(send.transmitted), &send.requests[index]);
  if (!check(result, "isend", send.peer, 0)) return false;
  if (send.requests[index] == nullptr) {
    counters_.send_retries.add();
    return false;
  }
  count_send(op, send.sub, send.transmitted, size, send.times[index]);
  ++send.transmitted;
  return true;
}

bool ProgressEngine::test_peer_send(Operation& op, PeerSend& send) {
  if (send.sent == send.transmitted) return false;
  const std::size_t index = send.sent % kSteps;
  int done = 0;
  int size = 0;
  if (!check(plugin_.test(send.requests[index], &done, &size), "test of a send", send.peer, 0) || done == 0)
    return false;
  if (op.record_steps) {
    op.stats.step_seconds.push_back(std::chrono::duration<double>(steady_clock::now() - send.times[index]).count());
  }
  ++op.stats.steps;
  stop_step(send.sub, send.sent);
  ++send.sent;
  if (send.done() && send.residual != nullptr) keep_lost(op.exchange->request.type, send);
  return true;
}

void ProgressEngine::keep_lost(DataType type, const PeerSend& send) {
  const auto lost = config_.losses->lost_to(config_.comm_id, send.peer, send.number);
  if (!lost) {
    error_ = lost.error();
    return;
  }
  const std::size_t element = element_bytes(type);
  zero_all_but(send.residual, lost_elements(*lost, send.chunk, send.bytes, element), send.bytes / element, element);
}

// As setXferNetAttrs: algorithm and protocol stay what they were, because p2p has none.
void ProgressEngine::tell_p2p_attributes(bool send, std::size_t peers) {
  if (!plugin_.has_set_net_attr()) return;
  nccl_abi::NetAttr attr = attributes();
  const auto concurrent = static_cast<std::int32_t>(peers);
  (send ? attr.send : attr.recv) = {concurrent, concurrent, 1, 1};
  attr.op = 1u << (send ? nccl_abi::kSend : nccl_abi::kRecv);
  tell(attr);
}

std::string ProgressEngine::describe_exchange(const ExchangeWork& work) const {
  std::string text =
      work.sums ? fmt::format("direct all-reduce of {} elements", work.request.count) : std::string("all-to-all");
  for (const PeerReceive& receive : work.receives) {
    if (receive.done()) continue;
    text += fmt::format("; from rank {} {} of {} transfers received ({} posted)", receive.peer, receive.received,
                        receive.transfers, receive.posted);
  }
  for (const PeerSend& send : work.sends) {
    if (send.done()) continue;
    text += fmt::format("; to rank {} {} of {} transfers done ({} handed over)", send.peer, send.sent, send.transfers,
                        send.transmitted);
  }
  return text;
}

}  // namespace clustar::bench::proxy
