#include "paraexpress/engine/mesh.h"

#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

namespace clustar::paraexpress {
namespace {

using transport::Handle;

Error of_rank(Member rank, Error error) {
  error.message = fmt::format("rank {}: {}", rank, error.message);
  return error;
}

}  // namespace

Result<std::unique_ptr<Mesh>> Mesh::connect(transport::Transport& transport, const AllGather& all_gather,
                                            const EngineOptions& options) {
  auto mesh = std::make_unique<Mesh>();
  mesh->to_.resize(options.ranks);
  mesh->from_.resize(options.ranks);
  // One listener per peer, so that each knows who came.
  std::vector<std::unique_ptr<transport::Listener>> listeners(options.ranks);
  std::vector<Handle> mine(options.ranks);
  for (Member peer = 0; peer < options.ranks; ++peer) {
    if (peer == options.rank) continue;
    auto listener = transport.listen(options.device, options.channel);
    if (!listener) return tl::unexpected(of_rank(peer, listener.error()));
    mine[peer] = (*listener)->handle();
    listeners[peer] = std::move(*listener);
  }
  const auto gathered = all_gather(std::as_bytes(std::span(mine)));
  if (!gathered) return tl::unexpected(gathered.error());
  const std::size_t row = options.ranks * sizeof(Handle);
  if (gathered->size() != options.ranks * row) {
    return fail(ErrorCode::kInternal, "the ranks' addresses came in a wrong number of bytes");
  }
  std::vector<std::unique_ptr<transport::PendingConnect>> connects(options.ranks);
  for (Member peer = 0; peer < options.ranks; ++peer) {
    if (peer == options.rank) continue;
    Handle handle;
    std::memcpy(handle.data(), gathered->data() + peer * row + options.rank * sizeof(Handle), sizeof(Handle));
    auto pending = transport.connect(options.device, handle, options.channel);
    if (!pending) return tl::unexpected(of_rank(peer, pending.error()));
    connects[peer] = std::move(*pending);
  }
  const auto until = std::chrono::steady_clock::now() + options.stall;
  for (;;) {
    Member missing = options.ranks;
    for (Member peer = 0; peer < options.ranks; ++peer) {
      if (peer == options.rank) continue;
      if (!mesh->to_[peer]) {
        auto channel = connects[peer]->poll();
        if (!channel) return tl::unexpected(of_rank(peer, channel.error()));
        mesh->to_[peer] = std::move(*channel);
      }
      if (!mesh->from_[peer]) {
        auto channel = listeners[peer]->poll_accept();
        if (!channel) return tl::unexpected(of_rank(peer, channel.error()));
        mesh->from_[peer] = std::move(*channel);
      }
      if (!mesh->to_[peer] || !mesh->from_[peer]) missing = peer;
    }
    if (missing == options.ranks) return mesh;
    if (std::chrono::steady_clock::now() > until) {
      return fail(ErrorCode::kRemote,
                  fmt::format("rank {} did not connect within {} s", missing, options.stall / std::chrono::seconds(1)));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

Result<std::unique_ptr<Registered>> Mesh::reg_mr(void* memory, std::size_t bytes) {
  auto registered = std::make_unique<Registered>();
  registered->begin = static_cast<std::byte*>(memory);
  registered->bytes = bytes;
  registered->to_send.resize(to_.size());
  registered->to_receive.resize(to_.size());
  const auto reference = gdr::MemoryRef::host(memory, bytes);
  for (Member peer = 0; peer < to_.size(); ++peer) {
    if (!to_[peer]) continue;
    auto to_send = to_[peer]->reg_mr(reference);
    if (!to_send) return tl::unexpected(of_rank(peer, to_send.error()));
    auto to_receive = from_[peer]->reg_mr(reference);
    if (!to_receive) return tl::unexpected(of_rank(peer, to_receive.error()));
    registered->to_send[peer] = std::move(*to_send);
    registered->to_receive[peer] = std::move(*to_receive);
  }
  return registered;
}

}  // namespace clustar::paraexpress
