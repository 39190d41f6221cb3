// The part of the progress thread that touches slices: irecv, test, iflush, the kernel, isend, test.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "bench/proxy/comm_profiler.h"
#include "bench/proxy/nccl_names.h"
#include "bench/proxy/plugin_error.h"
#include "bench/proxy/progress_engine.h"

namespace clustar::bench::proxy {
namespace {

using std::chrono::steady_clock;

constexpr int kMaxTestSizes = 64;  // NCCL hands test() this many
// NCCL starts from zero and compares nothing; from this it shows what a plugin did not write.
constexpr int kSizeNotReported = -1;

void* marker() { return reinterpret_cast<void*>(nccl_abi::kOptionalRecvCompletion); }

}  // namespace

bool ProgressEngine::check(int result, const char* call, int peer, std::size_t channel) {
  if (result == nccl_abi::kSuccess) return true;
  error_ = plugin_error(plugin_, fmt::format("{} (peer rank {}, channel {})", call, peer, channel), result);
  return false;
}

// NCCL's depth, but never less than a chunk: a ring whose kernels may not send a whole chunk ahead waits for itself.
std::size_t ProgressEngine::depth(const Operation& op, const Link& link) const {
  const int steps = std::min(kSteps, kSharedSteps / link.channels);
  return static_cast<std::size_t>(std::max(steps, op.shape.chunk_steps) / op.shape.slice_steps);
}

std::byte* ProgressEngine::slot(const Operation& op, const std::vector<Registered>& buffers, std::size_t channel,
                                std::uint64_t step) const {
  const Link& link = links_[link_of_[channel]];
  const std::size_t within = channel - static_cast<std::size_t>(link.first_channel);
  return buffers[static_cast<std::size_t>(op.protocol)].memory.data() + within * buffer_bytes(op.protocol) +
         step % kSteps * wire_shape(op.protocol).step_bytes;
}

// NCCL's tag is the sender's rank; channels that share a comm need one each.
int ProgressEngine::tag(int sender, std::size_t channel) const {
  const Link& link = links_[link_of_[channel]];
  return link.channels == 1 ? sender : sender * config_.channels + static_cast<int>(channel);
}

// As setXferNetAttrs: only the half of the direction changes, and the plugin is told only what is new.
void ProgressEngine::tell_attributes(const Operation& op, bool send) {
  if (!plugin_.has_set_net_attr()) return;
  nccl_abi::NetAttr attr = attributes();
  (send ? attr.send : attr.recv) = {1, 1, config_.channels, config_.channels};
  attr.op = 1u << function_of(op.request.collective);
  attr.algo = 1u << nccl_abi::kRing;
  attr.proto = 1u << protocol_of(op.protocol);
  tell(attr);
}

// What the plugin was told last; at first what it heard before connect.
nccl_abi::NetAttr ProgressEngine::attributes() const {
  if (told_) return *told_;
  const nccl_abi::CommAttr none{-1, -1, -1, -1};
  return {none, none, nccl_abi::kNetAttrUndefined, nccl_abi::kNetAttrUndefined, nccl_abi::kNetAttrUndefined};
}

void ProgressEngine::tell(const nccl_abi::NetAttr& attr) {
  if (told_ && std::memcmp(&*told_, &attr, sizeof attr) == 0) return;
  told_ = attr;
  nccl_abi::NetAttr copy = attr;
  plugin_.set_net_attr(ctx_, &copy);
}

void ProgressEngine::begin_receive(Operation& op, const Link& link, GroupWork& work) {
  work.begun = true;
  for (int i = 0; i < link.channels; ++i) {
    const auto c = static_cast<std::size_t>(link.first_channel + i);
    ChannelWork& channel = op.channels[c];
    channel.receive_base = round_up(steps_[c].receive, static_cast<std::size_t>(op.shape.chunk_steps));
    steps_[c].receive = channel.receive_base + channel.receives * static_cast<std::size_t>(op.shape.slice_steps);
    record_op_in_progress(channel.receive_sub);
  }
}

void ProgressEngine::begin_send(Operation& op, std::size_t channel) {
  ChannelWork& work = op.channels[channel];
  if (work.send_begun) return;
  work.send_begun = true;
  work.send_base = round_up(steps_[channel].send, static_cast<std::size_t>(op.shape.chunk_steps));
  steps_[channel].send = work.send_base + work.sends * static_cast<std::size_t>(op.shape.slice_steps);
  record_op_in_progress(work.send_sub);
}

bool ProgressEngine::receive_done(const Operation& op, const Link& link) const {
  for (int i = 0; i < link.channels; ++i) {
    const ChannelWork& work = op.channels[static_cast<std::size_t>(link.first_channel + i)];
    if (work.consumed != work.receives) return false;
  }
  return true;
}

// NCCL's kernel tells the proxy, which then ends the step, and all operations of a shared connection at once.
void ProgressEngine::end_receive(Operation& op, std::size_t channel) {
  ChannelWork& work = op.channels[channel];
  stop_step(work.receive_sub, work.consumed);
  ++work.consumed;
  const Link& link = links_[link_of_[channel]];
  if (!receive_done(op, link)) return;
  for (int i = 0; i < link.channels; ++i) {
    stop_op(op.channels[static_cast<std::size_t>(link.first_channel + i)].receive_sub);
  }
}

bool ProgressEngine::progress_receive(Operation& op, std::size_t group) {
  Link& link = links_[group];
  GroupWork& work = op.groups[group];
  if (!work.begun) begin_receive(op, link, work);
  bool moved = post_receive(op, link, work);
  if (!error_) moved |= test_receive(op, link, work);
  if (!error_) moved |= test_flush(op, link, work);
  return moved;
}

bool ProgressEngine::post_receive(Operation& op, const Link& link, GroupWork& work) {
  if (work.posted == work.receives) return false;
  std::array<void*, kMaxTestSizes> data{};
  std::array<std::size_t, kMaxTestSizes> sizes{};
  std::array<int, kMaxTestSizes> tags{};
  std::array<void*, kMaxTestSizes> mhandles{};
  std::array<void*, kMaxTestSizes> phandles{};
  std::array<ProxySub*, kMaxTestSizes> active{};
  std::size_t subs = 0;
  const auto slice_steps = static_cast<std::size_t>(op.shape.slice_steps);
  for (int i = 0; i < link.channels; ++i) {
    const auto c = static_cast<std::size_t>(link.first_channel + i);
    ChannelWork& channel = op.channels[c];
    if (work.posted >= channel.receives) continue;
    if (work.posted >= channel.consumed + depth(op, link)) return false;
    // As NCCL at every attempt: a receive that the plugin cannot take yet leaves a step that nothing stops.
    start_step(channel.receive_sub, work.posted);
    active[subs] = &channel.receive_sub;
    phandles[subs] = channel.receive_sub.phandle(work.posted);
    data[subs] = slot(op, link.recv_buffers, c, channel.receive_base + work.posted * slice_steps);
    sizes[subs] = wire_shape(op.protocol).step_bytes * slice_steps;
    tags[subs] = tag(previous_, c);
    mhandles[subs] = link.recv_buffers[static_cast<std::size_t>(op.protocol)].mhandle;
    ++subs;
  }
  tell_attributes(op, false);
  void*& request = work.requests[work.posted % kSteps];
  const bool optional = op.protocol != Protocol::kSimple && subs == 1;
  request = optional ? marker() : nullptr;
  const int result = plugin_.irecv(link.recv_comm, static_cast<int>(subs), data.data(), sizes.data(), tags.data(),
                                   mhandles.data(), phandles.data(), &request);
  const auto channel = static_cast<std::size_t>(link.first_channel);
  if (!check(result, "irecv", previous_, channel) || request == nullptr) return false;
  if (request == marker()) {
    error_ = Error{ErrorCode::kInternal,
                   fmt::format("irecv (peer rank {}, channel {}) left the optional-completion marker in *request; a "
                               "plugin has to store a request or NULL",
                               previous_, channel)};
    return false;
  }
  for (std::size_t i = 0; i < subs; ++i) record_step(*active[i], work.posted, kStateRecvWait);
  ++work.posted;
  return true;
}

bool ProgressEngine::test_receive(Operation& op, const Link& link, GroupWork& work) {
  if (work.received == work.posted) return false;
  std::array<int, kMaxTestSizes> sizes{};
  sizes.fill(kSizeNotReported);
  int done = 0;
  const int result = plugin_.test(work.requests[work.received % kSteps], &done, sizes.data());
  if (!check(result, "test of a receive", previous_, static_cast<std::size_t>(link.first_channel))) return false;
  if (done == 0) return false;
  std::size_t total = 0;
  std::size_t reported = 0;
  std::size_t sub = 0;
  for (int i = 0; i < link.channels; ++i) {
    const auto c = static_cast<std::size_t>(link.first_channel + i);
    ChannelWork& channel = op.channels[c];
    if (work.received >= channel.receives) continue;
    const std::size_t expected =
        wire_bytes(op.protocol, channel.program.receive(work.received).count * element_bytes(op.request.type));
    const int got = sizes[sub++];
    // LL and LL128 may complete before the size is known: there the flags tell.
    if (op.protocol == Protocol::kSimple && got != kSizeNotReported && got != static_cast<int>(expected)) {
      error_ = Error{ErrorCode::kInternal,
                     fmt::format("a receive from rank {} on channel {} completed with {} bytes where {} were sent",
                                 previous_, c, got, expected)};
      return false;
    }
    total += expected;
    if (got > 0) reported += static_cast<std::size_t>(got);
    channel.receive_sub.transfer_size = static_cast<std::size_t>(std::max(got, 0));
    record_step(channel.receive_sub, work.received, kStateRecvFlushWait);
    counters_.messages_received.add();
  }
  counters_.bytes_received.add(total);
  op.stats.bytes_received += total;
  work.requests[work.received % kSteps] = nullptr;
  if (config_.flush && op.protocol == Protocol::kSimple && reported > 0 && !flush_receive(op, link, work)) {
    return false;
  }
  ++work.received;
  return true;
}

bool ProgressEngine::flush_receive(const Operation& op, const Link& link, GroupWork& work) {
  std::array<void*, kMaxTestSizes> data{};
  std::array<int, kMaxTestSizes> sizes{};
  std::array<void*, kMaxTestSizes> mhandles{};
  std::size_t subs = 0;
  const auto slice_steps = static_cast<std::size_t>(op.shape.slice_steps);
  for (int i = 0; i < link.channels; ++i) {
    const auto c = static_cast<std::size_t>(link.first_channel + i);
    const ChannelWork& channel = op.channels[c];
    if (work.received >= channel.receives) continue;
    data[subs] = slot(op, link.recv_buffers, c, channel.receive_base + work.received * slice_steps);
    sizes[subs] = static_cast<int>(channel.program.receive(work.received).count * element_bytes(op.request.type));
    mhandles[subs] = link.recv_buffers[static_cast<std::size_t>(op.protocol)].mhandle;
    ++subs;
  }
  const int result = plugin_.iflush(link.recv_comm, static_cast<int>(subs), data.data(), sizes.data(), mhandles.data(),
                                    &work.requests[work.received % kSteps]);
  return check(result, "iflush", previous_, static_cast<std::size_t>(link.first_channel));
}

// A flush without a request is complete at once, and so is a receive that needs none.
bool ProgressEngine::test_flush(Operation& op, const Link& link, GroupWork& work) {
  if (work.ready == work.received) return false;
  void*& request = work.requests[work.ready % kSteps];
  if (request != nullptr) {
    int done = 0;
    if (!check(plugin_.test(request, &done, nullptr), "test of a flush", previous_, 0) || done == 0) return false;
    request = nullptr;
  }
  for (int i = 0; i < link.channels; ++i) {
    ChannelWork& channel = op.channels[static_cast<std::size_t>(link.first_channel + i)];
    if (work.ready < channel.receives) record_step(channel.receive_sub, work.ready, kStateRecvGpuWait);
  }
  ++work.ready;
  return true;
}

bool ProgressEngine::run_kernel(Operation& op, std::size_t channel) {
  ChannelWork& work = op.channels[channel];
  if (work.action == work.actions) return false;
  const SliceAction action = work.program.at(work.action);
  const Link& link = links_[link_of_[channel]];
  if (action.receive && work.consumed >= op.groups[link_of_[channel]].ready) return false;
  if (action.send) {
    if (!send_free_[channel]) return false;
    post_steps(op, channel);
    if (work.filled == work.posted) return false;
  }
  const auto slice_steps = static_cast<std::size_t>(op.shape.slice_steps);
  SliceMemory memory;
  memory.input = static_cast<const std::byte*>(op.request.input);
  memory.output = static_cast<std::byte*>(op.request.output);
  memory.receive_step = work.receive_base + work.consumed * slice_steps;
  memory.send_step = work.send_base + work.filled * slice_steps;
  if (action.receive) memory.receive_slot = slot(op, link.recv_buffers, channel, memory.receive_step);
  if (action.send) memory.send_slot = slot(op, link.send_buffers, channel, memory.send_step);
  SliceKernel& kernel = op.protocol == Protocol::kSimple ? simple_kernel_ : kernel_;
  if (!kernel.run(action, memory, op.request.type, op.request.op)) {
    flags_missing_ = true;
    return false;
  }
  if (action.receive) end_receive(op, channel);
  if (action.send) {
    work.send_sizes[work.filled % kSteps] = wire_bytes(op.protocol, action.count * element_bytes(op.request.type));
    ++work.filled;
  }
  ++work.action;
  return true;
}

bool ProgressEngine::progress_send(Operation& op, std::size_t channel) {
  post_steps(op, channel);
  bool moved = post_send(op, channel);
  if (!error_) moved |= test_send(op, channel);
  return moved;
}

// Gives the kernel the buffers that it may fill; for a profiler the transfers begin here.
void ProgressEngine::post_steps(Operation& op, std::size_t channel) {
  ChannelWork& work = op.channels[channel];
  if (work.posted == work.sends) return;
  begin_send(op, channel);
  const std::size_t limit = std::min(work.sends, work.sent + depth(op, links_[link_of_[channel]]));
  for (; work.posted < limit; ++work.posted) {
    start_step(work.send_sub, work.posted);
    record_step(work.send_sub, work.posted, kStateSendGpuWait);
  }
}

bool ProgressEngine::post_send(Operation& op, std::size_t channel) {
  ChannelWork& work = op.channels[channel];
  if (work.transmitted == work.filled) return false;
  const Link& link = links_[link_of_[channel]];
  const std::size_t index = work.transmitted % kSteps;
  const std::size_t size = work.send_sizes[index];
  std::byte* data = slot(op, link.send_buffers, channel,
                         work.send_base + work.transmitted * static_cast<std::size_t>(op.shape.slice_steps));
  record_step(work.send_sub, work.transmitted, kStateSendPeerWait);
  tell_attributes(op, true);
  work.send_requests[index] = nullptr;
  const int result = plugin_.isend(link.send_comm, data, size, tag(config_.rank, channel),
                                   link.send_buffers[static_cast<std::size_t>(op.protocol)].mhandle,
                                   work.send_sub.phandle(work.transmitted), &work.send_requests[index]);
  if (!check(result, "isend", next_, channel)) return false;
  if (work.send_requests[index] == nullptr) {
    counters_.send_retries.add();
    return false;
  }
  count_send(op, work.send_sub, work.transmitted, size, work.send_times[index]);
  ++work.transmitted;
  return true;
}

void ProgressEngine::count_send(Operation& op, ProxySub& sub, std::size_t transfer, std::size_t size,
                                steady_clock::time_point& taken_at) {
  if (op.record_steps) taken_at = steady_clock::now();
  op.stats.bytes_sent += size;
  counters_.bytes_sent.add(size);
  counters_.messages_sent.add();
  sub.transfer_size = size;
  record_step(sub, transfer, kStateSendWait);
}

bool ProgressEngine::test_send(Operation& op, std::size_t channel) {
  ChannelWork& work = op.channels[channel];
  if (work.sent == work.transmitted) return false;
  const std::size_t index = work.sent % kSteps;
  int done = 0;
  int size = 0;
  if (!check(plugin_.test(work.send_requests[index], &done, &size), "test of a send", next_, channel)) return false;
  if (done == 0) return false;
  if (op.record_steps) {
    op.stats.step_seconds.push_back(
        std::chrono::duration<double>(steady_clock::now() - work.send_times[index]).count());
  }
  ++op.stats.steps;
  stop_step(work.send_sub, work.sent);
  if (++work.sent == work.sends) stop_op(work.send_sub);
  return true;
}

}  // namespace clustar::bench::proxy
