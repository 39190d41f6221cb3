#include "transport/verbs/flusher.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace clustar::transport::verbs {

bool Flusher::needed(const Nic& nic) { return nic.context().settings.force_flush || nic.device_memory().any(); }

Result<std::unique_ptr<Flusher>> Flusher::make(Nic& nic) {
  std::unique_ptr<Flusher> made(new Flusher(nic));
  auto scratch = OwnMemory::make(nic.ports(), 64);
  if (!scratch) return tl::unexpected(scratch.error());
  made->scratch_ = std::move(*scratch);
  for (FlushRequest& request : made->requests_) request.flusher = made.get();
  made->loops_.reserve(nic.ports().size());
  for (const Port& port : nic.ports()) {
    auto loop = port.loop(nic.context().settings, kMaxRequests * kReadsPerFlush);
    if (!loop) return tl::unexpected(loop.error());
    made->loops_.push_back(std::move(*loop));
  }
  return made;
}

Result<Request*> Flusher::flush(std::span<const RecvPart> parts) {
  if (failed_) return tl::unexpected(*failed_);
  const bool nothing = std::all_of(parts.begin(), parts.end(), [](const RecvPart& part) { return part.length == 0; });
  const auto free = std::find_if(requests_.begin(), requests_.end(), [](const FlushRequest& one) { return !one.used; });
  if (nothing) return nullptr;
  if (free == requests_.end()) {
    return fail(ErrorCode::kInvalidUsage,
                fmt::format("verbs: {} flushes of a channel are under way, and no more are allowed: test one until it "
                            "is done",
                            requests_.size()));
  }
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
    const Regions& regions = regions_of(*part.mr);
    // The last bytes of the part: what was written before them is behind nothing else. There is room: each request that
    // is used has its share of the depth.
    const auto posted =
        loops_[port].post_read(scratch_.regions().slice(port, 0, bytes),
                               regions.address(part.offset + part.length - bytes), regions.rkeys()[port], request);
    if (!posted) return tl::unexpected(posted.error());
    ++requests_[request].open;
  }
  return {};
}

Result<void> Flusher::progress() {
  std::array<std::uint64_t, 16> done;
  for (io::verbs::Loop& loop : loops_) {
    const auto taken = loop.poll(done);
    if (!taken) return tl::unexpected(taken.error());
    for (std::size_t i = 0; i < *taken; ++i) --requests_[done[i]].open;
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
