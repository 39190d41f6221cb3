// Payload that the device places: which memory is open to it, and until when; and what memory it may be.
#include <fmt/format.h>

#include <algorithm>

#include "mlt/driver/engine.h"
#include "transport/base/rng.h"

namespace clustar::mlt::driver {

// The same at both ends, another one for each message of whatever connection.
std::uint64_t Engine::slot(ConnectionId id, std::int32_t tag, std::uint32_t tag_seq) const {
  const std::uint64_t which = std::uint64_t{static_cast<std::uint32_t>(tag)} << 32 | tag_seq;
  return std::max<std::uint64_t>(mix64(mix64(attached_[id].secret) + which), 1);
}

io::PlacementHint Engine::expect(ConnectionId id, std::int32_t tag, std::uint32_t tag_seq,
                                 const io::MemorySlice& target) {
  if (!places() || target.mr == nullptr || target.length < kLeastLanding) return {};
  const std::uint64_t where = slot(id, tag, tag_seq);
  const io::PlacementHint landing = device_->expect(attached_[id].peer_id, where, target, options_.segment);
  if (landing.id != 0) attached_[id].landings.push_back(landing);
  return landing;
}

void Engine::cancel(ConnectionId id, io::PlacementHint landing) {
  if (landing.id == 0) return;
  device_->cancel(landing);
  std::erase_if(attached_[id].landings, [&](const io::PlacementHint& each) { return each.id == landing.id; });
}

Result<std::unique_ptr<io::Mr>> Engine::reg_mr(const gdr::MemoryRef& memory) {
  if (memory.kind == gdr::MemoryKind::kHost) return device_->reg_mr(memory);
  if (sealing_) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("mlt registers host memory only, not {}, with a pre-shared key: the processor seals packets, "
                    "and it must not touch GPU memory; register host memory, or unset CLUSTAR_PSK_FILE",
                    gdr::to_string(memory.kind)));
  }
  if ((device_->reach().kinds & gdr::bit(memory.kind)) == 0 || !writes_) {
    const bool gpu = writes_ && device_->reach().kinds != gdr::kHostOnly;
    std::string allowed = gdr::to_string(gdr::MemoryKind::kHost);
    for (const auto kind : {gdr::MemoryKind::kCuda, gdr::MemoryKind::kDmaBuf}) {
      if (gpu && (device_->reach().kinds & gdr::bit(kind)) != 0) allowed += fmt::format(", {}", gdr::to_string(kind));
    }
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("mlt registers no {} memory on {} ({}); allowed is {}{}", gdr::to_string(memory.kind), name_,
                    device_->reach().why.empty() ? "GPU memory needs CLUSTAR_IO=verbs_ud or verbs_uc and a NIC that "
                                                   "reaches it"
                                                 : device_->reach().why,
                    allowed, gpu ? "" : "; CLUSTAR_GDR=off has NCCL take that"));
  }
  return device_->reg_mr(memory);
}

bool Engine::step_writes() {
  if (!writes_) return false;
  const auto moved = writes_->step();
  if (!moved) {
    fail_device(moved.error());
    return true;
  }
  while (const auto done = writes_->poll()) {
    Client* client = attached_[done->owner].client;
    if (client != nullptr) client->on_written(done->request);
  }
  return *moved;
}

}  // namespace clustar::mlt::driver
