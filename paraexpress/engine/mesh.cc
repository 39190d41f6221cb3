#include "paraexpress/engine/mesh.h"

#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

namespace clustar::paraexpress {
namespace {

using transport::Handle;

Error of_member(const std::string& name, Error error) {
  error.message = name + ": " + error.message;
  return error;
}

struct Claim {
  std::uint32_t ranks = 0, helpers = 0;
  Member self = 0;
  std::uint32_t unused = 0;
  std::uint64_t epoch = 0;
};

}  // namespace

std::size_t exchange_bytes(std::uint32_t members) { return sizeof(Claim) + members * sizeof(Handle); }

std::string name_of(Member member, std::uint32_t ranks) {
  return member < ranks ? fmt::format("rank {}", member) : fmt::format("helper {}", member - ranks);
}

Result<std::unique_ptr<Mesh>> Mesh::connect(transport::Transport& transport, const AllGather& all_gather,
                                            const MeshOptions& options) {
  const std::uint32_t members = options.ranks + options.helpers;
  const auto linked = [&](Member peer) {
    return peer != options.self && (peer < options.ranks || options.self < options.ranks);
  };
  // A rank goes on without helpers, a helper not without ranks.
  const auto is_helper = [&](Member peer) { return peer >= options.ranks; };
  std::vector<bool> lost(members);
  const auto wrong = [&](Member peer, Error error) {
    return tl::unexpected(of_member(name_of(peer, options.ranks), std::move(error)));
  };
  auto mesh = std::make_unique<Mesh>();
  mesh->ranks_ = options.ranks;
  mesh->to_.resize(members);
  mesh->from_.resize(members);
  // One listener per peer, so that each knows who came.
  std::vector<std::unique_ptr<transport::Listener>> listeners(members);
  // What a member takes the mesh for, then its handles.
  const Claim claim{options.ranks, options.helpers, options.self, 0, options.epoch};
  std::vector<std::byte> mine(exchange_bytes(members));
  std::memcpy(mine.data(), &claim, sizeof claim);
  for (Member peer = 0; peer < members; ++peer) {
    if (!linked(peer)) continue;
    auto listener = transport.listen(options.device, options.channel);
    if (!listener) return wrong(peer, listener.error());
    std::memcpy(mine.data() + sizeof claim + peer * sizeof(Handle), (*listener)->handle().data(), sizeof(Handle));
    listeners[peer] = std::move(*listener);
  }
  const auto gathered = all_gather(mine);
  if (!gathered) return tl::unexpected(gathered.error());
  const std::size_t row = mine.size();
  if (gathered->size() != members * row) {
    return fail(ErrorCode::kInternal, "the members' addresses came in a wrong number of bytes");
  }
  for (Member peer = 0; peer < members; ++peer) {
    Claim theirs;
    std::memcpy(&theirs, gathered->data() + peer * row, sizeof theirs);
    // One that is missing has said nothing.
    if (is_helper(peer) && theirs.ranks == 0) {
      lost[peer] = true;
      continue;
    }
    if (theirs.ranks == claim.ranks && theirs.helpers == claim.helpers && theirs.self == peer &&
        theirs.epoch == claim.epoch) {
      continue;
    }
    if (theirs.epoch != claim.epoch) {
      return fail(ErrorCode::kInvalidUsage, fmt::format("{} takes it for epoch {}, {} for {}: members of two groups",
                                                        name_of(peer, options.ranks), theirs.epoch,
                                                        name_of(claim.self, claim.ranks), claim.epoch));
    }
    return fail(ErrorCode::kInvalidUsage,
                fmt::format("{} was started for {} ranks and {} helpers, {} for {} and {}; all must be told the same",
                            name_of(theirs.self, theirs.ranks), theirs.ranks, theirs.helpers,
                            name_of(claim.self, claim.ranks), claim.ranks, claim.helpers));
  }
  std::vector<std::unique_ptr<transport::PendingConnect>> connects(members);
  for (Member peer = 0; peer < members; ++peer) {
    if (!linked(peer) || lost[peer]) continue;
    Handle handle;
    std::memcpy(handle.data(), gathered->data() + peer * row + sizeof claim + options.self * sizeof(Handle),
                sizeof(Handle));
    auto pending = transport.connect(options.device, handle, options.channel);
    if (!pending && is_helper(peer)) {
      lost[peer] = true;
      continue;
    }
    if (!pending) return wrong(peer, pending.error());
    connects[peer] = std::move(*pending);
  }
  const auto begin = std::chrono::steady_clock::now();
  const auto until = options.waits.end(begin);
  const auto helpers_until = begin + std::min(options.waits.each / 2, kHelperPatience);
  for (;;) {
    Member missing = members;
    for (Member peer = 0; peer < members; ++peer) {
      if (!linked(peer) || lost[peer]) continue;
      if (!mesh->to_[peer]) {
        auto channel = connects[peer]->poll();
        if (!channel && is_helper(peer)) lost[peer] = true;
        if (lost[peer]) continue;
        if (!channel) return wrong(peer, channel.error());
        mesh->to_[peer] = std::move(*channel);
      }
      if (!mesh->from_[peer]) {
        auto channel = listeners[peer]->poll_accept();
        if (!channel && is_helper(peer)) lost[peer] = true;
        if (lost[peer]) continue;
        if (!channel) return wrong(peer, channel.error());
        mesh->from_[peer] = std::move(*channel);
      }
      if (mesh->has(peer)) continue;
      lost[peer] = is_helper(peer) && std::chrono::steady_clock::now() > helpers_until;
      if (!lost[peer]) missing = peer;
    }
    if (missing == members) {
      for (Member peer = 0; peer < members; ++peer) {
        if (lost[peer]) mesh->drop(peer);
      }
      return mesh;
    }
    if (std::chrono::steady_clock::now() > until) {
      return fail(ErrorCode::kRemote, fmt::format("{} did not connect within {:.3g} s", name_of(missing, options.ranks),
                                                  std::chrono::duration<double>(until - begin).count()));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

Result<std::unique_ptr<Registered>> Mesh::reg_mr(void* memory, std::size_t bytes) {
  const std::lock_guard lock(mutex_);  // what is made of it goes before, where one fails
  auto registered = std::make_unique<Registered>();
  registered->begin = static_cast<std::byte*>(memory);
  registered->bytes = bytes;
  registered->to_send.resize(to_.size());
  registered->to_receive.resize(to_.size());
  const auto reference = gdr::MemoryRef::host(memory, bytes);
  for (Member peer = 0; peer < to_.size(); ++peer) {
    if (!to_[peer]) continue;
    const auto wrong = [this, peer](const Error& error) {
      return tl::unexpected(of_member(name_of(peer, ranks_), error));
    };
    auto to_send = to_[peer]->reg_mr(reference);
    if (!to_send) return wrong(to_send.error());
    auto to_receive = from_[peer]->reg_mr(reference);
    if (!to_receive) return wrong(to_receive.error());
    registered->to_send[peer] = std::move(*to_send);
    registered->to_receive[peer] = std::move(*to_receive);
  }
  registered->mesh = this;
  registered_.push_back(registered.get());
  return registered;
}

Registered::~Registered() {
  if (mesh == nullptr) return;
  const std::lock_guard lock(mesh->mutex_);
  std::erase(mesh->registered_, this);
  to_send.clear();
  to_receive.clear();
}

void Mesh::close() {
  for (Member peer = 0; peer < to_.size(); ++peer) drop(peer);
}

void Mesh::drop(Member peer) {
  const std::lock_guard lock(mutex_);
  for (Registered* const one : registered_) {
    one->to_send[peer].reset();
    one->to_receive[peer].reset();
  }
  to_[peer].reset();
  from_[peer].reset();
}

}  // namespace clustar::paraexpress
