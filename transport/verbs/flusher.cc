#include "transport/verbs/flusher.h"

#include <algorithm>
#include <utility>

namespace clustar::transport::verbs {

bool Flusher::needed(const Nic& nic) {
  const std::uint32_t host = 1u << static_cast<unsigned>(gdr::MemoryKind::kHost);
  return nic.context().settings.force_flush || (nic.memory_kinds() & ~host) != 0;
}

Result<std::unique_ptr<Flusher>> Flusher::make(Nic& nic) {
  std::unique_ptr<Flusher> made(new Flusher(nic));
  auto scratch = OwnMemory::make(nic.ports(), 64);
  if (!scratch) return tl::unexpected(scratch.error());
  made->scratch_ = std::move(*scratch);
  for (FlushRequest& request : made->requests_) request.flusher = made.get();
  constexpr int kReads = kMaxRequests * kReadsPerFlush;
  for (const Port& port : nic.ports()) {
    auto queue = io::verbs::CompletionQueue::make(port.device, kReads + 1);
    if (!queue) return tl::unexpected(queue.error());
    Loop& loop = made->loops_.emplace_back();
    loop.queue = std::make_unique<io::verbs::CompletionQueue>(std::move(*queue));
    auto pair = io::verbs::QueuePair::make(
        port.domain,
        {.send_queue = loop.queue.get(), .recv_queue = loop.queue.get(), .send_requests = kReads, .recv_requests = 1});
    if (!pair) return tl::unexpected(pair.error());
    const auto path = port.path_to(port.contact());
    if (!path) return tl::unexpected(path.error());
    auto ready = pair->to_init({.port = static_cast<std::uint8_t>(port.info.port),
                                .pkey_index = nic.context().settings.pkey_index,
                                .access = IBV_ACCESS_REMOTE_READ});
    if (ready) ready = pair->to_rtr({.path = *path, .peer_queue_pair = pair->number(), .mtu = port.mtu});
    if (ready) ready = pair->to_rts({.retry = nic.context().settings.retry});
    if (!ready) return tl::unexpected(ready.error());
    loop.pair = std::move(*pair);
  }
  return made;
}

Result<Request*> Flusher::flush(std::span<const RecvPart> parts) {
  if (failed_) return tl::unexpected(*failed_);
  const bool nothing = std::all_of(parts.begin(), parts.end(), [](const RecvPart& part) { return part.length == 0; });
  const auto free = std::find_if(requests_.begin(), requests_.end(), [](const FlushRequest& one) { return !one.used; });
  if (nothing || free == requests_.end()) return nullptr;
  free->used = true;
  free->open = 0;
  const auto index = static_cast<std::uint32_t>(free - requests_.begin());
  for (std::size_t port = 0; port < loops_.size(); ++port) {
    if (const auto posted = read(port, index, parts); !posted) {
      failed_ = posted.error();
      return tl::unexpected(*failed_);
    }
  }
  nic_.counters().flushes.fetch_add(1, std::memory_order_relaxed);
  return &*free;
}

Result<void> Flusher::read(std::size_t port, std::uint32_t request, std::span<const RecvPart> parts) {
  for (const RecvPart& part : parts) {
    if (part.length == 0) continue;
    const std::size_t bytes = std::min<std::size_t>(part.length, 4);
    ibv_sge into = scratch_.regions().slice(port, 0, bytes);
    ibv_send_wr read{};
    read.wr_id = request;
    read.opcode = IBV_WR_RDMA_READ;
    read.send_flags = IBV_SEND_SIGNALED;
    read.sg_list = &into;
    read.num_sge = 1;
    // The last bytes of the part: what was written before them is behind nothing else.
    read.wr.rdma.remote_addr = regions_of(*part.mr).address(part.offset + part.length - bytes);
    read.wr.rdma.rkey = regions_of(*part.mr).rkeys()[port];
    if (const auto posted = loops_[port].pair->post(read); !posted) return posted;
    ++requests_[request].open;
  }
  return {};
}

Result<void> Flusher::progress() {
  std::array<ibv_wc, 16> completions;
  for (const Loop& loop : loops_) {
    const auto taken = loop.queue->poll(completions);
    if (!taken) return tl::unexpected(taken.error());
    for (std::size_t i = 0; i < *taken; ++i) {
      if (completions[i].status != IBV_WC_SUCCESS) return tl::unexpected(loop.pair->explain(completions[i]));
      --requests_[completions[i].wr_id].open;
    }
  }
  return {};
}

Result<Progress> Flusher::test(FlushRequest& request) {
  if (request.open > 0 && !failed_) {
    if (const auto done = progress(); !done) failed_ = done.error();
  }
  if (request.open > 0 && failed_) return tl::unexpected(*failed_);
  if (request.open > 0) return Progress{};
  request.used = false;
  return Progress{true, {}, {}};
}

}  // namespace clustar::transport::verbs
