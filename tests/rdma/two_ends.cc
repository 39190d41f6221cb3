#include "tests/rdma/two_ends.h"

#include <span>
#include <thread>

namespace clustar::tests {
namespace {

using Clock = std::chrono::steady_clock;

std::byte pattern(std::size_t index, int seed) { return static_cast<std::byte>(index * 7 + index / 251 + seed); }

}  // namespace

End::End(const std::string& device_name, const EndOptions& end_options)
    : options(end_options),
      memory(options.memory),
      device(must(verbs::Device::open(device_name))),
      domain(must(verbs::ProtectionDomain::make(device))),
      region(must(verbs::MemoryRegion::make(domain, gdr::MemoryRef::host(memory.data(), memory.size()), kAllAccess))),
      queue(must(verbs::CompletionQueue::make(device, 1024, options.channel))) {
  const auto choice = verbs::choose_gid(must(device.gids(1)), {});
  if (!choice.chosen) throw std::runtime_error(choice.summary());
  gid = *choice.chosen;
  if (options.shared_receives) shared.emplace(must(verbs::SharedReceiveQueue::make(domain, 256)));
  pair = must(verbs::QueuePair::make(domain, {.type = options.type,
                                              .send_queue = &queue,
                                              .recv_queue = &queue,
                                              .shared_receives = shared ? &*shared : nullptr,
                                              .send_requests = 256,
                                              .recv_requests = 256,
                                              .send_sges = 2,
                                              .recv_sges = 2,
                                              .inline_bytes = options.inline_bytes}));
  const int access = options.type == IBV_QPT_UC
                         ? IBV_ACCESS_REMOTE_WRITE
                         : IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  must(pair->to_init({.access = access, .q_key = kQKey}));
}

Contact End::contact() const { return {gid.gid, pair->number(), region.rkey(), region.address(0)}; }

void End::connect(const Contact& peer) {
  peer_ = peer;
  must(pair->to_rtr({.path = {.peer = peer.gid, .gid_index = static_cast<int>(gid.index)},
                     .peer_queue_pair = peer.queue_pair,
                     .peer_psn = peer.queue_pair & 0xffffff,
                     .mtu = options.mtu,
                     .peer_reads = 4}));
  must(pair->to_rts({.psn = pair->number() & 0xffffff, .reads = 4, .retry = options.retry}));
}

void End::receive(std::uint64_t id, std::size_t offset, std::size_t length) {
  ibv_sge into = region.slice(offset, length);
  ibv_recv_wr request{.wr_id = id, .next = nullptr, .sg_list = &into, .num_sge = 1};
  must(shared ? shared->post(request) : pair->post(request));
}

ibv_send_wr End::request(ibv_wr_opcode opcode, std::size_t offset, std::size_t length, std::size_t remote) {
  sge_ = region.slice(offset, length);
  ibv_send_wr made{};
  made.opcode = opcode;
  made.send_flags = IBV_SEND_SIGNALED;
  made.sg_list = &sge_;
  made.num_sge = length == 0 ? 0 : 1;
  made.wr.rdma.remote_addr = peer_.address + remote;
  made.wr.rdma.rkey = peer_.rkey;
  return made;
}

void End::post(ibv_send_wr request) { must(pair->post(request)); }

std::optional<ibv_wc> End::next(std::chrono::milliseconds limit) {
  const auto deadline = Clock::now() + limit;
  ibv_wc taken{};
  while (must(queue.poll(std::span(&taken, 1))) == 0) {
    if (Clock::now() > deadline) return std::nullopt;
    std::this_thread::yield();
  }
  return taken;
}

ibv_wc End::completion(std::chrono::milliseconds limit) {
  const auto taken = next(limit);
  if (!taken) throw std::runtime_error("no completion on " + device.name());
  return *taken;
}

ibv_wc End::success() {
  const ibv_wc taken = completion();
  if (taken.status != IBV_WC_SUCCESS) throw std::runtime_error(pair->explain(taken).message);
  return taken;
}

void End::fill(std::size_t offset, std::size_t length, int seed) {
  for (std::size_t i = 0; i < length; ++i) memory[offset + i] = pattern(i, seed);
}

bool End::filled(std::size_t offset, std::size_t length, int seed) const {
  for (std::size_t i = 0; i < length; ++i) {
    if (memory[offset + i] != pattern(i, seed)) return false;
  }
  return true;
}

}  // namespace clustar::tests
